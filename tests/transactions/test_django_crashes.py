"""Commits of Django whose answer is lost, and processes that are killed at them (F012, F013, I1)."""

import json
import signal
import subprocess
import sys
import time
from functools import partial
from itertools import product
from pathlib import Path

import pytest
from django.db import connections

from nebis import InFlight, StoreUnavailable
from tests.engines.postgres import PostgresServer
from tests.engines.proxy import FaultProxy
from tests.transactions.django_shop import MODES, Order, Shop, database, settings_of, surprises

ROOT = Path(__file__).parents[2]
CUTS = {"before it arrives": "cut_before", "after it is done": "cut_reply_after"}

Scene = dict[str, str]
SCENES = list(product(("sqlite", "postgres"), MODES, ("before the commit", "after the commit")))


@pytest.mark.parametrize("cut", CUTS)
def test_a_commit_that_is_cut_happens_once(postgres_url: str, cut: str) -> None:
    with FaultProxy.before(postgres_url) as proxy, database("shop", postgres_url):
        shop = Shop(postgres_url, "shop")
        shop.create_table()
        connections["shop"].close()
        connections["shop"].settings_dict |= settings_of(proxy.url(postgres_url))
        for mode in MODES:
            proxy.was_cut.clear()
            surprises.append(partial(setattr, proxy, CUTS[cut], b"COMMIT"))
            if cut == "before it arrives":
                with pytest.raises(StoreUnavailable, match="nothing was committed"):
                    shop.order(mode, Order(mode), mode)
                assert shop.payments(mode) == []

            assert shop.order(mode, Order(mode), mode) == mode

            assert proxy.was_cut.is_set()
            assert shop.order(mode, Order(mode), mode) == mode
            assert shop.payments(mode) == [mode]
        shop.nebis.close()
        connections["shop"].close()


@pytest.fixture(scope="module")
def killed(
    postgres_server: PostgresServer, tmp_path_factory: pytest.TempPathFactory
) -> dict[tuple[str, str, str], tuple[Scene, int]]:
    """Every scene with how its child ended; all of them are played by one process, which imports everything once."""
    scenes: list[Scene] = []
    for kind, mode, where in SCENES:
        path = tmp_path_factory.mktemp("shop") / "shop.db"
        store_url = f"sqlite:///{path}" if kind == "sqlite" else postgres_server.create_database()
        scenes.append({"store_url": store_url, "mode": mode, "where": where})
    played = subprocess.run(
        [sys.executable, "-m", "tests.transactions.django_child"],
        input=json.dumps(scenes),
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return dict(zip(SCENES, zip(scenes, json.loads(played.stdout), strict=True), strict=True))


@pytest.mark.parametrize(("kind", "mode", "where"), SCENES)
def test_a_process_that_is_killed_at_its_commit_is_continued_by_a_retry(
    killed: dict[tuple[str, str, str], tuple[Scene, int]], kind: str, mode: str, where: str
) -> None:
    scene, end = killed[kind, mode, where]
    with database("shop", scene["store_url"]):
        shop = Shop(scene["store_url"], "shop")
        rows = shop.payments("order")
        answer = _insistently(shop, mode)
        rows_in_the_end = shop.payments("order")
        shop.nebis.close()

    assert end == -signal.SIGKILL
    assert rows == ([] if where == "before the commit" else ["order"])
    assert answer == "order"
    assert rows_in_the_end == ["order"]


def _insistently(shop: Shop, mode: str) -> str:
    """Order again as a client does, until the lease of the dead has lapsed."""
    while True:
        try:
            return shop.order("order", Order("order"), mode)
        except InFlight as refusal:
            # A lease passes only with real time: what is tested is that nothing but time is needed.
            time.sleep(min(refusal.retry_after_seconds, 0.1))
