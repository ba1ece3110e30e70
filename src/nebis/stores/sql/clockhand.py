"""Where a sweep over a large table goes on: a hand that moves over its blocks, as that of a clock."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

STRIDE_BLOCKS: Final = 256
"""Two megabytes, some thousand records, about a millisecond: shorter than anybody waits for a row or a processor."""

BLOCKS_AT_ONCE: Final = 16 * 1024
"""A sweep reads at most 128 megabytes, about a quarter of a million records, however large the table is."""


class ClockHand:
    """The first block that was not swept yet."""

    def __init__(self) -> None:
        self._block = 0

    def rounds(self, blocks: int) -> Iterator[tuple[int, int]]:
        """Return ranges of blocks from the hand on, each block of the table at most once."""
        begin = self._block if self._block < blocks else 0
        starts = range(begin, begin + min(blocks, BLOCKS_AT_ONCE), STRIDE_BLOCKS)
        for start in starts:
            first = start if start < blocks else start - _rounded_up(blocks)
            yield first, first + STRIDE_BLOCKS

    def passed(self, end: int) -> None:
        """Go on from here the next time."""
        self._block = end


def _rounded_up(blocks: int) -> int:
    return -(-blocks // STRIDE_BLOCKS) * STRIDE_BLOCKS
