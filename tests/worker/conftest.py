"""Every behaviour of recovery runs on several stores, through both façades."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.worker.shops import AsyncShop, BlockingShop, Shop

WAYS = ["memory", "memory-asyncio", "sqlite", "sqlite-asyncio", "postgres", "postgres-asyncio"]


@pytest.fixture(params=WAYS)
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., Shop]]:
    """Opens a shop on an empty store."""
    kind, _, is_async = request.param.partition("-")
    opened: list[Shop] = []

    def make(prepare: Callable[[Shop], dict[str, Any]] = lambda _: {}, **options: Any) -> Shop:
        made = AsyncShop(is_async=True) if is_async else BlockingShop()
        url = {"memory": "memory://", "sqlite": f"sqlite:///{tmp_path / 'nebis.db'}"}.get(kind)
        made.open(url or request.getfixturevalue("postgres_url"), **{**prepare(made), **options})
        opened.append(made)
        return made

    yield make
    for made in opened:
        made.close()
