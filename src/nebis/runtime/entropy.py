"""Where an attempt's random marks come from."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

from nebis.core.ids import Blank, write
from nebis.core.marks import Marks
from nebis.core.record import Nonce, RecordId
from nebis.core.verbs import Claim
from nebis.ports.asks import Drawn

_MARKS = 0x7 << 76 | 0b10 << 62
"""Version 7, and the variant that has versions."""
_RANDOM_BITS = (1 << 80) - 1 & ~(0xF << 76 | 0b11 << 62)
_LEADING_MARKS = 0x8 << 76 | 0b10 << 62
"""Version 8, which says that its bits are laid out as somebody likes."""
_LEADING_BITS = (1 << 48) - 1 << 80 | _RANDOM_BITS
# The same generator, where it is there. `urandom` lets go of the interpreter meanwhile, and among many threads each
# request would have to stand in line once more to get it back.
_random_bytes = getattr(os, "getrandom", os.urandom)
_now, _number = time.time_ns, int.from_bytes


def draw(*_: object) -> Drawn:
    """Draw from the kernel's generator, which a fork does not share, nor two machines that began as one snapshot.

    The record id leads with the time (UUID version 7), so that its index grows at one end; nothing relies on it.
    Whatever is given is left alone: a world's table of performers may name this as it stands.
    """
    # Not many draws at once, which would be cheaper: what is kept for later is kept in a copied process too.
    random = _random_bytes(26)
    record_id: Any = Blank()
    write(record_id, _timed_bits(random))
    nonce: Any = random[10:]
    return Drawn(record_id, nonce)


def claimed(make: Marks | Callable[[RecordId, Nonce], Claim], *, has_leading_id: bool) -> Claim:
    """Draw as `draw` does, and make the claim of an attempt.

    With a leading id that begins as the identity of its record does. A store that looks records up by identity then
    finds them by id with the same index (decision 0012). The 74 random bits stay, so that no two lives of a key have
    the same id (I10). Without the secret an identity says nothing.
    """
    random = _random_bytes(26)
    record_id: Any = Blank()
    # Only the claim tells the identity; it takes the id as it is, to be written before anybody else sees it.
    nonce: Any = random[10:]
    claim = make(record_id, nonce)
    if has_leading_id:
        write(record_id, _number(claim.identity[:6] + random[:10], "big") & _LEADING_BITS | _LEADING_MARKS)
    else:
        write(record_id, _timed_bits(random))
    return claim


def _timed_bits(random: bytes) -> int:
    return _now() // 1_000_000 << 80 | _number(random[:10], "big") & _RANDOM_BITS | _MARKS
