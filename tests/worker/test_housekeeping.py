"""Recovery without a worker: every process looks after what it finds, at a low rate."""

import threading
import time
from collections.abc import Callable

import pytest

from nebis.core.record import State
from nebis.runtime import housekeeping
from tests.worker.bank import Crash, once
from tests.worker.shops import Shop, new_key

PATIENCE_SECONDS = 20


def test_process_recovers_what_one_of_its_own_left(shop: Callable[..., Shop], monkeypatch: pytest.MonkeyPatch) -> None:
    """O5: quick-start users have recovery, too."""
    monkeypatch.setattr(housekeeping, "IDLE_SECONDS", 0.05)
    made, key = shop(housekeeping=True), new_key()
    made.bank.after["charge"] = once(Crash())
    with pytest.raises(Crash):
        made.pay(key)

    deadline = time.monotonic() + PATIENCE_SECONDS
    while made.stored().state is not State.COMPLETED and time.monotonic() < deadline:
        threading.Event().wait(0.05)

    assert made.stored().state is State.COMPLETED
    assert made.bank.done == {"charge": 1}
    assert made.plot.runs == 2
