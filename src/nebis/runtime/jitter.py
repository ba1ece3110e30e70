"""Spread what would otherwise come back together."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

# The kernel's generator: forked processes share no state that could keep them in step, and the application's own
# `random.seed` neither changes our pauses nor is disturbed by them.
_SPREAD = random.SystemRandom()


def jittered(seconds: float) -> float:
    """Return half to the whole of a pause."""
    return seconds * _SPREAD.uniform(0.5, 1.0)


def shuffled(members: Sequence[T]) -> list[T]:
    """Return the members in another order each time, so that many workers do not all begin with the same one."""
    return _SPREAD.sample(members, len(members))
