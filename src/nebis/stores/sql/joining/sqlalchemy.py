"""Transactions that SQLAlchemy keeps, for a connection or a session."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from sqlalchemy import Connection, RootTransaction
from sqlalchemy.exc import DBAPIError, SQLAlchemyError, UnboundExecutionError
from sqlalchemy.orm import Session, SessionTransaction, SessionTransactionOrigin, scoped_session

from nebis.errors import MisuseError
from nebis.stores.sql.joining.keeper import AsyncHands, Hands, Standing

_MANAGED = (
    "The {kind} is already in a transaction that was begun for it, and Nebis could not commit it alone; leave the "
    "block ({block}), or commit or roll back, before you hand it in."
)
_NESTED = "The {kind} is inside a savepoint, and only a whole transaction can be committed; leave its block first."


class SqlalchemyLibrary:
    """A connection or session of SQLAlchemy for blocking code."""

    def __init__(self, target: object) -> None:
        self._target = target() if isinstance(target, scoped_session) else target

    def hands(self) -> Hands:
        """Return what blocking code uses it with."""
        match self._target:
            case Session():
                return Hands(SessionKeeper(self._target, self._target))
            case Connection():
                return Hands(ConnectionKeeper(self._target, self._target))
            case _:
                raise unknown(self._target, "Connection or Session")

    def async_hands(self) -> AsyncHands:
        """Refuse: it would block the loop."""
        raise MisuseError(f"{type(self._target).__name__} would block the event loop; hand in its asyncio twin.")


def unknown(target: object, wanted: str) -> MisuseError:
    """Say that something of SQLAlchemy has no transaction."""
    return MisuseError(f"{type(target).__name__} is no transaction of SQLAlchemy that can be joined; use a {wanted}.")


class ConnectionKeeper:
    """A connection, whose only transaction is ours: it was in none before."""

    def __init__(self, connection: Connection, handle: object) -> None:
        self.handle = handle
        self._connection = connection
        self._transaction: RootTransaction | None = None

    @property
    def dialect(self) -> str:
        """Return SQLAlchemy's name for the database."""
        return self._connection.dialect.name

    def is_open(self) -> bool:
        """Refuse an open transaction: whether it was begun for a block or by a first statement, nobody can tell."""
        if self._connection.in_nested_transaction():
            raise MisuseError(_NESTED.format(kind="connection"))
        if self._connection.in_transaction():
            raise MisuseError(_MANAGED.format(kind="connection", block="connection.begin() or engine.begin()"))
        return False

    def begin(self) -> Any:
        """Begin, and return the driver's own connection."""
        self._transaction = self._connection.begin()
        return driver_connection(self._connection)

    def lend(self) -> Any:
        """Return the driver's own connection, which a first statement puts into SQLAlchemy's transaction."""
        self.ask("SELECT 1")
        return driver_connection(self._connection)

    def ask(self, text: str) -> tuple[Any, ...]:
        """Send a statement without parameters and return its only row."""
        return tuple(self._connection.exec_driver_sql(text).one())

    def standing(self) -> Standing:
        """Compare transactions: a commit or rollback leaves none or another."""
        transaction = self._connection.get_transaction()
        if transaction is None or transaction is not self._transaction:
            return Standing.ENDED
        is_whole = transaction.is_active and not self._connection.invalidated
        return Standing.CURRENT if is_whole else Standing.FAILED

    def flush(self) -> None:
        """Send nothing: a connection holds nothing back."""

    def commit(self) -> None:
        """Commit."""
        self._connection.commit()

    def rollback(self) -> None:
        """Roll back."""
        if not self._connection.closed:
            self._connection.rollback()

    def discard(self) -> None:
        """Throw the driver's connection away; the next use gets another."""
        discard(self._connection)
        self.rollback()

    def refusal_of_commit(self, error: Exception) -> Exception | None:
        """Return the driver's error if it is the answer to COMMIT."""
        return refusal_of_commit(error)


class SessionKeeper:
    """A session: what it holds back is flushed, and its own `commit` lets its objects expire and its events happen."""

    def __init__(self, session: Session, handle: object) -> None:
        self.handle = handle
        self._session = session
        self._transaction: SessionTransaction | None = None
        self._connection: Connection | None = None

    @property
    def dialect(self) -> str:
        """Return SQLAlchemy's name for the database."""
        try:
            return self._session.get_bind().dialect.name
        except UnboundExecutionError:
            raise MisuseError(
                "The session has no engine of its own, so nobody knows which database is meant; bind it to the one of "
                "the store, or hand in a connection."
            ) from None

    def is_open(self) -> bool:
        """Tell whether the session began by itself; refuse what somebody else is going to end."""
        session = self._session
        if session.twophase:
            raise MisuseError("The session commits in two phases, which Nebis cannot follow; use one without twophase.")
        if session.in_nested_transaction():
            raise MisuseError(_NESTED.format(kind="session"))
        bind = session.get_bind()
        if isinstance(bind, Connection) and bind.in_transaction():
            raise MisuseError(_MANAGED.format(kind="connection under the session", block="connection.begin()"))
        transaction = session.get_transaction()
        if transaction is None:
            return False
        if transaction.origin is not SessionTransactionOrigin.AUTOBEGIN:
            raise MisuseError(_MANAGED.format(kind="session", block="session.begin()"))
        if not session.is_active:
            raise MisuseError("The session's transaction has failed; roll it back before you hand it in.")
        return True

    def begin(self) -> Any:
        """Begin unless it has, and return the driver's own connection."""
        session = self._session
        self._transaction = session.get_transaction() or session.begin()
        self._connection = session.connection()
        return driver_connection(self._connection)

    def lend(self) -> Any:
        """Return the driver's own connection, which a first statement puts into the session's transaction."""
        self.ask("SELECT 1")
        return driver_connection(self._session.connection())

    def ask(self, text: str) -> tuple[Any, ...]:
        """Send a statement without parameters and return its only row."""
        return tuple(self._session.connection().exec_driver_sql(text).one())

    def standing(self) -> Standing:
        """Compare transactions: a commit, a rollback or a close leaves none or another."""
        if self._connection is None or self._session.get_transaction() is not self._transaction:
            return Standing.ENDED
        # After a flush that failed SQLAlchemy has rolled back, and waits to be told so.
        is_whole = self._session.is_active and not (self._connection.closed or self._connection.invalidated)
        return Standing.CURRENT if is_whole else Standing.FAILED

    def flush(self) -> None:
        """Send what the session held back."""
        self._session.flush()

    def commit(self) -> None:
        """Commit."""
        self._session.commit()

    def rollback(self) -> None:
        """Roll back whatever the session is in by now."""
        self._session.rollback()

    def discard(self) -> None:
        """Throw the driver's connection away; the session stays, and gets another one."""
        if self._connection is not None:
            discard(self._connection)
        self._session.rollback()

    def refusal_of_commit(self, error: Exception) -> Exception | None:
        """Return the driver's error if it is the answer to COMMIT."""
        return refusal_of_commit(error)


def driver_connection(connection: Connection) -> Any:
    """Return what the driver itself calls a connection."""
    return connection.connection.driver_connection


def discard(connection: Connection) -> None:
    """Invalidate a connection, so that no pool hands it out again."""
    with suppress(SQLAlchemyError):
        connection.invalidate()


def refusal_of_commit(error: Exception) -> Exception | None:
    """Return the driver's error if SQLAlchemy sent no statement of its own: then it was the COMMIT that failed."""
    if not isinstance(error, DBAPIError) or error.statement is not None:
        return None
    origin, cause = error.orig, getattr(error.orig, "__cause__", None)
    # For asyncio SQLAlchemy makes up an error in between, which says less than the driver's.
    is_made_up = type(origin).__module__.partition(".")[0] == "sqlalchemy"
    found = cause if is_made_up else origin
    return found if isinstance(found, Exception) else None
