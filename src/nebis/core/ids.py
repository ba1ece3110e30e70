"""Record ids, made from their bits without any of the questions that a UUID asks about six ways of spelling one."""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID, SafeUUID

from nebis.core.record import RecordId

_UNKNOWN: Final = SafeUUID.unknown
_number: Final = int.from_bytes


class Blank(UUID):
    """An id whose bits can still be set; `write` makes a plain one of it before anybody looks at it."""

    __slots__ = ()
    __init__ = object.__init__
    __setattr__ = object.__setattr__  # type: ignore[assignment]  # That of a UUID refuses.


def write(blank: Any, bits: int) -> RecordId:
    """Let a blank be the id of these bits, and return it."""
    blank.int = bits
    blank.is_safe = _UNKNOWN
    blank.__class__ = UUID
    return blank  # type: ignore[no-any-return]  # It is one now.


def id_of(stored: bytes) -> RecordId:
    """Return the id of these 16 bytes."""
    return write(Blank(), _number(stored, "big"))
