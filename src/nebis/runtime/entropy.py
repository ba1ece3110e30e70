"""Where an attempt's random marks come from."""

from __future__ import annotations

import os
import time
from uuid import UUID

from nebis.core.record import Nonce, RecordId
from nebis.ports.asks import Drawn

_MARKS = 0x7 << 76 | 0b10 << 62
"""Version 7, and the variant that has versions."""
_RANDOM_BITS = (1 << 80) - 1 & ~(0xF << 76 | 0b11 << 62)


def draw(*_: object) -> Drawn:
    """Draw from the kernel's generator, which a fork does not share.

    The record id leads with the time (UUID version 7), so that its index grows at one end; nothing relies on it.
    Whatever is given is left alone: a world's table of performers may name this as it stands.
    """
    random = os.urandom(26)
    bits = int.from_bytes(random[:10], "big") & _RANDOM_BITS
    milliseconds = time.time_ns() // 1_000_000
    record_id = UUID(int=milliseconds << 80 | bits | _MARKS)
    return Drawn(RecordId(record_id), Nonce(random[10:]))
