"""Transactions of the application through asyncpg."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from nebis.errors import MisuseError
from nebis.flow import Ask
from nebis.stores.sql.postgres.asyncpg_driver import Asyncpg, Connection, is_own, is_plain
from nebis.stores.sql.postgres.transactions import Finish, Start, Undo


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
            case Undo():
                transaction, self._transaction = self._transaction, None
                return None if transaction is None else transaction.rollback()
            case _:
                return super().perform(connection, ask)
