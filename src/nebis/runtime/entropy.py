"""Where an attempt's random marks come from."""

from __future__ import annotations

import os
import time
from uuid import UUID, SafeUUID

from nebis.core.record import Nonce, RecordId
from nebis.ports.asks import Drawn

_MARKS = 0x7 << 76 | 0b10 << 62
"""Version 7, and the variant that has versions."""
_RANDOM_BITS = (1 << 80) - 1 & ~(0xF << 76 | 0b11 << 62)
# The same generator, where it is there. `urandom` lets go of the interpreter meanwhile, and among many threads each
# request would have to stand in line once more to get it back.
_random_bytes = getattr(os, "getrandom", os.urandom)
_new, _set, _UNKNOWN = object.__new__, object.__setattr__, SafeUUID.unknown


def draw(*_: object) -> Drawn:
    """Draw from the kernel's generator, which a fork does not share.

    The record id leads with the time (UUID version 7), so that its index grows at one end; nothing relies on it.
    Whatever is given is left alone: a world's table of performers may name this as it stands.
    """
    random = _random_bytes(26)
    bits = int.from_bytes(random[:10], "big") & _RANDOM_BITS
    milliseconds = time.time_ns() // 1_000_000
    # As `UUID` itself sets them, without its questions after six ways of spelling one, which take twice as long.
    record_id = _new(UUID)
    _set(record_id, "int", milliseconds << 80 | bits | _MARKS)
    _set(record_id, "is_safe", _UNKNOWN)
    return Drawn(RecordId(record_id), Nonce(random[10:]))
