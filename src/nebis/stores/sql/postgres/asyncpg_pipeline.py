"""A connection on which statements are sent before the ones ahead of them were answered.

asyncpg sends one statement and waits for its answer, in which time the server has nothing to do until the next one
comes. With a second connection it has, but then two of its processes and ours share the processors, each syncs for
itself, and one waits for the other. Here the next batch lies ready when the server has ended one: that made a third
more cycles with 64 callers on two cores. asyncpg finds the server and logs in; then the conversation is ours.

Each statement is a transaction of its own, and answers come in the order in which was asked. So a statement that may
wait holds up those behind it: only what gives up after a moment belongs here.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from itertools import count
from struct import Struct
from typing import Any, Final, TypeAlias

import asyncpg  # type: ignore[import-untyped]  # The driver ships no types.

from nebis.stores.sql.asks import Row
from nebis.stores.sql.postgres.arrays import KINDS, NOT_PLAIN, unpack
from nebis.stores.sql.postgres.asyncpg_connection import OUTDATED, OwnConnection
from nebis.stores.sql.postgres.asyncpg_messages import SYNC, Prepared, describing, parsing
from nebis.stores.sql.postgres.conversation import Conversation
from nebis.stores.sql.postgres.pipelines import TooLong

LONGEST_MESSAGE: Final = 256 * 1024
"""What is longer takes the server so long that it shall not hold up others; a usual batch has some 20 KB."""

_head: Final = Struct("!BI").unpack_from
_number: Final = Struct("!i").unpack_from
_small_number: Final = Struct("!H").unpack_from

_Read: TypeAlias = Callable[[bytes], Any]


class _Statement(Prepared):
    """A prepared statement, and how its rows are read."""

    __slots__ = ("reads",)

    def __init__(self, name: bytes, types: Iterable[int], reads: list[_Read]) -> None:
        super().__init__(name, types)
        self.reads = reads


class _Asked:
    """What was sent and is not answered yet."""

    __slots__ = ("answer", "columns", "conversation", "error", "reads", "rows", "types")

    def __init__(self, answer: asyncio.Future[None], reads: list[_Read], conversation: Conversation) -> None:
        self.answer = answer
        """Done once the server is through with it."""
        self.reads = reads
        self.conversation = conversation
        self.rows: list[Row] = []
        self.error: Exception | None = None
        self.types: list[int] = []
        self.columns: list[int] = []


class AsyncpgPipeline(asyncio.Protocol):
    """One connection that several flows use at once; it takes the place of asyncpg's protocol."""

    def __init__(self, connection: OwnConnection, ended: Callable[[], object]) -> None:
        """Take a connection with nothing under way; `ended` hears of its end."""
        self._connection = connection  # Held: asyncpg ends a connection that nobody holds.
        self._ended = ended
        # asyncpg hands out neither.
        self._transport = connection._transport  # noqa: SLF001
        self._protocol = connection._protocol  # noqa: SLF001
        self._loop = asyncio.get_running_loop()
        self._under_way: deque[_Asked] = deque()
        self._statements: dict[str, _Statement] = {}
        self._names = count()
        self._unread = b""
        self.is_open = True
        """Whether more may be sent."""
        self._transport.set_protocol(self)

    async def rows(self, text: str, values: Iterable[Any], conversation: Conversation) -> list[Row]:
        """Execute a statement behind all others and return its rows, or raise what asyncpg would.

        Raises `TooLong` where it shall not hold up others. A caller that is cancelled only stops listening.
        """
        arguments = tuple(values)
        statement = self._statements.get(text) or await self._prepare(text, conversation)
        try:
            return await self._execute(statement, arguments, conversation)
        except OUTDATED:
            # Somebody changed a table, or made the server forget: nothing was done, for any of our statements.
            self._statements.clear()
            return await self._execute(await self._prepare(text, conversation), arguments, conversation)

    def retire(self) -> None:
        """Take no more, and close once all is answered."""
        self.is_open = False
        if not self._under_way:
            self._transport.abort()

    def abandon(self) -> None:
        """Close at once, whatever is under way."""
        self.is_open = False
        self._transport.abort()

    async def _prepare(self, text: str, conversation: Conversation) -> _Statement:
        name = b"nebis_%d" % next(self._names)
        asked = self._send(parsing(name, text) + describing(name), [], conversation)
        await asked.answer
        statement = _Statement(name, asked.types, [_READS[oid] for oid in asked.columns])
        self._statements[text] = statement
        return statement

    async def _execute(self, statement: _Statement, values: tuple[Any, ...], conversation: Conversation) -> list[Row]:
        try:
            message = statement.executing(values)
        except (*NOT_PLAIN, ValueError) as error:
            raise asyncpg.DataError(f"a value cannot be sent ({type(error).__name__})") from None
        if len(message) > LONGEST_MESSAGE:
            raise TooLong
        asked = self._send(message, statement.reads, conversation)
        await asked.answer
        return asked.rows

    def _send(self, message: bytes, reads: list[_Read], conversation: Conversation) -> _Asked:
        if self._transport.is_closing():
            raise _lost()
        asked = _Asked(self._loop.create_future(), reads, conversation)
        self._under_way.append(asked)
        self._transport.write(message + SYNC)
        return asked

    def data_received(self, data: bytes) -> None:
        """Read all messages that are whole."""
        if self._unread:
            data = self._unread + data
        place, end = 0, len(data)
        while place + 5 <= end:
            kind, length = _head(data, place)
            following = place + 1 + length
            if following > end:
                break
            hear = _HEARS[kind]
            if hear is not None:
                hear(self, data[place + 5 : following])
            place = following
        self._unread = data[place:]

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell all that wait: nobody knows what the server did."""
        self.is_open = False
        self._protocol.connection_lost(exc)
        while self._under_way:
            asked = self._under_way.popleft()
            if not asked.answer.done():
                asked.answer.set_exception(asked.error or _lost())
        self._ended()

    def _hear_row(self, body: bytes) -> None:
        asked = self._under_way[0]
        place, row = 2, []
        for read in asked.reads:
            [size] = _number(body, place)
            place += 4
            row.append(None if size < 0 else read(body[place : place + size]))
            place += max(size, 0)
        asked.rows.append(tuple(row))

    def _hear_ready(self, _: bytes) -> None:
        asked = self._under_way.popleft()
        answer = asked.answer
        if not answer.done():
            if asked.error is None:
                answer.set_result(None)
            else:
                answer.set_exception(asked.error)
        if not self.is_open and not self._under_way:
            self._transport.abort()

    def _hear_error(self, body: bytes) -> None:
        if self._under_way:  # Else it is why the server closes the connection now.
            self._under_way[0].error = asyncpg.PostgresError.new(_fields(body))

    def _hear_notice(self, body: bytes) -> None:
        if self._under_way:
            fields = _fields(body)
            self._under_way[0].conversation.hear(severity=fields.get("V"), sqlstate=fields.get("C"))

    def _hear_types(self, body: bytes) -> None:
        [number] = _small_number(body)
        self._under_way[0].types = [_number(body, 2 + 4 * place)[0] for place in range(number)]

    def _hear_columns(self, body: bytes) -> None:
        [number] = _small_number(body)
        place = 2
        for _ in range(number):
            place = body.index(b"\0", place) + 1  # Behind its name.
            self._under_way[0].columns.append(_number(body, place + 6)[0])  # Behind the table's number and its own.
            place += 18


def _fields(body: bytes) -> dict[str, str]:
    """Read what an error or a notice says, by the letters of the protocol."""
    return {field[:1].decode(): field[1:].decode(errors="replace") for field in body.split(b"\0") if field}


def _lost() -> Exception:
    error: Exception = asyncpg.ConnectionDoesNotExistError("the connection was closed in the middle of a statement")
    return error


def _array(name: str) -> _Read:
    return lambda data: unpack(name, data)


_READS: Final[dict[int, _Read]] = {
    **{kind.oid: kind.read for kind in KINDS.values()},
    **{kind.array_oid: _array(name) for name, kind in KINDS.items()},
}
_Hear: TypeAlias = Callable[[AsyncpgPipeline, bytes], None]
_HEARS: Final[dict[int, _Hear | None]] = {
    ord("D"): AsyncpgPipeline._hear_row,  # noqa: SLF001
    ord("Z"): AsyncpgPipeline._hear_ready,  # noqa: SLF001
    ord("E"): AsyncpgPipeline._hear_error,  # noqa: SLF001
    ord("N"): AsyncpgPipeline._hear_notice,  # noqa: SLF001
    ord("t"): AsyncpgPipeline._hear_types,  # noqa: SLF001
    ord("T"): AsyncpgPipeline._hear_columns,  # noqa: SLF001
    # Parsed, bound, executed, nothing to execute, no columns; a setting that changed, a notification.
    **dict.fromkeys(b"12CInSA"),
}
"""What the server may say; anything else ends the connection, as nobody knows what would come after it."""
