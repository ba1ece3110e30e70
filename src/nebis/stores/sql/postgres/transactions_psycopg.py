"""Transactions of the application through psycopg 3."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg.pq import PipelineStatus, TransactionStatus

from nebis.errors import MisuseError
from nebis.flow import Ask
from nebis.stores.sql.postgres import psycopg_async, psycopg_blocking
from nebis.stores.sql.postgres.conversation import Control
from nebis.stores.sql.postgres.psycopg_wire import AnyConnection
from nebis.stores.sql.postgres.transactions_asks import Finish, Start, Undo


class BlockingPsycopgTransactions(psycopg_blocking.BlockingPsycopg):
    """The blocking half of psycopg, as transactions use it."""

    speaks_alone = False

    def is_open(self, connection: psycopg.Connection[Any]) -> bool:
        """Say whether the application has begun a transaction; raise `MisuseError` if we could not commit it."""
        return _is_open(connection)

    def perform(self, connection: psycopg.Connection[Any], ask: Ask[Any]) -> Any:
        """Do one ask of a transaction."""
        control = _control(connection, ask)
        return None if control is None else super().perform(connection, control)


class AsyncPsycopgTransactions(psycopg_async.AsyncPsycopg):
    """The asyncio half of psycopg, as transactions use it."""

    speaks_alone = False

    def is_open(self, connection: psycopg.AsyncConnection[Any]) -> bool:
        """Say whether the application has begun a transaction; raise `MisuseError` if we could not commit it."""
        return _is_open(connection)

    def is_plain(self, _: psycopg.AsyncConnection[Any]) -> bool:
        """Say no: adapters can be changed without anybody noticing."""
        return False

    def can_finish_with(self, _: psycopg.AsyncConnection[Any]) -> bool:
        """Say no: here psycopg says each thing in a trip of its own."""
        return False

    async def perform(self, connection: psycopg.AsyncConnection[Any], ask: Ask[Any]) -> Any:
        """Do one ask of a transaction."""
        control = _control(connection, ask)
        return None if control is None else await super().perform(connection, control)


def _control(connection: AnyConnection, ask: Ask[Any]) -> Ask[Any] | None:
    """Return what to send. Not by `commit()`, which does not tell when the server rolled back instead."""
    is_idle = connection.info.transaction_status is TransactionStatus.IDLE
    match ask:
        case Start(is_ours=True):
            return Control("BEGIN ISOLATION LEVEL READ COMMITTED")
        case Start():
            # Without autocommit psycopg itself begins, with the settings of the connection, before the next statement.
            return Control("BEGIN") if is_idle and connection.autocommit else None
        case Finish():
            return Control("COMMIT")
        case Undo():
            return None if is_idle else Control("ROLLBACK")
        case _:
            return ask


def require_inside(connection: AnyConnection) -> None:
    """Raise `MisuseError` unless a statement would be part of a transaction that the application ends."""
    status = TransactionStatus.INTRANS if connection.closed else connection.info.transaction_status
    begins_by_itself = status is TransactionStatus.IDLE and not connection.autocommit
    if connection.closed or not (begins_by_itself or status is TransactionStatus.INTRANS):
        raise MisuseError("The connection is in no transaction that could be committed; begin one first.")


def _is_open(connection: AnyConnection) -> bool:
    if connection.closed:
        raise MisuseError("The connection is closed; hand in one that is open.")
    if connection.info.pipeline_status is not PipelineStatus.OFF:
        raise MisuseError("The connection is in a pipeline, where no answer is in time; hand it in outside of it.")
    # psycopg says so only by refusing a commit().
    if connection._num_transactions:  # noqa: SLF001
        raise MisuseError(
            "The connection is inside a connection.transaction() block, which only that block can commit; "
            "hand it in outside of one, and use blocks inside of ours as savepoints."
        )
    match connection.info.transaction_status:
        case TransactionStatus.IDLE:
            return False
        case TransactionStatus.INTRANS:
            return True
        case TransactionStatus.INERROR:
            raise MisuseError("A statement on the connection has failed; roll back before you hand it in.")
        case _:
            raise MisuseError("The connection is busy with another statement; hand in one that nobody else uses.")
