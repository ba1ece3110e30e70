"""PostgreSQL through psycopg 3, on an event loop."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, TypeAlias

import psycopg
import psycopg_pool
from psycopg.pq import Format
from psycopg.rows import tuple_row

from nebis.flow import Ask
from nebis.stores.sql.asks import Row
from nebis.stores.sql.postgres import psycopg_failures, psycopg_wire
from nebis.stores.sql.postgres.conversation import Control, Conversation, Execute
from nebis.stores.sql.postgres.failures import Trouble, Unreachable
from nebis.stores.sql.postgres.location import Location
from nebis.stores.sql.postgres.psycopg_prepared import OwnAsyncConnection, Unpackable
from nebis.stores.sql.postgres.settings import Settings

Connection: TypeAlias = psycopg.AsyncConnection[Any]


class AsyncPsycopg:
    """The asyncio half of psycopg, as sessions use it."""

    speaks_alone = True
    """Whether its own connections are for our statements alone."""

    def __init__(self, location: Location, settings: Settings) -> None:
        self._location = location
        self._settings = settings

    async def connect(self) -> Connection:
        """Open a connection or raise `Unreachable`."""
        arguments = psycopg_wire.connect_arguments(self._location, self._settings)
        try:
            if not self.speaks_alone or self._settings.pooler:
                return await psycopg.AsyncConnection.connect(**arguments)
            return await OwnAsyncConnection.connect(**psycopg_wire.unprepared(arguments))
        except psycopg.Error as error:
            raise psycopg_wire.explain_refusal(self._location, self._settings, error) from None

    def is_idle(self, connection: Connection) -> bool:
        """Say whether the connection is open, outside any transaction and with no unread answer (F023, F024)."""
        return psycopg_wire.is_idle(connection)

    def is_reusable(self, connection: Connection) -> bool:
        """Say whether it is open and outside any transaction; what the server says from now on, `is_idle` will see."""
        return psycopg_wire.is_reusable(connection)

    async def perform(self, connection: Connection, ask: Ask[Any]) -> Any:
        """Do one ask of a conversation."""
        if type(ask) is Execute and ask.values and type(connection) is OwnAsyncConnection:
            with suppress(Unpackable):
                return await connection.rows(ask)
        cursor = psycopg.AsyncCursor(connection, row_factory=tuple_row)
        match ask:
            case Execute():
                cursor.format = Format.BINARY
                values = psycopg_wire.bound(ask, connection)
                await cursor.execute(psycopg_wire.render(ask), values, prepare=bool(ask.values))
                return await _rows(cursor)
            case Control():
                return (await cursor.execute(ask.text)).statusmessage
            case _:
                raise TypeError(f"psycopg cannot perform {type(ask).__name__}")

    def describe(self, error: Exception) -> Trouble:
        """Describe what `perform` raised."""
        return psycopg_failures.describe(error)

    def listen_to_warnings(self, connection: Connection, conversation: Conversation) -> psycopg_wire.NoticeHandler:
        """Let the conversation hear what the server says unasked."""
        return psycopg_wire.hear_notices(connection, conversation)

    def stop_listening(self, connection: Connection, listening: psycopg_wire.NoticeHandler) -> None:
        """Undo `listen_to_warnings`."""
        connection.remove_notice_handler(listening)

    def discard(self, connection: Connection) -> None:
        """Cut the connection, whatever it is doing."""
        psycopg_wire.cut(connection)


async def _rows(cursor: psycopg.AsyncCursor[Row]) -> list[Row]:
    if cursor.pgresult is None or not cursor.pgresult.nfields:  # Cheaper than `description`, which names the columns.
        return []
    try:
        return await cursor.fetchall()
    except Exception as error:  # noqa: BLE001 - whatever it is, the statement was executed.
        raise psycopg_failures.Unreadable(type(error).__name__) from None


class BorrowedAsyncPsycopgPool:
    """A `psycopg_pool.AsyncConnectionPool` that belongs to the application, with whatever settings it has."""

    is_pinned = False

    def __init__(self, pool: psycopg_pool.AsyncConnectionPool[Any], settings: Settings) -> None:
        self._pool = pool
        self._settings = settings
        self._had_autocommit: dict[int, bool] = {}

    def take_now(self) -> None:
        """Return nothing: a pool may have to wait."""

    async def take(self) -> Connection:
        """Return an idle connection; those that are not idle are thrown away."""
        while True:
            try:
                connection: Connection = await self._pool.getconn(timeout=self._settings.acquire_timeout_seconds)
            except psycopg.Error as error:
                raise Unreachable(f"the pool gave no connection ({type(error).__name__})") from None
            if psycopg_wire.is_idle(connection):
                break
            await self.give_back(connection, is_spoilt=True)
        # Otherwise psycopg would send a BEGIN of its own before the first statement.
        self._had_autocommit[id(connection)] = connection.autocommit
        await connection.set_autocommit(True)
        return connection

    def give_back_now(self, connection: Connection, *, is_spoilt: bool) -> bool:  # noqa: ARG002 - not here.
        """Return False: a pool looks at what it takes back."""
        return False

    async def give_back(self, connection: Connection, *, is_spoilt: bool) -> None:
        """Return a connection as it was, or in a state in which the pool replaces it."""
        had_autocommit = self._had_autocommit.pop(id(connection), True)
        if is_spoilt or not psycopg_wire.is_idle(connection):
            psycopg_wire.cut(connection)
        else:
            await connection.set_autocommit(had_autocommit)
        await self._pool.putconn(connection)

    async def close(self) -> None:
        """Leave the pool to its owner."""
