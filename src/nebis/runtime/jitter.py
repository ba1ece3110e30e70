"""Spread what would otherwise come back together."""

from __future__ import annotations

import random


def jittered(seconds: float) -> float:
    """Return half to the whole of a pause."""
    return seconds * random.uniform(0.5, 1.0)  # noqa: S311 - spreads load, guards nothing.
