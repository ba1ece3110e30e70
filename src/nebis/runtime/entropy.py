"""Where an attempt's random marks come from."""

from __future__ import annotations

import os
import time
from typing import Any
from uuid import UUID, SafeUUID

from nebis.core.record import RecordId
from nebis.ports.asks import Drawn

_MARKS = 0x7 << 76 | 0b10 << 62
"""Version 7, and the variant that has versions."""
_RANDOM_BITS = (1 << 80) - 1 & ~(0xF << 76 | 0b11 << 62)
_LEADING_MARKS = 0x8 << 76 | 0b10 << 62
"""Version 8, which says that its bits are laid out as somebody likes."""
# The same generator, where it is there. `urandom` lets go of the interpreter meanwhile, and among many threads each
# request would have to stand in line once more to get it back.
_random_bytes = getattr(os, "getrandom", os.urandom)
_now, _number, _UNKNOWN = time.time_ns, int.from_bytes, SafeUUID.unknown


class _Opened(UUID):
    """A UUID whose parts can still be set; it becomes a plain one before anybody has it."""

    __slots__ = ()
    __init__ = object.__init__  # None of the questions after six ways of spelling one.
    __setattr__ = object.__setattr__  # type: ignore[assignment]  # That of a UUID refuses.


def draw(*_: object) -> Drawn:
    """Draw from the kernel's generator, which a fork does not share, nor two machines that began as one snapshot.

    The record id leads with the time (UUID version 7), so that its index grows at one end; nothing relies on it.
    Whatever is given is left alone: a world's table of performers may name this as it stands.
    """
    # Not many draws at once, which would be cheaper: what is kept for later is kept in a copied process too.
    random = _random_bytes(26)
    milliseconds = _now() // 1_000_000
    record_id: Any = _Opened()
    record_id.int = milliseconds << 80 | _number(random[:10], "big") & _RANDOM_BITS | _MARKS
    record_id.is_safe = _UNKNOWN
    record_id.__class__ = UUID
    nonce: Any = random[10:]
    return Drawn(record_id, nonce)


def lead(record_id: RecordId, identity: bytes) -> None:
    """Let an id that was just drawn, and that nobody has seen yet, begin as the identity of its record does.

    A store that looks records up by identity then finds them by id with the same index (decision 0012). The 74 random
    bits stay, so that no two lives of a key have the same id (I10). Without the secret an identity says nothing.
    """
    bits = record_id.int & _RANDOM_BITS
    object.__setattr__(record_id, "int", int.from_bytes(identity[:6], "big") << 80 | bits | _LEADING_MARKS)
