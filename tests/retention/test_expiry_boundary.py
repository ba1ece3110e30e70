"""Purge racing claims at the very end of a window (F068, F069): no double run within it, no error."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from nebis import Local, Nebis, NotYet
from nebis.runtime.sweeping import sweep_once
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
    """Two different answers for one key, whoever got them, come from runs that are a whole window apart."""
    location = f"sqlite:///{tmp_path}/boundary.db" if kind == "sqlite" else postgres_url
    nebis = Nebis(location, housekeeping=False)
    lock = threading.Lock()
    answered: dict[int, set[float]] = {number: set() for number in range(KEYS)}

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
        return time.monotonic()

    errors: list[BaseException] = []
    end = time.monotonic() + SECONDS

    def client(seed: int) -> None:
        number = seed
        try:
            while time.monotonic() < end:
                number = (number * 7 + seed + 1) % KEYS
                try:
                    began = place_order(key=f"boundary-key-{number:08}", tenant="acct_1", command=Order(number))
                except NotYet:
                    continue  # A twin runs, or this thread was starved for longer than its lease and was replaced.
                with lock:
                    answered[number].add(began)
        except BaseException as error:  # noqa: BLE001 - shown by the assertion below.
            errors.append(error)

    def purger() -> None:
        backend = open_blocking(location)
        try:
            while time.monotonic() < end:
                backend.sessions.run(sweep_once(backend.store))
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
    assert any(len(begun) > 2 for begun in answered.values()), "no window ever ended: the boundary was not tested"
    # A run that is answered with begins only after the whole window of the last one, which began no earlier than it.
    gaps = [later - earlier for begun in answered.values() for earlier, later in pairwise(sorted(begun))]
    assert min(gaps) >= WINDOW.total_seconds() - 0.05  # Two clocks: the store's decides, this process's measures.
    assert sum(left.by_state.values()) <= KEYS
