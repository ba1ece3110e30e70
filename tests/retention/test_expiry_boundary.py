"""Purge racing claims at the very end of a window (F068, F069): no double run within it, no error."""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from nebis import InFlight, Local, Nebis
from nebis.runtime.housekeeping import sweep_once
from nebis.stores import open_blocking

SECONDS = 20.0
CLIENTS, PURGERS, KEYS = 50, 4, 40
WINDOW = timedelta(milliseconds=400)


@dataclass(frozen=True)
class Order:
    """What is asked for again and again."""

    number: int


@pytest.mark.timeout(180)
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_four_purgers_and_fifty_clients_at_the_expiry_boundary_f068(
    kind: str, tmp_path: Path, postgres_url: str
) -> None:
    """A client that gets an answer must never see an older one afterwards, nor two new ones within one window."""
    location = f"sqlite:///{tmp_path}/boundary.db" if kind == "sqlite" else postgres_url
    nebis = Nebis(location, housekeeping=False)
    lock = threading.Lock()
    runs: dict[int, list[float]] = {number: [] for number in range(KEYS)}

    @nebis.operation(
        "place_order",
        effects=Local,
        lease=timedelta(milliseconds=300),
        renewal=timedelta(milliseconds=100),
        effect_timeout=timedelta(milliseconds=100),
        recoveries_limit=1,
        retention=WINDOW,
        metadata_retention=timedelta(milliseconds=100),
    )
    def place_order(command: Order) -> float:
        began = time.monotonic()
        with lock:
            runs[command.number].append(began)
        return began

    errors: list[BaseException] = []
    answers: Counter[str] = Counter()
    end = time.monotonic() + SECONDS

    def client(seed: int) -> None:
        number = seed
        try:
            while time.monotonic() < end:
                number = (number * 7 + seed + 1) % KEYS
                try:
                    place_order(key=f"boundary-key-{number:08}", tenant="acct_1", command=Order(number))
                    answers["answered"] += 1
                except InFlight:
                    answers["in flight"] += 1
        except BaseException as error:  # noqa: BLE001 - shown by the assertion below.
            errors.append(error)

    def purger() -> None:
        backend = open_blocking(location)
        try:
            while time.monotonic() < end:
                sweep_once(backend.store, backend.sessions)
        except BaseException as error:  # noqa: BLE001 - shown by the assertion below.
            errors.append(error)
        finally:
            backend.sessions.close()

    nebis.open()
    threads = [threading.Thread(target=client, args=(seed,)) for seed in range(CLIENTS)]
    threads += [threading.Thread(target=purger) for _ in range(PURGERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    world, _ = nebis.opened()
    left = world.backend.sessions.run(world.backend.store.count())
    nebis.close()

    assert errors == []
    assert answers["answered"] > KEYS
    assert any(len(begun) > 2 for begun in runs.values()), "no window ever ended: the boundary was not tested"
    # A run begins only after the last outcome's whole window, which began no earlier than that run itself.
    gaps = [later - earlier for begun in runs.values() for earlier, later in pairwise(begun)]
    assert min(gaps) >= WINDOW.total_seconds() - 0.05  # Two clocks: the store's decides, this process's measures.
    assert sum(left.by_state.values()) <= KEYS
