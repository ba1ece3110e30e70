"""What a SQL store asks of a connection.

A query is not frozen, for the reason that the asks of `ports.asks` have.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar, overload

from nebis.flow import Ask, Flow
from nebis.ports.store import StoreFailure

T = TypeVar("T")

Row: TypeAlias = tuple[Any, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Statement:
    """One named SQL text with `:name` parameters, in the dialect of its file.

    Each is made once and then known by what it is, not by what it says: caches would compare five texts otherwise.
    """

    name: str
    text: str
    parameters: tuple[str, ...]
    """In order of first appearance, for drivers that bind by position."""
    positional: str
    """What is sent: the same with `$1`, `$2` ... instead of names, and with several arrays unnested in step."""
    pyformat: str
    """The same with `%(name)s` instead of `$1`, and every other percent sign doubled."""


Member: TypeAlias = Mapping[str, object]
NOTHING_ALIKE: Final[Mapping[str, object]] = {}


class Columns(Sequence[Member]):
    """The members of a plural statement, kept as columns: whoever binds columns needs no dictionary for each member."""

    __slots__ = ("alike", "by_name")

    def __init__(self, by_name: dict[str, list[Any]], alike: Mapping[str, object] = NOTHING_ALIKE) -> None:
        """Take one list for each name. All are of the same length, but for a statement that is about two things.

        A column whose values are all the same may be given as that one value, in `alike`.
        """
        self.by_name = by_name
        self.alike = alike

    def __len__(self) -> int:
        """Count the members."""
        return max(map(len, self.by_name.values()))

    def __iter__(self) -> Iterator[Member]:
        """Give the members one by one, for whoever binds them so."""
        names, alike = tuple(self.by_name), self.alike
        return (dict(zip(names, values, strict=True), **alike) for values in zip(*self.by_name.values(), strict=True))

    @overload
    def __getitem__(self, place: int) -> Member: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[Member]: ...

    def __getitem__(self, place: int | slice) -> Member | Sequence[Member]:
        """Return the member at this place."""
        if isinstance(place, slice):
            return Columns({name: column[place] for name, column in self.by_name.items()}, self.alike)
        return {**self.alike, **{name: column[place] for name, column in self.by_name.items()}}


@dataclass(slots=True)
class Query(Ask[list[Row]]):
    """Run one statement and return its rows.

    With `members`, the statement is plural: on Postgres each member column is bound as one array, on SQLite it runs for
    as many members at a time as it has room for; either way the rows of all members come back together.
    """

    statement: Statement
    shared: Mapping[str, object] = field(default_factory=dict)
    members: Sequence[Member] | None = None
    alone: Statement | None = None
    """What does the same for less where it is a transaction of its own. A lock may be in its way, or a key that begins
    elsewhere in the same moment; then nothing of it stays, and `statement` goes around either. A connection that knows
    no such rivals need not look at it."""


class Written(NamedTuple):
    """What is known of a write that was done for all its members at once."""

    number: int
    """How many rows it changed."""
    last_row: int
    """The number of the row that was inserted last, if any was."""
    now: int
    """When it was, on the database's clock."""


@dataclass(frozen=True, slots=True)
class Write(Ask[Written]):
    """Run a plural write for all its members at once.

    Outside of a transaction it is one of its own: all of it is durable once it is answered, or nothing ever happened.
    """

    statement: Statement
    now: int | None
    """As the statement's parameter of that name; without it the connection looks at the database's clock."""
    members: Columns


@dataclass(frozen=True, slots=True)
class Begin(Ask[None]):
    """Start a transaction; without it each statement is one of its own. On SQLite it takes the write lock."""


@dataclass(frozen=True, slots=True)
class Commit(Ask[None]):
    """Commit. Anything but a server's definite refusal is indefinite."""


@dataclass(frozen=True, slots=True)
class Rollback(Ask[None]):
    """Undo the transaction."""


def in_transaction(work: Flow[T]) -> Flow[T]:
    """Do the work in one transaction. What fails in it is undone, what fails in the commit is told as it is."""
    yield from Begin()
    try:
        result = yield from work
    except Exception:
        # A connection that cannot even roll back is thrown away by its session; the first failure is the one to tell.
        with suppress(StoreFailure):
            yield from Rollback()
        raise
    yield from Commit()
    return result
