"""Where a sweep over a large table goes on: a hand that moves over its places, as that of a clock."""

from __future__ import annotations

from typing import Final

STRIDE_BLOCKS: Final = 256
"""Of PostgreSQL: two megabytes, some thousand records, about two milliseconds where nothing is due."""

STRIDE_ROWS: Final = 4096
"""Of SQLite, whose rows are numbered: as many records as above."""


class ClockHand:
    """The first place that was not swept yet in this round. A place is a block of the table, or the number of a row."""

    def __init__(self, stride: int) -> None:
        self._stride = stride
        self._place = 0

    @property
    def is_at_start(self) -> bool:
        """Whether a round begins."""
        return self._place == 0

    def next_stride(self, first_place: int = 0) -> tuple[int, int]:
        """Return where the next stride begins and ends, in a table that begins at this place."""
        begin = max(self._place, first_place)
        return begin, begin + self._stride

    def stopped(self, place: int) -> None:
        """Go on from here, because the stride found all that it may take at once."""
        self._place = place

    def passed(self, end: int, places: int) -> bool:
        """Go on from the stride's end; tell whether that was the end of the table, and with it of the round."""
        ends_round = end >= places
        self._place = 0 if ends_round else end
        return ends_round

    def strides(self, places: int) -> int:
        """Return how many strides a round over so many places takes."""
        return max(1, -(-places // self._stride))
