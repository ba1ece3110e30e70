"""Plural statements: for many members at once where their text has a list of rows, everything else one by one.

To write one row at a time says of each whether it was written; a list is written from a copy, and afterwards only their
number is known. But it is a single step, in which SQLite needs no interpreter. A read outside of a transaction takes
locks each time, so that all of a list share them.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain, repeat
from sqlite3 import Cursor
from typing import Any, Final, TypeAlias
from uuid import UUID

from nebis.flow import Ask
from nebis.stores.sql.asks import NOTHING_ALIKE, Columns, Query, Row, Statement, Write, Written

Execute: TypeAlias = Callable[[str, Sequence[Any]], Cursor]
"""Runs a text with the values for its numbers."""
Fetch: TypeAlias = Callable[[str, Sequence[Any]], list[Row]]
"""Does the same and returns all rows."""

WIDTHS: Final = (1, 8, 32, 64)
"""How many rows the list of a text has. A list that is too long is filled up with rows of nothing: no member is without
an identity, so every statement passes over them."""

WIDTHS_OF_WRITES: Final = (8, 16, 24, 32, 48, 64, 96, 128, 192, 256)
"""The same for writes, which are never cut in two. Few rows of nothing matter more there than few texts."""

_POSITION: Final = "position"
"""A member's place among all, from 1 on, where the members do not bring it."""
_LAST_FENCE: Final = "last_fence"
"""The highest fence so far, where all members are given theirs at once."""

_LONG = ("outcome", "command")

_NOTHING: Final = 0
"""Stands for NULL where a text has NULLIF(:name, 0). Whatever is neither a number, text nor a bytearray the driver asks
how it wants to be written, and makes and drops an exception on learning that it does not say: six times the price of
the value itself."""
_AS_THEY_ARE: Final = frozenset({int, str})
_BYTES: Final = {bytes}
_IDS: Final = {UUID}
_NONE: Final = {type(None)}

_PARAMETER = re.compile(r"""'(?:[^']|'')*'|"[^"]*"|\$(\d+)""")
"""How another database counts parameters, outside of quotes; to SQLite that would be a name."""
_LIST = re.compile(r"WITH member \([^()]*\) AS \(\s*VALUES \((?P<row>[^()]*)\)\s*\)")
_RETURNING = re.compile(r"\sRETURNING\s.*\Z", re.DOTALL)
_WRITE = re.compile(r"\s*(?:INSERT|UPDATE|DELETE)\b")
_MAY_BE_NOTHING = re.compile(rf"NULLIF\(\W?(?:\w+\.)?(\w+), {_NOTHING}\)")

_CLOCK: Final = "CAST((julianday('now') - 2440587.5) * 86400000000.0 AS INTEGER)"
_FENCES: Final = "(SELECT last FROM nebis_fence)"
_NOW = f"SELECT {_CLOCK}"
_NOW_AND_LAST_FENCE = f"{_NOW}, {_FENCES}"
_LOOKED_UP = re.compile(rf"COALESCE\((\?\d+), (?:{re.escape(_CLOCK)}|{re.escape(_FENCES)})\)")
"""What a statement looks up unless it is told. SQLite looks at the clock all the same, once for every mention."""


def run_plural(query: Query, execute: Execute, fetch: Fetch) -> list[Row]:
    """Run a statement for its members and return what all were told, or the identities of those that it changed."""
    assert query.members is not None, "Without members a statement is not plural."
    if not query.members:
        return []
    if len(query.members) == 1:
        return _run_alone(query.statement, query.shared, query.members[0], execute, fetch)
    members = _Members(query.members)
    many = _wide(query.statement)
    if many is not None:
        shared = _at_one_instant(query.shared, fetch)
        return [row for part in _parts(many.rows(members)) for row in fetch(*many.bound(shared, part))]
    one = _narrow(query.statement)
    if _LAST_FENCE in one.names:
        return _claimed(one, query.shared, members, execute, fetch)
    shared = _at_one_instant(query.shared, fetch)
    if one.returns:
        return [row for values in one.rows(shared, members) for row in fetch(one.text, values)]
    return [(identity,) for identity in one.changed(shared, members, execute)]


@dataclass(frozen=True, slots=True)
class BoundWrite(Ask[Written]):
    """A write for all its members at once, with all that has to be done for it before there is a connection."""

    text: str
    values: Sequence[Any]
    now: int


def bound_write(write: Write) -> BoundWrite:
    """Bind a write to its members, and to the time."""
    now = _clock() if write.now is None else write.now
    members = _Members(write.members)
    many = _wide(write.statement, frozenset(members.alike))
    assert many is not None, "Only a list of rows is written at once."
    text, values = many.written({"now": now, **members.alike}, members)
    return BoundWrite(text, values, now)


def _clock() -> int:
    """Return the time as SQLite itself does, as finely: it is the clock of this machine."""
    return time.time_ns() // 1_000_000 * 1_000  # noqa: TID251 - the database's own clock, which nobody else asks.


def _run_alone(
    statement: Statement, shared: Mapping[str, object], member: Mapping[str, Any], execute: Execute, fetch: Fetch
) -> list[Row]:
    """Do the same for a single member, without a column for each of its values."""
    many = _wide(statement)
    if many is not None:
        return fetch(*many.bound(shared, [many.row(member)]))
    one = _narrow(statement)
    values = one.row(shared, member)
    if one.returns:
        return fetch(one.text, values)
    return [(member.get("identity"),)] if execute(one.text, values).rowcount > 0 else []


def bytes_of(members: Sequence[Mapping[str, object]]) -> int:
    """Return about how much the members write: outcomes and commands are what can be long."""
    columns: Mapping[str, Sequence[Any]]
    if isinstance(members, Columns):
        columns = members.by_name
    else:
        columns = {name: [member.get(name) for member in members] for name in _LONG}
    return sum(len(value) for name in _LONG for value in columns.get(name, ()) if value)


def _claimed(
    one: _Narrow, shared: Mapping[str, object], members: _Members, execute: Execute, fetch: Fetch
) -> list[Row]:
    """Insert each. Which fence and time it would get is known before, so that none has to be told."""
    [(now, last_fence)] = fetch(_NOW_AND_LAST_FENCE, ())
    if shared["now"] is not None:
        now = shared["now"]
    fences = dict(zip(members.column("identity"), range(last_fence + 1, last_fence + 1 + members.number), strict=True))
    inserted = one.changed({**shared, "now": now, _LAST_FENCE: last_fence}, members, execute)
    return [(identity, fences[identity], now) for identity in inserted]


def _at_one_instant(shared: Mapping[str, object], fetch: Fetch) -> Mapping[str, object]:
    """Look at the clock once for all members: it is the same clock that each of their statements would ask."""
    if "now" not in shared or shared["now"] is not None:
        return shared
    [(now,)] = fetch(_NOW, ())
    return {**shared, "now": now}


def _parts(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    widest = WIDTHS[-1]
    return (rows[begin : begin + widest] for begin in range(0, len(rows), widest))


class _Members:
    """The members by column, whether they came as columns or as dictionaries."""

    def __init__(self, members: Sequence[Mapping[str, object]]) -> None:
        self.number = len(members)
        self.alike: Mapping[str, object]
        """What is the same for all, and in no column."""
        self._by_name: Mapping[str, Sequence[Any]]
        if isinstance(members, Columns):
            self.alike, self._by_name = members.alike, members.by_name
        else:
            self.alike = NOTHING_ALIKE
            self._by_name = {name: [member[name] for member in members] for name in members[0]}

    def __contains__(self, name: str) -> bool:
        return name == _POSITION or name in self._by_name

    def column(self, name: str) -> Sequence[Any]:
        """Return a column; where it is not there, the places, or nothing for each."""
        found = self._by_name.get(name)
        if found is not None:
            return found
        return range(1, self.number + 1) if name == _POSITION else [None] * self.number


def _column(values: Sequence[Any], *, may_be_nothing: bool) -> Iterable[Any]:
    """Return a column as the driver takes it without asking."""
    kinds = set(map(type, values))
    if kinds <= _AS_THEY_ARE:
        return values
    if kinds == _BYTES:
        return map(bytearray, values)
    if kinds == _IDS:
        return [bytearray(value.bytes) for value in values]
    nothing = _NOTHING if may_be_nothing else None
    if kinds == _NONE:
        return repeat(nothing, len(values))
    return [nothing if value is None else _quick(value) for value in values]


def _quick(value: Any) -> Any:
    if isinstance(value, UUID):
        value = value.bytes
    return bytearray(value) if type(value) is bytes else value


def _alone(name: str, shared: Mapping[str, object]) -> object:
    """Return what a single member does not bring itself."""
    return 1 if name == _POSITION else shared.get(name)


@cache
def _narrow(statement: Statement) -> _Narrow:
    return _Narrow(statement)


class _Narrow:
    """One statement for one member at a time, with numbers for names: the driver looks up no names."""

    def __init__(self, statement: Statement) -> None:
        self.names = statement.parameters
        self.text = _PARAMETER.sub(lambda found: f"?{found[1]}" if found[1] else found[0], statement.positional)
        silent = _RETURNING.sub("", self.text)
        self.returns = silent != self.text or not _WRITE.match(self.text)
        self.brief = _LOOKED_UP.sub(r"\1", silent)
        """The same text for whoever knows already what it would look up, and what it would return."""
        self._may_be_nothing = frozenset(_MAY_BE_NOTHING.findall(statement.text))

    def rows(self, shared: Mapping[str, object], members: _Members) -> Iterator[Row]:
        """Return the values for the numbers, for one member after the other."""
        same = {**shared, **members.alike}
        columns = [
            _column(members.column(name), may_be_nothing=name in self._may_be_nothing)
            if name in members
            else repeat(self._value(name, same.get(name)), members.number)
            for name in self.names
        ]
        return zip(*columns, strict=True)

    def row(self, shared: Mapping[str, object], member: Mapping[str, object]) -> list[Any]:
        """Return the values for the numbers, for a single member."""
        values = [member[name] if name in member else _alone(name, shared) for name in self.names]
        return list(map(self._value, self.names, values))

    def _value(self, name: str, value: Any) -> Any:
        return _NOTHING if value is None and name in self._may_be_nothing else _quick(value)

    def changed(self, shared: Mapping[str, object], members: _Members, execute: Execute) -> list[Any]:
        """Run the statement for each, and return the identities of those for whom it changed something."""
        rows = zip(members.column("identity"), self.rows(shared, members), strict=True)
        return [identity for identity, values in rows if execute(self.brief, values).rowcount > 0]


@cache
def _wide(statement: Statement, alike: frozenset[str] = frozenset()) -> _Wide | None:
    """Return the statement as one that takes many members at once; None if it takes them one by one."""
    found = _LIST.search(statement.positional)
    return None if found is None else _Wide(statement, found, alike)


class _Wide:
    """One statement around a list of rows, and its texts by the length of the list."""

    def __init__(self, statement: Statement, found: re.Match[str], alike: frozenset[str]) -> None:
        begin, end = found.span("row")
        before, after = statement.positional[:begin], statement.positional[end:]
        outside = dict.fromkeys(_named(statement, before + after))
        row = _named(statement, found["row"])
        self._row = row
        self._columns = tuple(name for name in row if name not in alike)
        """What each member brings; the rest stands once in the text, and in every row of the list."""
        self._shared = (*outside, *(name for name in row if name in alike))
        numbers = {name: number for number, name in enumerate(self._shared, start=1)}
        self._numbers = numbers
        self._before, self._after = _renumbered(statement, before, numbers), _renumbered(statement, after, numbers)
        self._texts: dict[int, str] = {}
        self._may_be_nothing = frozenset(_MAY_BE_NOTHING.findall(statement.text))

    def _text(self, width: int) -> str:
        if width not in self._texts:
            # The first parenthesis and the last are in the texts around.
            rows = "), (".join(self._listed(place) for place in range(width))
            self._texts[width] = f"{self._before}{rows}{self._after}"
        return self._texts[width]

    def _listed(self, place: int) -> str:
        first = len(self._shared) + place * len(self._columns) + 1
        numbers = {**self._numbers, **{name: first + column for column, name in enumerate(self._columns)}}
        return ", ".join(f"?{numbers[name]}" for name in self._row)

    def rows(self, members: _Members) -> list[Row]:
        """Return what the list wants to know of each member."""
        columns = [_column(members.column(name), may_be_nothing=name in self._may_be_nothing) for name in self._columns]
        return list(zip(*columns, strict=True))

    def row(self, member: Mapping[str, object]) -> Row:
        """Return the same of a single one."""
        return tuple([_quick(member[name] if name in member else _alone(name, {})) for name in self._columns])

    def bound(self, shared: Mapping[str, object], part: Sequence[Row]) -> tuple[str, list[Any]]:
        """Return the text for so many members, and the values for its numbers."""
        return self._bound(WIDTHS, [shared.get(name) for name in self._shared], part)

    def written(self, shared: Mapping[str, object], members: _Members) -> tuple[str, list[Any]]:
        """Return the same for all members of a write."""
        values = [self._value(name, shared.get(name)) for name in self._shared]
        return self._bound(WIDTHS_OF_WRITES, values, self.rows(members))

    def _value(self, name: str, value: Any) -> Any:
        return _NOTHING if value is None and name in self._may_be_nothing else _quick(value)

    def _bound(self, widths: Sequence[int], shared: list[Any], rows: Sequence[Row]) -> tuple[str, list[Any]]:
        width = next(width for width in widths if width >= len(rows))
        values = list(chain(shared, *rows))
        return self._text(width), values + [None] * (len(self._columns) * (width - len(rows)))


def _named(statement: Statement, text: str) -> list[str]:
    return [statement.parameters[int(number) - 1] for number in _PARAMETER.findall(text) if number]


def _renumbered(statement: Statement, text: str, numbers: Mapping[str, int]) -> str:
    def named(found: re.Match[str]) -> str:
        return f"?{numbers[statement.parameters[int(found[1]) - 1]]}" if found[1] else found[0]

    return _PARAMETER.sub(named, text)
