"""One flow on one connection, whatever the driver.

A store's flow asks for queries and transactions; a conversation turns them into texts for the server, reads what went
wrong, and knows in the end whether the connection may be used again. It is a flow itself, so it is written once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any, Protocol, TypeVar

from nebis.errors import MisuseError
from nebis.flow import Ask, Flow, go_on
from nebis.ports.store import DefiniteFailure, IndefiniteFailure, RowLocked, Spoilt
from nebis.stores.sql.asks import Begin, Columns, Commit, Query, Rollback, Row, Statement
from nebis.stores.sql.postgres.failures import (
    Stage,
    Trouble,
    Unreachable,
    is_lost_replication,
    judge,
    leaves_connection_usable,
)
from nebis.stores.sql.postgres.settings import Settings
from nebis.stores.sql.statements import lone, sharing

T = TypeVar("T")


@dataclass(slots=True)
class Execute(Ask[list[Row]]):
    """Send one statement and return its rows as plain tuples."""

    statement: Statement
    values: Mapping[str, object] = field(default_factory=dict)
    arrays: frozenset[str] = frozenset()
    """Names whose value is a list with one element per member."""
    is_brief: bool = False
    """Whether it is a transaction of its own and gives up rather than wait, so that others may be sent behind it."""


@dataclass(frozen=True, slots=True)
class Control(Ask[str]):
    """Send a text that controls the transaction and return the server's command tag."""

    text: str


class Conversation:
    """What was said on one connection on behalf of one flow."""

    def __init__(self, *, opening: str, wraps_statements: bool, describe: Callable[[Exception], Trouble]) -> None:
        """Start with nothing said.

        `opening` begins a transaction. With `wraps_statements` it also carries settings that hold for that transaction
        only, so a lone statement gets a transaction of its own.
        """
        self._opening = opening
        self._wraps_statements = wraps_statements
        self._describe = describe
        self._is_inside = False
        self._is_unreplicated = False
        self.is_spoilt = False
        """Whether the connection may be in the middle of something; then it is never used again (F023)."""

    def hear(self, *, severity: str | None, sqlstate: str | None) -> None:
        """Take note of what the server says unasked."""
        if is_lost_replication(severity=severity, sqlstate=sqlstate):
            self._is_unreplicated = True

    def hold(self, flow: Flow[T]) -> Flow[T]:
        """Answer all that a flow asks. A transaction that it leaves open is rolled back."""
        try:
            value = yield from self._relay(flow)
        except BaseException:
            yield from self._undo()
            raise
        if self._is_inside:
            yield from self._undo()
            raise MisuseError("A store flow ended inside its transaction; let it ask for Commit or Rollback.")
        return value

    def _relay(self, flow: Flow[T]) -> Flow[T]:
        is_over, asked = go_on(flow)
        while not is_over:
            try:
                answer = yield from self._answer(asked)
            except BaseException as error:  # noqa: BLE001 - the flow decides; what it does not catch goes on.
                is_over, asked = go_on(flow, error=error)
            else:
                is_over, asked = go_on(flow, answer)
        value: T = asked
        return value

    def _answer(self, ask: Ask[Any]) -> Flow[Any]:
        match ask:
            case Query() if ask.alone is not None and not self._is_inside:
                return self._query_alone(ask, ask.alone)
            case Query() if self._is_inside or not self._wraps_statements:
                return self._query(ask)
            case Query():
                return self._query_in_transaction(ask)
            case Begin():
                return self._begin()
            case Commit():
                return self._commit()
            case Rollback():
                return self._undo()
            case _:
                raise MisuseError(f"{type(ask).__name__} is not something that a SQL connection can do.")

    def _query(self, query: Query, statement: Statement | None = None) -> Flow[list[Row]]:
        stage = Stage.INSIDE if self._is_inside else Stage.ALONE
        ask = executing(statement or query.statement, query)
        # A lone verb stays where the one before it was: the server answers faster from one process than from two.
        ask.is_brief = statement is not None and stage is Stage.ALONE and len(query.members or ()) > 1
        rows = yield from self._say(ask, stage)
        if stage is Stage.ALONE:
            self._require_replication()
        return rows

    def _query_alone(self, query: Query, alone: Statement) -> Flow[list[Row]]:
        ask = self._query_in_transaction if self._wraps_statements else self._query
        try:
            return (yield from ask(query, alone))
        except (RowLocked, Spoilt):
            # Refused and rolled back, so that nothing of it stays. Whether a row is to blame, or only a twin that came
            # first, the general statement tells.
            return (yield from ask(query))

    def _query_in_transaction(self, query: Query, statement: Statement | None = None) -> Flow[list[Row]]:
        yield from self._begin()
        try:
            rows = yield from self._query(query, statement)
        except DefiniteFailure:
            yield from self._undo()
            raise
        yield from self._commit()
        return rows

    def _begin(self) -> Flow[None]:
        if self._is_inside:
            raise MisuseError("A transaction is open already; ask for Commit or Rollback before the next Begin.")
        yield from self._say(Control(self._opening), Stage.INSIDE)
        self._is_inside = True

    def _commit(self) -> Flow[None]:
        if not self._is_inside:
            raise MisuseError("There is no transaction to commit; ask for Begin first.")
        # Either way it is over: after a refusal the server has rolled back, after anything else nobody asks again.
        self._is_inside = False
        tag = yield from self._say(Control("COMMIT"), Stage.COMMITTING)
        if tag == "ROLLBACK":  # The answer of a server to which a statement of this transaction had failed.
            raise DefiniteFailure("the transaction had failed before and was rolled back")
        self._require_replication()

    def _undo(self) -> Flow[None]:
        was_inside, self._is_inside = self._is_inside, False
        if self.is_spoilt or not was_inside:
            return
        try:
            yield from self._say(Control("ROLLBACK"), Stage.INSIDE)
        except DefiniteFailure:  # Without a COMMIT nothing stays, whether or not the server heard this.
            self.is_spoilt = True

    def _say(self, ask: Ask[T], stage: Stage) -> Flow[T]:
        if self.is_spoilt:
            raise IndefiniteFailure("the connection was given up after an earlier failure")
        self._is_unreplicated = False
        try:
            answer: T = yield ask
        except Unreachable:  # There is no connection on which anything could have been said.
            raise
        except Exception as error:  # noqa: BLE001 - a driver may raise anything; what nobody classified is indefinite.
            trouble = self._describe(error)
            self.is_spoilt = not leaves_connection_usable(trouble)
            # Not chained: the driver's own text may quote a row.
            raise judge(trouble, stage) from None
        except BaseException:
            # Cancelled or interrupted: an answer may still be on its way, and must not reach the next user (F023).
            self.is_spoilt = True
            raise
        return answer

    def _require_replication(self) -> None:
        if self._is_unreplicated:
            self.is_spoilt = True
            raise IndefiniteFailure("the server stopped waiting for its synchronous standby; a failover may lose this")


class Describer(Protocol):
    """A driver, as far as a conversation needs it."""

    def describe(self, error: Exception) -> Trouble:
        """Describe what was raised while an ask was being performed."""
        ...


def conversations(driver: Describer, settings: Settings, *, is_pinned: bool) -> Callable[[], Conversation]:
    """Return what starts one on a connection that holds our settings, or on one that needs them each time."""
    opening = settings.opening(is_pinned=is_pinned)
    return partial(Conversation, opening=opening, wraps_statements=not is_pinned, describe=driver.describe)


def executing(statement: Statement, query: Query) -> Execute:
    """Say a statement with the values of a query, which may be another one's."""
    shared, members = query.shared, query.members
    if members is None:
        return Execute(statement, shared)
    names, alone = _plural(statement, tuple(shared))
    if alone is not None and len(members) == 1:
        return Execute(alone, {**shared, **members[0]})
    if not isinstance(members, Columns):
        return Execute(statement, {**shared, **{name: [member[name] for member in members] for name in names}}, names)
    if members.alike:
        statement = sharing(statement, frozenset(members.alike))
        names = names.difference(members.alike)
    return Execute(statement, {**shared, **members.by_name, **members.alike}, names)


@cache
def _plural(statement: Statement, shared: tuple[str, ...]) -> tuple[frozenset[str], Statement | None]:
    """Return what each member of a statement brings, and the statement for a single one, if there is such a form."""
    names = frozenset(statement.parameters).difference(shared)
    return names, lone(statement, names)
