"""Every behaviour of a consumer runs on several stores, through both façades."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.messaging.inbox.offices import SCHEMA, AsyncOffice, BlockingOffice, Office

SQL_WAYS = ["sqlite", "sqlite-asyncio", "postgres", "postgres-asyncio"]
WAYS = ["memory", "sqlite-asyncio", "postgres"]
"""Each store and each façade once; where transactions matter, a test asks for all four."""


def offices(request: pytest.FixtureRequest, folder: Path) -> Iterator[Callable[..., Office]]:
    """Open offices on one empty store."""
    kind, _, is_async = request.param.partition("-")
    url = {"memory": "memory://", "sqlite": f"sqlite:///{folder / 'nebis.db'}"}.get(kind)
    url = url or request.getfixturevalue("postgres_url")
    opened: list[Office] = []

    def make(**options: Any) -> Office:
        made = (AsyncOffice if is_async else BlockingOffice)(url, **options)
        if made.books and not opened:
            made.sql(SCHEMA)
        opened.append(made)
        return made

    yield make
    for made in opened:
        made.close()


@pytest.fixture(params=WAYS)
def office(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., Office]]:
    """An office on every store."""
    yield from offices(request, tmp_path)


@pytest.fixture(params=SQL_WAYS)
def sql_office(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., Office]]:
    """An office on every store that has transactions."""
    yield from offices(request, tmp_path)
