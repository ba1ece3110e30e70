"""Transactions of the application through asyncpg."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from nebis.errors import MisuseError
from nebis.flow import Ask
from nebis.stores.sql.postgres.asyncpg_connection import OwnConnection
from nebis.stores.sql.postgres.asyncpg_driver import Asyncpg, Connection, is_own, is_plain
from nebis.stores.sql.postgres.conversation import Execute
from nebis.stores.sql.postgres.failures import Proof
from nebis.stores.sql.postgres.transactions import ENDED_INSIDE
from nebis.stores.sql.postgres.transactions_asks import Finish, FinishWith, Start, Undo


class AsyncpgTransactions(Asyncpg):
    """asyncpg, as one transaction uses it.

    It is begun by the driver's own `transaction()`, because only then can the application use it for savepoints.
    """

    packs_arrays = False
    """The application's own statements run on these connections, with arrays as asyncpg reads and writes them."""

    _transaction: Any = None

    def is_open(self, connection: Connection) -> bool:
        """Return False: whoever has begun a transaction on an asyncpg connection also means to end it."""
        if not self.is_idle(connection):
            raise MisuseError(
                "The connection is closed, or inside a transaction that only whoever began it can commit; "
                "hand it in outside of one, and use connection.transaction() inside of ours as a savepoint."
            )
        return False

    def is_plain(self, connection: Connection) -> bool:
        """Say so of a connection of ours for which no codec was ever set."""
        return is_plain(connection)

    def can_finish_with(self, connection: Connection) -> bool:
        """Say so of a connection of ours that is ready for it."""
        return is_own(connection) and connection.can_commit_with()

    def perform(self, connection: Connection, ask: Ask[Any]) -> Awaitable[Any] | Any:
        """Do one ask of a transaction."""
        match ask:
            case Start():
                self._transaction = connection.transaction(isolation="read_committed" if ask.is_ours else None)
                return (
                    connection.begin_with_next(self._transaction) if is_own(connection) else self._transaction.start()
                )
            case Finish():
                transaction, self._transaction = self._transaction, None
                return transaction.commit()
            case FinishWith():
                return self._finish_with(connection, ask.last)
            case Undo():
                transaction, self._transaction = self._transaction, None
                if transaction is not None:
                    return transaction.rollback()
                # Where a COMMIT was skipped, its transaction is still open, but no longer asyncpg's.
                return connection.execute("ROLLBACK") if is_own(connection) and connection.is_in_transaction() else None
            case _:
                return super().perform(connection, ask)

    async def _finish_with(self, connection: OwnConnection, last: Execute) -> Exception | None:
        statement, transaction = last.statement, self._transaction
        try:
            packed = await connection.packed(statement.positional, map(last.values.__getitem__, statement.parameters))
        except Exception as error:  # noqa: BLE001 - whatever it was, COMMIT was not sent.
            return error
        self._transaction = None
        try:
            await connection.commit_with(transaction, packed)
        except Exception as error:
            if self._was_skipped(connection, error):
                return error
            raise
        return None

    def _was_skipped(self, connection: OwnConnection, error: Exception) -> bool:
        """Tell whether the server refused what went ahead of a COMMIT, so that it never looked at that."""
        trouble = self.describe(error)
        # Of a connection that broke, asyncpg tells how it was before.
        if trouble.proof not in (Proof.REFUSED, Proof.LOCKED):
            return False
        # After a COMMIT, however it ended, there is no transaction any more.
        return trouble.sqlstate == ENDED_INSIDE or bool(connection.is_in_transaction())
