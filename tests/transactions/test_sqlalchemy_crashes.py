"""Commits of SQLAlchemy whose answer is lost, and processes that are killed at them (F012, F013, I1)."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from itertools import product
from pathlib import Path

import pytest

from nebis import InFlight, StoreUnavailable
from tests.engines.postgres import PostgresServer
from tests.engines.proxy import FaultProxy
from tests.transactions.sqlalchemy_shops import MODES, AsyncShop, BlockingShop, Order, payments, surprises

ROOT = Path(__file__).parents[2]
CUTS = {"before it arrives": "cut_before", "after it is done": "cut_reply_after"}
KINDS: dict[str, tuple[type[BlockingShop | AsyncShop], str]] = {
    "psycopg": (BlockingShop, "postgresql+psycopg"),
    "psycopg2": (BlockingShop, "postgresql+psycopg2"),
    "asyncpg": (AsyncShop, "postgresql+asyncpg"),
}


@pytest.fixture
def proxy(postgres_url: str) -> Iterator[FaultProxy]:
    with FaultProxy.before(postgres_url) as proxy:
        yield proxy


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_commit_that_is_cut_happens_once(postgres_url: str, proxy: FaultProxy, kind: str, cut: str) -> None:
    """The barrier tells which it was; the connection is thrown away, and the engine goes on with another."""
    make, scheme = KINDS[kind]
    shop = make(postgres_url, proxy.url(postgres_url).replace("postgresql", scheme), is_session=True)

    for mode in MODES:
        proxy.was_cut.clear()
        surprises.append(partial(setattr, proxy, CUTS[cut], b"COMMIT"))
        if cut == "before it arrives":
            with pytest.raises(StoreUnavailable, match="nothing was committed"):
                shop.order(mode, Order(mode), mode)
            assert payments(shop, mode) == []

        assert shop.order(mode, Order(mode), mode) == mode

        assert proxy.was_cut.is_set()
        assert shop.order(mode, Order(mode), mode) == mode
        assert payments(shop, mode) == [mode]
    shop.close()


Scene = dict[str, str]
SCENES = list(product(("sqlite", "postgres"), MODES, ("before the commit", "after the commit")))


@pytest.fixture(scope="module")
def killed(
    postgres_server: PostgresServer, tmp_path_factory: pytest.TempPathFactory
) -> dict[tuple[str, str, str], tuple[Scene, int]]:
    """Every scene with how its child ended; all of them are played by one process, which imports everything once."""
    scenes: list[Scene] = []
    for database, mode, where in SCENES:
        if database == "sqlite":
            store_url = engine_url = f"sqlite:///{tmp_path_factory.mktemp('shop') / 'shop.db'}"
        else:
            store_url = postgres_server.create_database()
            engine_url = store_url.replace("postgresql", "postgresql+psycopg")
        scenes.append({"store_url": store_url, "engine_url": engine_url, "mode": mode, "where": where})
    played = subprocess.run(
        [sys.executable, "-m", "tests.transactions.sqlalchemy_child"],
        input=json.dumps(scenes),
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return dict(zip(SCENES, zip(scenes, json.loads(played.stdout), strict=True), strict=True))


@pytest.mark.parametrize(("database", "mode", "where"), SCENES)
def test_a_process_that_is_killed_at_its_commit_is_continued_by_a_retry(
    killed: dict[tuple[str, str, str], tuple[Scene, int]], database: str, mode: str, where: str
) -> None:
    scene, end = killed[database, mode, where]
    shop = BlockingShop(scene["store_url"], scene["engine_url"], is_session=True)
    rows = payments(shop, "order")
    answer = _insistently(shop, mode)

    assert end == -signal.SIGKILL
    assert rows == ([] if where == "before the commit" else ["order"])
    assert answer == "order"
    assert payments(shop, "order") == ["order"]
    shop.close()


def _insistently(shop: BlockingShop, mode: str) -> str:
    """Order again as a client does, until the lease of the dead has lapsed."""
    while True:
        try:
            return shop.order("order", Order("order"), mode)
        except InFlight as refusal:
            # A lease passes only with real time: what is tested is that nothing but time is needed.
            time.sleep(min(refusal.retry_after_seconds, 0.1))
