"""The shop's own tables, in the same database as the records; one SQL text for SQLite and PostgreSQL."""

import asyncio
import re
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from examples.payments.settings import STORE

SCHEMA = (
    """
    CREATE TABLE IF NOT EXISTS shop_payment (
        payment_id TEXT PRIMARY KEY,
        tenant TEXT NOT NULL,
        charge_id TEXT NOT NULL UNIQUE,
        invoice_id TEXT NOT NULL,
        amount_cents BIGINT NOT NULL CHECK (amount_cents > 0),
        refunded_cents BIGINT NOT NULL DEFAULT 0 CHECK (refunded_cents BETWEEN 0 AND amount_cents),
        currency TEXT NOT NULL,
        created_at TEXT NOT NULL
    )
    """,
    """
    CREATE TABLE IF NOT EXISTS shop_refund (
        refund_id TEXT PRIMARY KEY,
        tenant TEXT NOT NULL,
        payment_id TEXT NOT NULL REFERENCES shop_payment,
        amount_cents BIGINT NOT NULL CHECK (amount_cents > 0),
        status TEXT NOT NULL,
        created_at TEXT NOT NULL
    )
    """,
    # The primary key is what the entries are about: the same transaction cannot be booked twice, whoever tries.
    """
    CREATE TABLE IF NOT EXISTS shop_ledger (
        transaction_id TEXT NOT NULL,
        account TEXT NOT NULL,
        tenant TEXT NOT NULL,
        amount_cents BIGINT NOT NULL,
        created_at TEXT NOT NULL,
        PRIMARY KEY (transaction_id, account)
    )
    """,
    "CREATE INDEX IF NOT EXISTS shop_ledger_by_tenant ON shop_ledger (tenant, account)",
    """
    CREATE TABLE IF NOT EXISTS shop_order (
        order_id TEXT PRIMARY KEY,
        tenant TEXT NOT NULL,
        payment_id TEXT NOT NULL REFERENCES shop_payment,
        sku TEXT NOT NULL,
        quantity BIGINT NOT NULL,
        created_at TEXT NOT NULL
    )
    """,
    """
    CREATE TABLE IF NOT EXISTS shop_stock (
        order_id TEXT PRIMARY KEY, tenant TEXT NOT NULL, sku TEXT NOT NULL, quantity BIGINT NOT NULL
    )
    """,
    """
    CREATE TABLE IF NOT EXISTS shop_shipment (
        shipment_id TEXT PRIMARY KEY, tenant TEXT NOT NULL, order_id TEXT NOT NULL UNIQUE
    )
    """,
    """
    CREATE TABLE IF NOT EXISTS shop_receipt (
        receipt_id TEXT PRIMARY KEY,
        tenant TEXT NOT NULL,
        payment_id TEXT NOT NULL UNIQUE,
        invoice_id TEXT NOT NULL,
        created_at TEXT NOT NULL
    )
    """,
    """
    CREATE TABLE IF NOT EXISTS shop_balance (
        tenant TEXT NOT NULL, account TEXT NOT NULL, amount_cents BIGINT NOT NULL, PRIMARY KEY (tenant, account)
    )
    """,
)

Row = dict[str, Any]
_NAME = re.compile(r":(\w+)")


async def run(connection: Any, statement: str, **values: object) -> Sequence[Any]:
    """Run a statement inside a transaction of Nebis, on whichever connection its store has; return the rows."""
    if not hasattr(connection, "cursor"):  # SQLite's, by way of the thread that owns it.
        rows: Sequence[Any] = await connection.execute(statement, values)
        return rows
    cursor = await connection.execute(_NAME.sub(r"%(\1)s", statement), values)
    return await cursor.fetchall() if cursor.description else ()


class Database:
    """Reading, beside all transactions."""

    def __init__(self, store: str) -> None:
        self._store = store
        self._pool: Any = None

    async def open(self) -> None:
        """Create the tables that are not there yet; `nebis` makes its own."""
        if not self._store.startswith("sqlite:"):
            from psycopg_pool import AsyncConnectionPool  # noqa: PLC0415 - for those who have PostgreSQL.

            self._pool = AsyncConnectionPool(self._store, min_size=1, max_size=4, open=False)
            await self._pool.open()
        for statement in SCHEMA:
            await self.rows(statement)

    async def rows(self, statement: str, **values: object) -> list[Row]:
        """Run one statement by itself and return its rows by name."""
        if self._pool is None:
            return await asyncio.to_thread(self._rows, statement, values)
        async with self._pool.connection() as connection:
            cursor = await connection.execute(_NAME.sub(r"%(\1)s", statement), values)
            if cursor.description is None:
                return []
            names = [column.name for column in cursor.description]
            return [dict(zip(names, row, strict=True)) for row in await cursor.fetchall()]

    def _rows(self, statement: str, values: Row) -> list[Row]:
        connection = sqlite3.connect(sqlite_file(self._store), timeout=10, isolation_level=None)
        try:
            cursor = connection.execute(statement, values)
            names = [column[0] for column in cursor.description or ()]
            return [dict(zip(names, row, strict=True)) for row in cursor]
        finally:
            connection.close()

    async def close(self) -> None:
        """Close what `open` opened."""
        if self._pool is not None:
            await self._pool.close()


def sqlite_file(store: str) -> Path:
    """Return the file that a URL names, as Nebis reads it."""
    return Path(unquote(store.removeprefix("sqlite:///")))


database = Database(STORE)
