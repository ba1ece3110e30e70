"""Where an attempt's random marks come from."""

from __future__ import annotations

import os
import time
from typing import Any, Final

from nebis.core.ids import make_id
from nebis.core.marks import Marks
from nebis.core.record import Nonce
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
_claim_of: Final = Marks.__call__
"""As `marks(...)`, for a third of the price."""


def draw(*_: object) -> Drawn:
    """Draw from the kernel's generator, which a fork does not share, nor two machines that began as one snapshot.

    The record id leads with the time (UUID version 7), so that its index grows at one end; nothing relies on it.
    Whatever is given is left alone: a world's table of performers may name this as it stands.
    """
    # Not many draws at once, which would be cheaper: what is kept for later is kept in a copied process too.
    random = _random_bytes(26)
    return Drawn(make_id(_timed_bits(random)), Nonce(random[10:]))


def claimed(marks: Marks, *, has_leading_id: bool) -> Claim:
    """Draw as `draw` does, and make the claim of an attempt.

    With a leading id that begins as the identity of its record does. A store that looks records up by identity then
    finds them by id with the same index (decision 0012). The 74 random bits stay, so that no two lives of a key have
    the same id (I10). Without the secret an identity says nothing.
    """
    random = _random_bytes(26)
    if has_leading_id:
        bits = _number(marks.identity[:6] + random[:10], "big") & _LEADING_BITS | _LEADING_MARKS
    else:
        bits = _timed_bits(random)
    nonce: Any = random[10:]  # A `NewType` is a call.
    return _claim_of(marks, make_id(bits), nonce)


def _timed_bits(random: bytes) -> int:
    return _now() // 1_000_000 << 80 | _number(random[:10], "big") & _RANDOM_BITS | _MARKS
