"""Record ids, made from their bits without any of the questions that a UUID asks about six ways of spelling one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final
from uuid import UUID, SafeUUID

from nebis.core.quick import Maker
from nebis.core.record import RecordId

_UNKNOWN: Final = SafeUUID.unknown
_number: Final = int.from_bytes


class _Blank(UUID):
    """An id whose bits can still be set."""

    __slots__ = ()
    __init__ = object.__init__
    __setattr__ = object.__setattr__  # type: ignore[assignment]  # That of a UUID refuses.


def _made(int: int, is_safe: SafeUUID = _UNKNOWN) -> UUID:  # noqa: A002 - as a UUID calls them.
    blank: Any = _Blank()
    blank.int = int
    blank.is_safe = is_safe
    blank.__class__ = UUID
    return blank  # type: ignore[no-any-return]  # It is one now.


make_id: Final[Callable[[int], RecordId]] = Maker(UUID, _made).make
"""Makes the id of these bits."""


def id_of(stored: bytes) -> RecordId:
    """Return the id of these 16 bytes."""
    return make_id(_number(stored, "big"))
