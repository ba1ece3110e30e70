"""Our own statements on our own connections of psycopg, each prepared once and then sent past its cursors.

A cursor finds out anew what every value is, counts how often a statement came, and describes columns that nobody asks
for: a quarter of what a batch costs. It also makes the server forget all prepared statements after each ROLLBACK, which
is for statements about tables that a rollback may undo. Here the server says once of which types the values are.

Values that are not plainly of those types are left to the cursor, and so is whatever has no values.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from threading import get_ident, main_thread
from typing import Any, Final

import psycopg
from psycopg import generators
from psycopg.abc import PQGen
from psycopg.adapt import Transformer
from psycopg.errors import error_from_result
from psycopg.pq import ExecStatus, Format, TransactionStatus
from psycopg.pq.abc import PGresult

from nebis.stores.sql.asks import Row, Statement
from nebis.stores.sql.postgres.arrays import KINDS, pack
from nebis.stores.sql.postgres.conversation import Execute
from nebis.stores.sql.postgres.psycopg_failures import Unreadable

Pack = Callable[[Any], bytes]

_FORGOTTEN = frozenset({"26000", "0A000"})
"""The server knows no such statement, or its answer would have other columns by now: it is prepared anew."""


class Unpackable(Exception):
    """A value that is not plainly of the type that the server expects; nothing was sent."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """One statement as this connection knows it."""

    name: bytes
    parameters: tuple[tuple[str, Pack], ...]
    """What the statement is given, in order, and how each value is written."""
    formats: tuple[Format, ...]


class OwnStatements:
    """The statements that one connection has prepared.

    What has to be waited for is yielded, as psycopg's own generators do it: its connections know how to wait.
    """

    def __init__(self, connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> None:
        self._pgconn = connection.pgconn
        # Of this connection alone: should a pooler stand in between after all, no other client has the same.
        self._prefix = f"nebis_{os.urandom(6).hex()}"
        self._count = 0
        self._prepared: dict[Statement, Prepared | None] = {}
        """None for a statement that is left to the cursor."""
        self._reader = Transformer(connection)
        self._is_usable = connection.info.encoding == "utf-8"

    def rows(self, ask: Execute, *, may_block: bool) -> PQGen[list[Row]]:
        """Send one statement and return its rows; raise `Unpackable` where that is left to a cursor."""
        try:
            return (yield from self._rows(ask, may_block=may_block))
        except psycopg.Error as error:
            if error.sqlstate not in _FORGOTTEN:
                raise
            self._prepared.clear()
            # Nothing was done. Inside of a transaction it has failed, and whoever began it has to begin again.
            if self._pgconn.transaction_status != TransactionStatus.IDLE:
                raise
        return (yield from self._rows(ask, may_block=may_block))

    def _rows(self, ask: Execute, *, may_block: bool) -> PQGen[list[Row]]:
        prepared = self._prepared.get(ask.statement) or (yield from self._prepare(ask.statement))
        values = ask.values
        packed: list[Any] = [
            None if (value := values[name]) is None else pack_value(value) for name, pack_value in prepared.parameters
        ]
        if may_block:
            result = _succeeded(self._sent_in_one_piece(prepared, packed))
        else:
            self._pgconn.send_query_prepared(prepared.name, packed, prepared.formats, Format.BINARY)
            result = yield from self._answer()
        if result.status != ExecStatus.TUPLES_OK:
            return []
        try:
            self._reader.set_pgresult(result)
            return self._reader.load_rows(0, result.ntuples, tuple)
        except Exception as error:  # noqa: BLE001 - whatever it is, the statement was executed.
            raise Unreadable(type(error).__name__) from None
        finally:
            self._reader.set_pgresult(None)  # Not kept until the next one: it may be large.

    def _sent_in_one_piece(self, prepared: Prepared, packed: list[Any]) -> PGresult:
        try:
            return self._pgconn.exec_prepared(prepared.name, packed, prepared.formats, Format.BINARY)
        except MemoryError:  # What psycopg makes of a connection on which nothing can be sent.
            raise psycopg.OperationalError("nothing could be sent") from None

    def _prepare(self, statement: Statement) -> PQGen[Prepared]:
        if statement in self._prepared or not self._is_usable:
            raise Unpackable
        self._count += 1
        name = f"{self._prefix}_{self._count}".encode()
        self._pgconn.send_prepare(name, statement.positional.encode())
        yield from self._answer()
        self._pgconn.send_describe_prepared(name)
        described = yield from self._answer()
        packs = [_PACKS.get(described.param_type(place)) for place in range(described.nparams)]
        known = tuple((each, how) for each, how in zip(statement.parameters, packs, strict=True) if how is not None)
        if len(known) < len(packs):
            self._prepared[statement] = None
            raise Unpackable
        prepared = self._prepared[statement] = Prepared(name, known, (Format.BINARY,) * len(known))
        return prepared

    def _answer(self) -> PQGen[PGresult]:
        [result] = yield from generators.execute(self._pgconn)
        return _succeeded(result)


class OwnConnection(psycopg.Connection[Any]):
    """A connection on which nobody speaks but us, directly to one server."""

    own_statements: OwnStatements | None = None
    """Made with the first one: a connection learns its adapters after it is made."""

    def rows(self, ask: Execute) -> list[Row]:
        """Send one statement and return its rows; raise `Unpackable` where that is left to a cursor."""
        if self.own_statements is None:
            self.own_statements = OwnStatements(self)
        # No signal reaches other threads. In one piece a statement lets go of the interpreter once, instead of five
        # times, each time to stand in line for it again.
        return self.wait(self.own_statements.rows(ask, may_block=get_ident() != main_thread().ident))


class OwnAsyncConnection(psycopg.AsyncConnection[Any]):
    """The same on an event loop."""

    own_statements: OwnStatements | None = None

    async def rows(self, ask: Execute) -> list[Row]:
        """Send one statement and return its rows; raise `Unpackable` where that is left to a cursor."""
        if self.own_statements is None:
            self.own_statements = OwnStatements(self)
        return await self.wait(self.own_statements.rows(ask, may_block=False))


_SUCCESS: Final = (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK)


def _succeeded(result: PGresult) -> PGresult:
    if result.status not in _SUCCESS:
        raise error_from_result(result)
    return result


def _scalar(of: type, write: Callable[[Any], bytes]) -> Pack:
    def packed(value: Any) -> bytes:
        if type(value) is not of:
            raise Unpackable
        try:
            return write(value)
        except (ValueError, OverflowError):
            raise Unpackable from None

    return packed


def _text(value: str) -> bytes:
    if "\0" in value:
        raise ValueError("no PostgreSQL can store it")
    return value.encode()


def _number(size: int) -> Callable[[int], bytes]:
    return lambda value: value.to_bytes(size, signed=True)


def _array(kind: str) -> Pack:
    plain = KINDS[kind].plain

    def packed(values: Any) -> bytes:
        if not set(map(type, values)) <= plain or (kind == "text" and "\0" in "".join(filter(None, values))):
            raise Unpackable
        try:
            return pack(kind, values)
        except ValueError:
            raise Unpackable from None

    return packed


_SCALARS: dict[str, Callable[[Any], bytes]] = {
    "boolean": lambda value: b"\1" if value else b"\0",
    "bytea": bytes,
    "bigint": _number(8),
    "smallint": _number(2),
    "integer": _number(4),
    "text": _text,
    "uuid": lambda value: value.int.to_bytes(16),
}
_PACKS: dict[int, Pack] = {
    **{kind.oid: _scalar(kind.of, _SCALARS[name]) for name, kind in KINDS.items()},
    **{kind.array_oid: _array(name) for name, kind in KINDS.items()},
}
