"""Rotating the secret while requests run: no key is forgotten (F116)."""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from nebis import InFlight, KeyReused, Local, Nebis, StoreUnavailable
from nebis.sync import Operation

OLD, NEW = "an-old-secret-of-this-shop", "a-new-secret-of-this-shop"
KEYS = 150


@dataclass(frozen=True)
class Order:
    """What is asked for."""

    number: int


class Shop:
    """One process of a deployment, as far as the store can tell."""

    def __init__(self, location: str, secret: str, runs: Counter[int]) -> None:
        self.nebis = Nebis(location, secret=secret, housekeeping=False)

        @self.nebis.operation("place_order", effects=Local)
        def place_order(command: Order) -> str:
            runs[command.number] += 1
            return f"order {command.number} by run {runs[command.number]}"

        self.place_order: Operation[Order, str] = place_order
        self.nebis.open()

    def order(self, number: int) -> str | None:
        """Ask until there is an answer; None if this process lacks the secret that the record was made with."""
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            try:
                return self.place_order(
                    key=f"rotation-key-{number:06}-of-the-shop", tenant="acct_1", command=Order(number)
                )
            except InFlight:
                continue
            except StoreUnavailable:
                return None
        raise AssertionError("no answer in time")


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_rotation_under_load_forgets_no_key_f116(kind: str, tmp_path: Path, postgres_url: str) -> None:
    location = f"sqlite:///{tmp_path}/rotation.db" if kind == "sqlite" else postgres_url
    runs: Counter[int] = Counter()
    answers: dict[int, set[str]] = {number: set() for number in range(KEYS)}
    errors: list[BaseException] = []
    before = Shop(location, OLD, runs)
    shops = [before, Shop(location, f"{OLD},{NEW}", runs), Shop(location, f"{NEW},{OLD}", runs)]

    def load(shop: Shop, step: int) -> None:
        try:
            for turn in range(KEYS):
                number = (turn * step) % KEYS
                told = shop.order(number)
                if told is not None:
                    answers[number].add(told)
        except BaseException as error:  # noqa: BLE001 - shown by the assertion below.
            errors.append(error)

    threads = [threading.Thread(target=load, args=(shop, step)) for shop in shops for step in (1, 7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    after = Shop(location, f"{NEW},{OLD}", runs)
    for number in range(KEYS):
        told = after.order(number)
        assert told is not None
        answers[number].add(told)
        with pytest.raises(KeyReused):
            after.place_order(key=f"rotation-key-{number:06}-of-the-shop", tenant="acct_1", command=Order(-1))
    for shop in (*shops, after):
        shop.nebis.close()

    assert errors == []
    assert set(runs.values()) == {1}
    assert all(len(told) == 1 for told in answers.values())
