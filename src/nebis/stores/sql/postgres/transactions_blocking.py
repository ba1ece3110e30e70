"""Transactions of the application for threads."""

from __future__ import annotations

from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from nebis.flow import Ask, Flow, drive
from nebis.ports.store import BlockingSessions
from nebis.stores.sql.postgres.blocking_sessions import BlockingDriver, BlockingSource
from nebis.stores.sql.postgres.settings import Settings
from nebis.stores.sql.postgres.transactions import TransactionTalk
from nebis.stores.sql.postgres.transactions_asks import Elsewhere
from nebis.stores.sql.postgres.transactions_home import Home

T = TypeVar("T")
C = TypeVar("C")


class BlockingTransactionDriver(BlockingDriver[C], Protocol[C]):
    """What a transaction needs of a driver besides; `perform` also knows `Start`, `Finish` and `Undo`."""

    def is_open(self, connection: C) -> bool:
        """Say whether the application has begun a transaction; raise `MisuseError` if we could not commit it."""
        ...


class Place(Protocol[C]):
    """Where a transaction's connection comes from and goes to."""

    is_ours: bool

    def take(self) -> C:
        """Return a connection that nobody else uses."""
        ...

    def give_back(self, connection: C, *, is_spoilt: bool) -> None:
        """Let go of it; a spoilt one is never used again."""
        ...


class OwnPlace(Generic[C]):
    """A connection of ours, or of the pool that the application gave us."""

    is_ours = True

    def __init__(self, source: BlockingSource[C]) -> None:
        self.take = source.take
        self.give_back = source.give_back


class JoinedPlace(Generic[C]):
    """The application's own connection, which stays open unless nobody can tell what it is in the middle of."""

    is_ours = False

    def __init__(self, connection: C, driver: BlockingDriver[C]) -> None:
        self._connection = connection
        self._driver = driver

    def take(self) -> C:
        """Return the connection."""
        return self._connection

    def give_back(self, connection: C, *, is_spoilt: bool) -> None:
        """Leave it to the application."""
        if is_spoilt:
            self._driver.discard(connection)


class Belongings(NamedTuple):
    """What every transaction of one store shares."""

    home: Home
    settings: Settings
    sessions: BlockingSessions


class PostgresTransaction(Generic[C]):
    """One transaction on one connection: ours, or the application's own."""

    def __init__(self, shared: Belongings, driver: BlockingTransactionDriver[C], place: Place[C]) -> None:
        self._shared = shared
        self._driver = driver
        self._place = place
        self._taken: tuple[C, TransactionTalk, Any] | None = None

    @property
    def connection(self) -> Any:
        """Return what the application writes its own rows with."""
        return self._open()[0]

    def begin(self) -> None:
        """Start it; raise `MisuseError` for a connection that is already inside one that we could not commit."""
        home, settings, _ = self._shared
        connection = self._place.take()
        try:
            is_open = self._driver.is_open(connection)
        except BaseException:
            self._place.give_back(connection, is_spoilt=False)
            raise
        is_ours = self._place.is_ours
        talk = TransactionTalk(home, settings, self._driver.describe, is_ours=is_ours, is_open=is_open)
        self._taken = (connection, talk, self._driver.listen_to_warnings(connection, talk))
        try:
            self._drive(talk.begin())
        except BaseException:
            self._end()
            raise

    def run(self, flow: Flow[T]) -> T:
        """Perform a store flow inside it."""
        return self._drive(self._talk.hold(flow))

    def settle(self, flow: Flow[T]) -> T | None:
        """Perform the last store flow inside it, or return None if somebody else ended it."""
        return self._drive(self._talk.settle(flow))

    def is_same(self) -> bool:
        """Tell whether the transaction that `begin` started is still the current one."""
        return self._drive(self._talk.is_same())

    def commit(self) -> None:
        """Commit, and let the connection go either way."""
        try:
            self._drive(self._talk.commit())
        finally:
            self._end()

    def rollback(self) -> None:
        """Undo everything; never raises."""
        if self._taken is None:
            return
        try:
            self._drive(self._talk.roll_back())
        finally:
            self._end()

    def _drive(self, flow: Flow[T]) -> T:
        return drive(flow, self._perform)

    def _perform(self, ask: Ask[Any]) -> Any:
        if isinstance(ask, Elsewhere):
            return self._shared.sessions.run(iter(ask.query))
        return self._driver.perform(self.connection, ask)

    @property
    def _talk(self) -> TransactionTalk:
        return self._open()[1]

    def _open(self) -> tuple[C, TransactionTalk, Any]:
        assert self._taken is not None, "The transaction has not begun, or is over."
        return self._taken

    def _end(self) -> None:
        connection, talk, listening = self._open()
        self._taken = None
        self._driver.stop_listening(connection, listening)
        self._place.give_back(connection, is_spoilt=talk.is_spoilt)
