"""Plural statements: for many members at once where their text has a list of rows, one by one where it has not."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import chain, pairwise, starmap
from typing import Any, Final, TypeAlias
from uuid import UUID

from nebis.stores.sql.asks import Query, Row, Statement

Run: TypeAlias = Callable[[str, Sequence[Any]], tuple[list[Row], int]]
"""Runs a text with the values for its numbers, and returns its rows and how many it has changed."""
Values: TypeAlias = tuple[Any, ...]
"""What a statement wants to know of one member, in the order of its columns."""

WIDTHS: Final = (1, 8, 32)
"""How many rows the list of a text has. A list that is too long is filled up with rows of nothing: no member is without
an identity, so every statement passes over them."""

_POSITION: Final = "position"
"""The column with a member's place among all, from 1 on, where the members do not bring it."""
_LAST_FENCE: Final = "last_fence"
"""The highest fence so far, where all members are given theirs at once."""

_LONG = ("outcome", "command")

_NOTHING: Final = 0
"""Stands for NULL in a list, where there is text or bytes otherwise. Whatever is neither a number, text nor a bytearray
the driver asks how it wants to be written, and makes and drops an exception on learning that it does not say: ten times
the price of the value itself."""
_MAY_BE_NOTHING: Final = frozenset({"identity", "command", "resource_type", "resource_id"})
_AS_THEY_ARE: Final = frozenset({int, str})
_BYTES: Final = {bytes}

_PARAMETER = re.compile(r"""'(?:[^']|'')*'|"[^"]*"|\$(\d+)""")
"""How another database counts parameters, outside of quotes; to SQLite that would be a name."""
_LIST = re.compile(r"WITH member \([^()]*\) AS \(\s*VALUES \((?P<row>[^()]*)\)\s*\)")
_RETURNING = re.compile(r"\sRETURNING\s.*\Z", re.DOTALL)

_NOW = "SELECT CAST((julianday('now') - 2440587.5) * 86400000000.0 AS INTEGER)"
"""The fragment `now` of the statements."""
_NOW_AND_LAST_FENCE = _NOW + ", last FROM nebis_fence"
_HAS_FENCE = "SELECT 1 FROM nebis_record WHERE identity = ?1 AND fence = ?2"
_ATTEMPT = "nebis_members"
"""A savepoint around a statement that may turn out to have changed too few."""


def run_plural(query: Query, run: Run, *, is_locked: bool) -> list[Row]:
    """Run a statement for its members; `is_locked` if nobody else can write until the surrounding transaction ends."""
    assert query.members is not None, "Without members a statement is not plural."
    many = _wide(query.statement)
    if many is None:
        return _one_by_one(query, query.members, run)
    members = many.rows(query.members)
    if many.is_read:
        shared = _at_one_instant(query.shared, members, run)
        return [row for part in _parts(members) for row in run(*many.bound(many.text, shared, part))[0]]
    if len(members) == 1 or not is_locked:
        return many.each(_at_one_instant(query.shared, members, run), members, run)
    if _LAST_FENCE in many.shared:
        return _claimed(many, query.shared, members, run)
    return _changed(many, _at_one_instant(query.shared, members, run), members, run)


def bytes_of(members: Sequence[Mapping[str, object]]) -> int:
    """Return about how much the members write: outcomes and commands are what can be long."""
    columns: Mapping[str, Sequence[Any]] | None = getattr(members, "by_name", None)
    if columns is None:
        columns = {name: [member.get(name) for member in members] for name in _LONG}
    return sum(len(value) for name in _LONG for value in columns.get(name, ()) if value)


def _claimed(many: _Wide, shared: Mapping[str, object], members: Sequence[Values], run: Run) -> list[Row]:
    """Insert all at once. Who was inserted is known by its fence: it is newer than any that there was before."""
    [(now, last_fence)], _ = run(_NOW_AND_LAST_FENCE, ())
    if shared["now"] is not None:
        now = shared["now"]
    shared = {**shared, "now": now, _LAST_FENCE: last_fence}
    claimed: list[Row] = []
    for part in _parts(members):
        _, inserted = run(*many.bound(many.counted, shared, part))
        rows = [(member[many.identity], last_fence + member[many.position], now) for member in part]
        claimed += rows if inserted == len(rows) else [row for row in rows if run(_HAS_FENCE, row[:2])[0]]
    return claimed


def _changed(many: _Wide, shared: Mapping[str, object], members: Sequence[Values], run: Run) -> list[Row]:
    """Change all at once. If it was not all, nobody can say who it was: then each is asked for itself."""
    run(f"SAVEPOINT {_ATTEMPT}", ())
    changed = sum(run(*many.bound(many.counted, shared, part))[1] for part in _parts(members))
    if changed != len(members):
        run(f"ROLLBACK TO {_ATTEMPT}", ())
    run(f"RELEASE {_ATTEMPT}", ())
    if changed != len(members):
        return many.each(shared, members, run)
    return [(member[many.identity],) for member in members]


def _one_by_one(query: Query, members: Sequence[Mapping[str, object]], run: Run) -> list[Row]:
    text, names = _by_position(query.statement), query.statement.parameters
    shared = _at_one_instant(query.shared, members, run)
    rows: list[Row] = []
    for member in members:
        values = {**shared, **member}
        told, changed = run(text, _bindable([values[name] for name in names]))
        rows += told
        if not told and changed > 0:
            # Its count says what RETURNING identity would say, for less.
            rows.append((member.get("identity"),))
    return rows


def _at_one_instant(shared: Mapping[str, object], members: Sequence[object], run: Run) -> Mapping[str, object]:
    """Look at the clock once for all members: it is the same clock that each of their statements would ask."""
    if len(members) == 1 or "now" not in shared or shared["now"] is not None:
        return shared
    [(now,)], _ = run(_NOW, ())
    return {**shared, "now": now}


def _parts(members: Sequence[Values]) -> Iterator[Sequence[Values]]:
    widest = WIDTHS[-1]
    return (members[begin : begin + widest] for begin in range(0, len(members), widest))


def _bindable(values: Iterable[object]) -> list[Any]:
    return [value.bytes if isinstance(value, UUID) else value for value in values]


def _column(name: str, values: Sequence[Any]) -> Sequence[Any]:
    """Return a column of a list as the driver takes it without asking."""
    kinds = set(map(type, values))
    if kinds <= _AS_THEY_ARE:
        return values
    if kinds == _BYTES:
        return list(map(bytearray, values))
    nothing = _NOTHING if name in _MAY_BE_NOTHING else None
    return [nothing if value is None else _quick(value) for value in values]


def _quick(value: Any) -> Any:
    if isinstance(value, UUID):
        value = value.bytes
    return bytearray(value) if type(value) is bytes else value


@cache
def _by_position(statement: Statement) -> str:
    """Return the text with numbers for names: the driver looks up no names."""
    return _PARAMETER.sub(lambda found: f"?{found[1]}" if found[1] else found[0], statement.positional)


@cache
def _wide(statement: Statement) -> _Wide | None:
    """Return the statement as one that takes many members at once; None if it takes them one by one."""
    found = _LIST.search(statement.positional)
    if found is None:
        return None
    begin, end = found.span("row")
    before, row, after = statement.positional[:begin], statement.positional[begin:end], statement.positional[end:]
    outside = list(dict.fromkeys(number for number in _PARAMETER.findall(before + after) if number))
    return _Wide(
        before=_renumbered(before, outside),
        after=_renumbered(after, outside),
        shared=tuple(statement.parameters[int(number) - 1] for number in outside),
        columns=tuple(statement.parameters[int(number) - 1] for number in _PARAMETER.findall(row)),
    )


def _written(name: str, number: int) -> str:
    return f"NULLIF(?{number}, {_NOTHING})" if name in _MAY_BE_NOTHING else f"?{number}"


def _renumbered(text: str, numbers: Sequence[str]) -> str:
    return _PARAMETER.sub(lambda found: f"?{numbers.index(found[1]) + 1}" if found[1] else found[0], text)


class _Wide:
    """One statement around a list of rows, and its texts by the length of the list."""

    def __init__(self, *, before: str, after: str, shared: tuple[str, ...], columns: tuple[str, ...]) -> None:
        self.shared = shared
        self.columns = columns
        self.is_read = before.lstrip().startswith("SELECT")
        self.identity = columns.index("identity")
        self.position = columns.index(_POSITION) if _POSITION in columns else -1
        lists = {width: self._list(width) for width in WIDTHS}
        self.text = {width: f"{before}{rows}{after}" for width, rows in lists.items()}
        silent = _RETURNING.sub("", after)
        self.returns = silent != after
        self.counted = {width: f"{before}{rows}{silent}" for width, rows in lists.items()}
        """The same texts, but they return nothing: that would take a step, and a turn of the interpreter, per row."""

    def _list(self, width: int) -> str:
        # The first parenthesis and the last are in the texts around.
        ends = [len(self.shared) + place * len(self.columns) for place in range(width + 1)]
        rows = [zip(self.columns, range(begin + 1, end + 1), strict=True) for begin, end in pairwise(ends)]
        return "), (".join(", ".join(starmap(_written, row)) for row in rows)

    def rows(self, members: Sequence[Mapping[str, object]]) -> list[Values]:
        """Return what the list wants to know of each member, from dictionaries or from columns."""
        columns: Mapping[str, Sequence[object]] | None = getattr(members, "by_name", None)
        if columns is None:
            columns = {name: [member[name] for member in members] for name in self.columns if name in members[0]}
        places = range(1, len(members) + 1)
        return list(zip(*[_column(name, columns.get(name, places)) for name in self.columns], strict=True))

    def bound(
        self, texts: Mapping[int, str], shared: Mapping[str, object], part: Sequence[Values]
    ) -> tuple[str, list[Any]]:
        """Return the text for so many members, and the values for its numbers."""
        width = next(width for width in WIDTHS if width >= len(part))
        values = list(chain([shared.get(name) for name in self.shared], *part))
        return texts[width], values + [_NOTHING] * (len(self.columns) * (width - len(part)))

    def each(self, shared: Mapping[str, object], members: Sequence[Values], run: Run) -> list[Row]:
        """Run the statement for one member after the other."""
        rows: list[Row] = []
        for member in members:
            told, changed = run(*self.bound(self.text, shared, [member]))
            rows += told if self.returns else [(member[self.identity],)] * changed
        return rows
