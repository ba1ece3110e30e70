"""The page on sizing says what a record takes; here it is weighed again."""

import json
import re
import sqlite3
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from nebis import Nebis, Opaque
from nebis.http import Exchange
from nebis.integrations.protection import Incoming
from nebis.integrations.routes import protection
from nebis.ports.asks import Returned
from nebis.stores import open_blocking
from nebis.sync import OpenAttempt

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "sizing.md"
BODY = json.dumps({"id": str(uuid4()), "amount": 1250, "note": "x" * 226}).encode()
RECORDS = 300
TOLERANCE = 0.15  # Few records fill their last pages badly.


def bytes_of(url: str) -> int:
    """Return what the store takes, without what a vacuum would give back."""
    if url.startswith("sqlite"):
        file = url.removeprefix("sqlite:///")
        opened = sqlite3.connect(file)
        opened.execute("VACUUM")
        opened.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        opened.close()
        return Path(file).stat().st_size
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("VACUUM FULL nebis_record")
        query = "SELECT pg_relation_size('nebis_record') + pg_indexes_size('nebis_record')"
        size: Any = connection.execute(query).fetchone()
        return int(size[0])


def answer_many(url: str, number: int) -> None:
    with Nebis(url) as nebis:
        protected = protection(nebis, "create_payment", effects=Opaque, tenant=lambda: "acct_1", options={})
        _, secrets = nebis.opened()
        for _ in range(number):
            headers = (("Idempotency-Key", str(uuid4())), ("content-type", "application/json"))
            arrived = Incoming(method="POST", headers=headers, body=b'{"amount":1250,"currency":"EUR"}')
            request = protected.prepare(secrets, arrived, "acct_1", render=lambda value: value)
            assert request is not None
            held = nebis.begin(request)
            assert isinstance(held, OpenAttempt)
            json_type = (("content-type", "application/json"),)
            held.settle(Returned(Exchange(status=201, headers=json_type, body=BODY)))


def expire_all(url: str) -> None:
    backend = open_blocking(url)
    try:
        later = backend.sessions.run(backend.store.clock()) + 25 * 3_600_000_000
        while not backend.sessions.run(backend.store.sweep(limit=500, now=later)).ends_round:
            pass
    finally:
        backend.sessions.close()


@pytest.mark.parametrize("store", ["PostgreSQL", "SQLite"])
def test_a_record_takes_what_the_page_says(store: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    url = f"sqlite:///{tmp_path / 'shop.db'}" if store == "SQLite" else request.getfixturevalue("postgres_url")
    row = re.search(rf"^\| {store} \| (\d+) \| (\d+) \|", PAGE.read_text(), flags=re.MULTILINE)
    assert row is not None
    # The first few fill the first page of each index, which all others share.
    answer_many(url, 30)
    expire_all(url)
    before = bytes_of(url)

    answer_many(url, RECORDS)
    full = (bytes_of(url) - before) / RECORDS
    expire_all(url)
    tombstone = (bytes_of(url) - before) / RECORDS

    assert len(BODY) == 300
    assert full == pytest.approx(int(row[1]), rel=TOLERANCE)
    assert tombstone == pytest.approx(int(row[2]), rel=TOLERANCE)
