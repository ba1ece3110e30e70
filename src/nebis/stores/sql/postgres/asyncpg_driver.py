"""PostgreSQL through asyncpg."""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeAlias, TypeGuard
from urllib.parse import parse_qs, urlsplit

import asyncpg  # type: ignore[import-untyped]  # The driver ships no types.

from nebis.flow import Ask
from nebis.stores.sql.asks import Row
from nebis.stores.sql.postgres import asyncpg_failures
from nebis.stores.sql.postgres.asyncpg_connection import OwnConnection
from nebis.stores.sql.postgres.conversation import Control, Conversation, Execute
from nebis.stores.sql.postgres.failures import Trouble, Unreachable
from nebis.stores.sql.postgres.location import Location
from nebis.stores.sql.postgres.reaching import explain, timed_out, unknown_host, unreadable
from nebis.stores.sql.postgres.settings import Settings

Connection: TypeAlias = Any
"""An `asyncpg.Connection`, or the stand-in that a pool hands out for one."""
Listener: TypeAlias = Callable[[Any, Any], None]


class Asyncpg:
    """asyncpg, as sessions use it."""

    packs_arrays = True
    """Whether its own connections are for our statements alone."""

    def __init__(
        self, location: Location, settings: Settings, *, connect: Callable[[], Awaitable[Connection]] | None = None
    ) -> None:
        self._location = location
        self._settings = settings
        self._connect = connect or self._connect_by_url

    async def connect(self) -> Connection:
        """Open a connection or raise `Unreachable`."""
        try:
            connection = await self._connect()
        except ValueError:
            raise unreadable() from None
        except TimeoutError:
            raise timed_out(self._location, self._settings.connect_timeout_seconds) from None
        except socket.gaierror:
            raise unknown_host(self._location) from None
        except asyncpg.PostgresError as error:
            raise explain(self._location, sqlstate=error.sqlstate, message=str(error)) from None
        except (OSError, asyncpg.InterfaceError, asyncpg.InternalClientError) as error:
            raise explain(self._location, sqlstate=None, message=str(error)) from None
        return connection

    async def _connect_by_url(self) -> Connection:
        settings = {"application_name": "nebis"}
        if not self._settings.pooler:  # A pooler refuses start-up settings that it does not know.
            settings |= self._settings.pins()
        in_url = parse_qs(urlsplit(self._location.url).query)
        if "application_name" in in_url:
            del settings["application_name"]
        connection = await asyncpg.connect(
            self._location.url,
            timeout=self._settings.connect_timeout_seconds,
            server_settings=settings,
            statement_cache_size=0 if self._settings.pooler else 100,
            connection_class=OwnConnection,
        )
        connection.bound_silence(self._settings.silence_seconds)
        if self.packs_arrays:
            connection.pack_arrays()
        connection.prepared = None if self._settings.pooler else {}
        connection.is_plain = True
        connection.begin, connection.last = None, b""
        connection.conversation = None
        # Once for all conversations: asyncpg inspects whatever is to listen.
        connection.add_log_listener(_pass_on)
        return connection

    def is_idle(self, connection: Connection) -> bool:
        """Say whether the connection is open, outside any transaction and with no unread answer (F023, F024)."""
        if type(connection) is OwnConnection:  # Asked in fewer steps, as it is twice for each batch.
            protocol = connection._protocol  # noqa: SLF001 - of a class of ours.
            return protocol.is_connected() and not connection._aborted and not protocol.is_in_transaction()  # noqa: SLF001
        return _is_open(connection) and not connection.is_in_transaction()

    is_reusable = is_idle

    def perform(self, connection: Connection, ask: Ask[Any]) -> Awaitable[Any] | Any:
        """Do one ask of a conversation."""
        match ask:
            case Execute():
                values = map(ask.values.__getitem__, ask.statement.parameters)
                if type(connection) is OwnConnection:
                    return connection.rows(ask.statement.positional, values)
                return _fetched(connection, ask.statement.positional, values)
            case Control():
                return connection.execute(ask.text)
            case _:
                raise TypeError(f"asyncpg cannot perform {type(ask).__name__}")

    def describe(self, error: Exception) -> Trouble:
        """Describe what `perform` raised."""
        return asyncpg_failures.describe(error)

    def listen_to_warnings(self, connection: Connection, conversation: Conversation) -> Listener | None:
        """Let the conversation hear what the server says unasked."""
        if type(connection) is OwnConnection:  # A stand-in of a pool counts as an instance of anything like it.
            connection.conversation = conversation
            return None

        # The loop calls this before it resumes whoever waits for the answer that came after the warning.
        def listener(_: Any, message: Any) -> None:
            _tell(conversation, message)

        connection.add_log_listener(listener)
        return listener

    def stop_listening(self, connection: Connection, listening: Listener | None) -> None:
        """Undo `listen_to_warnings`."""
        if listening is None:
            connection.conversation = None
        elif _is_open(connection):
            connection.remove_log_listener(listening)

    def discard(self, connection: Connection) -> None:
        """Cut the connection, whatever it is doing."""
        try:
            connection.terminate()
        except RuntimeError:  # Its loop is closed, and its socket with it.
            return


async def _fetched(connection: Connection, text: str, values: Iterable[Any]) -> list[Row]:
    return list(map(tuple, await connection.fetch(text, *values)))


def _pass_on(connection: OwnConnection, message: Any) -> None:
    """Tell whoever uses one of our own connections; in between nobody asked for anything."""
    if connection.conversation is not None:
        _tell(connection.conversation, message)


def _tell(conversation: Conversation, message: Any) -> None:
    conversation.hear(severity=message.severity_en, sqlstate=message.sqlstate)


def is_own(connection: Connection) -> TypeGuard[OwnConnection]:
    """Say whether the connection is one of ours; a stand-in of a pool counts as an instance of anything like it."""
    return type(connection) is OwnConnection


def is_plain(connection: Connection) -> bool:
    """Say whether the connection is one of ours, and nobody changed how it writes and reads values."""
    return type(connection) is OwnConnection and connection.is_plain


def _is_open(connection: Connection) -> bool:
    try:
        return not connection.is_closed()
    except asyncpg.InterfaceError:  # The stand-in of a pool whose connection is gone already.
        return False


class BorrowedAsyncpgPool:
    """An `asyncpg.Pool` that belongs to the application, with whatever settings it has."""

    is_pinned = False

    def __init__(self, pool: Any, settings: Settings) -> None:
        self._pool = pool
        self._settings = settings

    def take_now(self) -> None:
        """Return nothing: a pool may have to wait."""

    async def take(self) -> Connection:
        """Return an idle connection; those that are not idle are thrown away."""
        while True:
            try:
                connection = await self._pool.acquire(timeout=self._settings.acquire_timeout_seconds)
            except (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError) as error:
                raise Unreachable(f"the pool gave no connection ({type(error).__name__})") from None
            if _is_open(connection) and not connection.is_in_transaction():
                return connection
            await self.give_back(connection, is_spoilt=True)

    def give_back_now(self, connection: Connection, *, is_spoilt: bool) -> bool:  # noqa: ARG002 - not here.
        """Return False: a pool resets what it takes back."""
        return False

    async def give_back(self, connection: Connection, *, is_spoilt: bool) -> None:
        """Return a connection, or end it so that the pool replaces it."""
        if _is_open(connection) and (is_spoilt or connection.is_in_transaction()):
            connection.terminate()
        try:
            await self._pool.release(connection)
        except Exception:  # noqa: BLE001 - asyncpg ends a connection that it cannot reset; the flow has its answer.
            return

    async def close(self) -> None:
        """Leave the pool to its owner."""
