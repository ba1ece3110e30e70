"""A connection of our own through asyncpg."""

from __future__ import annotations

import socket
from collections.abc import Coroutine, Iterable
from contextlib import suppress
from functools import partial
from typing import Any, Final

import asyncpg  # type: ignore[import-untyped]  # The driver ships no types.

from nebis.stores.sql.asks import Row
from nebis.stores.sql.postgres.arrays import KINDS, pack, unpack
from nebis.stores.sql.postgres.asyncpg_messages import Ahead, executing
from nebis.stores.sql.postgres.conversation import Conversation

_COMMIT: Final = "COMMIT"

OUTDATED: Final = (
    asyncpg.InvalidCachedStatementError,
    asyncpg.InvalidSQLStatementNameError,
    asyncpg.OutdatedSchemaCacheError,
)
"""What comes of a statement that was prepared too long ago."""


class OwnConnection(asyncpg.Connection):  # type: ignore[misc]  # The driver ships no types.
    """A connection that notices when the network swallows what it sends, and can say two things in one trip."""

    __slots__ = ("begin", "conversation", "is_plain", "last", "prepared")

    conversation: Conversation | None
    """Who hears what the server says unasked."""
    prepared: dict[str, Any] | None
    """Our statements, by text; None where a pooler forgets them."""
    is_plain: bool
    """Whether nobody changed how values are written and read."""
    begin: str | None
    """The BEGIN that goes out with the next statement; empty while it is waited for, None where none is held back."""
    last: bytes
    """What goes out with a COMMIT that is being asked for; the server skips that if it fails."""

    def pack_arrays(self) -> None:
        """Send the columns of a batch as `arrays` packs them; asyncpg itself asks each element what it is.

        Only statements of ours run here. This is what `set_type_codec` does, which is not for arrays.
        """
        settings = self._protocol.get_settings()
        for name, kind in KINDS.items():
            ways = (partial(pack, name), partial(unpack, name))
            with suppress(AttributeError, TypeError):  # An asyncpg that has no such door packs them itself.
                settings.add_python_codec(kind.array_oid, f"{name}[]", "pg_catalog", [], "scalar", *ways, "binary")

    def _drop_local_statement_cache(self) -> None:
        """Forget our statements too: the application has changed how values are written."""
        super()._drop_local_statement_cache()
        self.is_plain = False
        if self.prepared:
            self.prepared = {}

    async def rows(self, text: str, values: Iterable[Any]) -> list[Row]:
        """Do what `fetch` does, past ten functions that find out each time what is known of our own statements."""
        if self.prepared is None:
            return list(map(tuple, await self.fetch(text, *values)))
        statement = self.prepared.get(text)
        if statement is None:
            # To prepare may begin a transaction for the server, in which it is too late for one.
            await self._begin_now()
            statement = self.prepared[text] = await self.prepare(text)
        arguments = tuple(values)
        is_beginning = bool(self.begin)
        if self.begin:
            self._transport.write(executing(self.begin))
            self.begin = None
        try:
            answer = await self._protocol.bind_execute(statement._state, arguments, "", 0, False, None)  # noqa: SLF001, FBT003
        except OUTDATED as error:
            # Somebody changed a table, or made the server forget. But for a schema that is outdated nothing was done.
            self.prepared = {}
            await self.reload_schema_state()
            is_done = isinstance(error, asyncpg.OutdatedSchemaCacheError)
            if is_done or is_beginning or self._protocol.is_in_transaction():
                raise
            answer = await self.fetch(text, *arguments)
        return list(map(tuple, answer))

    async def begin_with_next(self, transaction: Any) -> None:
        """Start a transaction of asyncpg's, which the server hears of together with the next statement of ours."""
        self.begin = None if self.prepared is None else ""
        try:
            await transaction.start()
        finally:
            self.begin = self.begin or None

    def execute(self, query: str, *args: Any, timeout: float | None = None) -> Coroutine[Any, Any, str]:
        """Do what asyncpg does, but for the BEGIN and the COMMIT that go along with something else."""
        if self.last:
            return self._commit()
        if self.begin is None:
            return super().execute(query, *args, timeout=timeout)  # type: ignore[no-any-return]
        return self._execute_begun(query, *args, timeout=timeout) if self.begin else self._hold_back(query)

    async def _hold_back(self, begin: str) -> str:
        self.begin = begin
        return "BEGIN"

    async def _execute_begun(self, query: str, *args: Any, timeout: float | None) -> str:  # noqa: ASYNC109
        await self._begin_now()
        return await self.execute(query, *args, timeout=timeout)

    async def _begin_now(self) -> None:
        begin, self.begin = self.begin, None
        if begin:
            await self.execute(begin)
            if self.prepared is not None and _COMMIT not in self.prepared:
                self.prepared[_COMMIT] = await self.prepare(_COMMIT, name=self._get_unique_id(_COMMIT))

    def can_commit_with(self) -> bool:
        """Tell whether `commit_with` can be asked for: not before a COMMIT was prepared, nor during a cancellation."""
        protocol = self._protocol
        is_ready = self.prepared is not None and _COMMIT in self.prepared
        return is_ready and protocol.is_connected() and not protocol._is_cancelling()  # noqa: SLF001 - asyncpg tells nobody else.

    async def packed(self, text: str, values: Iterable[Any]) -> bytes:
        """Return a statement without rows as `commit_with` sends it; nothing of it is sent before."""
        assert self.prepared is not None, "A pooler forgets what is prepared."
        ahead = self.prepared.get(text)
        if ahead is None:
            ahead = self.prepared[text] = Ahead(await self.prepare(text))
        packed: bytes = ahead.executing(values)
        return packed

    async def commit_with(self, transaction: Any, packed: bytes) -> None:
        """Commit a transaction of asyncpg's after a last statement, in one trip; if that fails, there is no COMMIT."""
        self.last = packed
        try:
            await transaction.commit()
        finally:
            self.last = b""  # Whatever came in between: with nothing else than this COMMIT.

    async def _commit(self) -> str:
        last, self.last = self.last, b""
        assert self.prepared is not None, "A pooler forgets what is prepared."
        state = self.prepared[_COMMIT]._state  # noqa: SLF001 - as above.
        self._transport.write(last)
        try:
            _, tag, _ = await self._protocol.bind_execute(state, (), "", 0, True, None)  # noqa: FBT003
        except OUTDATED:
            self.prepared = {}
            raise
        if tag != b"COMMIT":
            raise asyncpg.InterfaceError("The server answered a COMMIT with something else.")
        return _COMMIT

    def bound_silence(self, seconds: float) -> None:
        """Give up what was sent and not received in time, and probe while idle; asyncpg itself does neither."""
        connection_socket = self._transport.get_extra_info("socket")
        if connection_socket is None or connection_socket.family == socket.AF_UNIX:
            return
        probe_seconds = max(1, round(seconds / 3))
        connection_socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in (
            ("TCP_KEEPIDLE", probe_seconds),
            ("TCP_KEEPINTVL", probe_seconds),
            ("TCP_KEEPCNT", 2),
            ("TCP_USER_TIMEOUT", round(seconds * 1000)),
        ):
            if hasattr(socket, option):  # Not every system has all of them.
                connection_socket.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
