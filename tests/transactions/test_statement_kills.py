"""Processes killed before and after each statement of a transaction on a library's own connection (T1, I1)."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from django.db import connections

from nebis import InFlight
from tests.transactions import django_shop, sqlalchemy_shops
from tests.transactions.sqlalchemy_shops import MODES, payments, staged

ROOT = Path(__file__).parents[2]
FEWEST_STATEMENTS = 3
"""Of ours and the application's: hold or claim, a row, the outcome."""


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
@pytest.mark.parametrize("library", ["sqlalchemy", "django"])
def test_a_process_killed_at_any_statement_leaves_all_or_nothing_and_a_retry_finishes(
    library: str, database: str, tmp_path: Path, postgres_url: str
) -> None:
    store_url = f"sqlite:///{tmp_path / 'shop.db'}" if database == "sqlite" else postgres_url
    engine_url = store_url.replace("postgresql", "postgresql+psycopg")
    scenes = [{"library": library, "store_url": store_url, "engine_url": engine_url, "mode": mode} for mode in MODES]
    played = subprocess.run(
        [sys.executable, "-m", "tests.transactions.statement_child"],
        input=json.dumps(scenes),
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
        timeout=100,
    )

    assert "Traceback" not in played.stderr, played.stderr
    for mode, ends in zip(MODES, json.loads(played.stdout), strict=True):
        killed = [end for _, end in ends if end == -signal.SIGKILL]
        assert len(killed) >= 2 * FEWEST_STATEMENTS
        assert {end for _, end in ends} == {-signal.SIGKILL, 0}
        if library == "sqlalchemy":
            _judge_sqlalchemy(store_url, engine_url, mode, [order for order, _ in ends])
        else:
            _judge_django(store_url, mode, [order for order, _ in ends])


def _judge_sqlalchemy(store_url: str, engine_url: str, mode: str, orders: list[str]) -> None:
    shop = sqlalchemy_shops.BlockingShop(store_url, engine_url, is_session=True)
    for order in orders:
        _judge(
            order,
            partial(payments, shop, order),
            partial(staged, shop, order) if mode == "guarded" else partial(payments, shop, order),
            partial(shop.order, order, sqlalchemy_shops.Order(order), mode),
        )
    shop.close()


def _judge_django(store_url: str, mode: str, orders: list[str]) -> None:
    with django_shop.database("shop", store_url):
        shop = django_shop.Shop(store_url, "shop")
        for order in orders:
            rows = partial(shop.payments, order)
            messages = partial(shop.staged, order) if mode == "guarded" else rows
            _judge(order, rows, messages, partial(shop.order, order, django_shop.Order(order), mode))
        shop.nebis.close()
        connections["shop"].close()


def _judge(
    order: str, rows: Callable[[], list[str]], messages: Callable[[], list[str]], take: Callable[[], str]
) -> None:
    before, staged_before = rows(), messages()
    answer = _insistently(take)

    assert before in ([], [order])
    assert staged_before == before
    assert answer == order
    assert (rows(), messages()) == ([order], [order])


def _insistently(take: Callable[[], str]) -> str:
    """Order again as a client does, until the lease of the dead has lapsed."""
    while True:
        try:
            return take()
        except InFlight as refusal:
            # A lease passes only with real time: what is tested is that nothing but time is needed.
            time.sleep(min(refusal.retry_after_seconds, 0.1))
