"""Where a sweep over a large table goes on: a hand that moves over its places, as that of a clock."""

from __future__ import annotations

from typing import Final, NamedTuple

STRIDE_BLOCKS: Final = 256
"""Of PostgreSQL: two megabytes, some thousand records, about two milliseconds where nothing is due."""

TURNS_OF_BLOCKS: Final = 3
"""Of PostgreSQL: so often a round comes by each block, and each time every third record is looked at. A tombstone finds
room beside what it replaces only if few others are made there at once, and then no index has to hear of it: with one
turn a quarter of them do, with two three quarters, with three nine tenths."""

STRIDE_ROWS: Final = 4096
"""Of SQLite, whose rows are numbered: as many records as above."""


class Stride(NamedTuple):
    """A part of the table, and which of its records have their turn."""

    first: int
    end: int
    turn: int
    turns: int


class ClockHand:
    """The first place that was not swept yet in this round. A place is a block of the table, or the number of a row.

    With several turns there is a place for each, and they take strides one after the other. A table that is a single
    stride long has one turn.
    """

    def __init__(self, stride: int, *, turns: int = 1) -> None:
        self._stride = stride
        self._most_turns = turns
        self._turns = 1
        self._places = {0: 0}
        """Where each turn goes on, the one that is next before all others; those whose round is over are gone."""

    @property
    def is_at_start(self) -> bool:
        """Whether a round begins."""
        return len(self._places) == self._turns and not any(self._places.values())

    def next_stride(self, first_place: int = 0) -> Stride:
        """Return the next stride, in a table that begins at this place."""
        turn, place = next(iter(self._places.items()))
        begin = max(place, first_place)
        return Stride(begin, begin + self._stride, turn, self._turns)

    def stopped(self, place: int, places: int) -> None:
        """Go on from here, because the stride found all that it may take at once."""
        self._go_on(place, places)

    def passed(self, end: int, places: int) -> bool:
        """Go on from the stride's end; tell whether that was the end of the table, and with it of the round."""
        if end < places:
            self._go_on(end, places)
            return False
        del self._places[next(iter(self._places))]
        if self._places:
            return False
        self._begin(self._turns_for(places), 0)
        return True

    def strides(self, places: int) -> int:
        """Return how many strides a round over so many places takes."""
        return max(1, -(-places // self._stride)) * self._turns_for(places)

    def _go_on(self, place: int, places: int) -> None:
        turn = next(iter(self._places))
        del self._places[turn]
        self._places[turn] = place
        if self._turns < (turns := self._turns_for(places)):
            self._begin(turns, place)  # Up to here nobody's turn is left.

    def _begin(self, turns: int, place: int) -> None:
        self._turns = turns
        self._places = dict.fromkeys(range(turns), place)

    def _turns_for(self, places: int) -> int:
        return self._most_turns if places > self._stride else 1
