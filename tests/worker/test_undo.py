"""Undoing, through both façades on every store."""

import sqlite3
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from nebis import Attempt, Declared, InDoubt, Nebis, NotYet, Rejected, Undo
from nebis.core.record import State
from nebis.ports.observer import TurnedBack
from nebis.worker import Deed
from tests.worker.bank import Crash, once
from tests.worker.shops import Do, Shop, new_key
from tests.worker.test_recovery import GatewayDown, until

Make = Callable[..., Shop]
STEPS = (Do("reserve"), Do("charge"), Do("email"))


def refusing(shop: Make, **options: object) -> Shop:
    """Open a shop whose operation is rejected after all of its effects, of which two can be undone."""
    made = shop(lambda opened: {"undo": opened.undo_of("reserve", "charge")}, **options)
    made.plot.steps = STEPS

    def refuse() -> None:
        raise Rejected("out-of-stock")

    made.plot.ends = refuse
    return made


def test_rejected_operation_undoes_what_it_did_newest_first_and_says_so(shop: Make) -> None:
    made, key = refusing(shop), new_key()

    for _ in range(2):
        with pytest.raises(Rejected) as told:
            made.pay(key)
        assert (told.value.reason, told.value.undone) == ("out-of-stock", ("charge", "reserve"))

    assert [what for what, _ in made.bank.calls][3:] == ["undo charge", "undo reserve"]
    assert made.bank.done == {"reserve": 1, "charge": 1, "email": 1, "undo charge": 1, "undo reserve": 1}
    assert [event.effects for event in made.told if isinstance(event, TurnedBack)] == [("charge", "reserve")]
    assert made.plot.runs == 1


@pytest.mark.parametrize("dies", ["before", "after"])
@pytest.mark.parametrize("what", ["undo charge", "undo reserve"])
def test_worker_goes_on_with_an_undo_and_never_calls_the_handler_again(shop: Make, what: str, dies: str) -> None:
    made, key = refusing(shop), new_key()
    made.bank.__dict__[dies][what] = once(Crash())
    with pytest.raises(Crash):
        made.pay(key)
    with pytest.raises(NotYet):
        made.pay(key)

    until(made, Deed.FINISHED)

    assert made.bank.done == {"reserve": 1, "charge": 1, "email": 1, "undo charge": 1, "undo reserve": 1}
    assert made.plot.runs == 1
    with pytest.raises(Rejected):
        made.pay(key)


def test_undo_whose_gateway_fails_is_finished_by_the_next_request(shop: Make) -> None:
    made, key = refusing(shop, lease=timedelta(hours=1), renewal=timedelta(minutes=5)), new_key()
    made.bank.before["undo charge"] = once(GatewayDown())

    with pytest.raises(InDoubt):
        made.pay(key)
    with pytest.raises(Rejected):
        made.pay(key)

    assert made.bank.done["undo charge"] == made.bank.done["undo reserve"] == 1
    assert len(set(made.bank.keys("undo charge"))) == 1
    assert made.plot.runs == 1


def test_undo_that_the_bank_refuses_is_in_doubt(shop: Make) -> None:
    made, key = refusing(shop), new_key()
    made.bank.before["undo charge"] = once(Rejected("too late"))

    with pytest.raises(InDoubt):
        made.pay(key)

    assert made.stored().state is State.IN_DOUBT
    assert made.stored().doubt_reason == "undo-failed"
    assert made.bank.done["undo reserve"] == 0


def test_undo_that_is_out_of_tries_is_in_doubt_as_one_that_failed(shop: Make) -> None:
    made, key = refusing(shop, recoveries_limit=2), new_key()

    def fails() -> None:
        raise GatewayDown

    made.bank.before["undo charge"] = fails
    with pytest.raises(InDoubt):
        made.pay(key)

    while made.stored().state is not State.IN_DOUBT:
        made.work()

    assert made.stored().doubt_reason == "undo-failed"
    assert len(made.bank.keys("undo charge")) == 3
    assert made.bank.done["undo charge"] == made.bank.done["undo reserve"] == 0


def test_local_step_is_undone_in_one_transaction_with_the_word_that_it_was(tmp_path: Path) -> None:
    """E4: rows and checkpoint commit together, so a crash in between cannot undo twice."""
    url = f"sqlite:///{tmp_path / 'shop.db'}"
    dies = once(Crash())

    def take(connection: sqlite3.Connection, amount: int) -> int:
        connection.execute("UPDATE stock SET left = left - ?", (amount,))
        return amount

    def put_back(connection: sqlite3.Connection, amount: int) -> None:
        connection.execute("UPDATE stock SET left = left + ?", (amount,))
        dies()

    with sqlite3.connect(tmp_path / "shop.db") as stock:
        stock.execute("CREATE TABLE stock (left INTEGER)")
        stock.execute("INSERT INTO stock VALUES (10)")
    stock.close()
    with Nebis(url, housekeeping=False) as nebis:

        @nebis.operation("order", effects=Declared, undo={"take": Undo(call=put_back, recall=None)})
        def order(attempt: Attempt, command: int) -> int:
            attempt.step("take", take, command)
            raise Rejected("closed")

        with pytest.raises(Crash):
            order(key="key-of-an-order-001", tenant="acct_1", command=3)
        assert _left(tmp_path) == 7
        with pytest.raises(NotYet):
            order(key="key-of-an-order-001", tenant="acct_1", command=3)
        with pytest.raises(Rejected):
            order(key="key-of-an-order-002", tenant="acct_1", command=5)
    assert _left(tmp_path) == 7


def _left(directory: Path) -> int:
    connection = sqlite3.connect(directory / "shop.db")
    try:
        [[left]] = connection.execute("SELECT left FROM stock").fetchall()
        return int(left)
    finally:
        connection.close()


def test_caller_meets_an_undo_in_flight(shop: Make) -> None:
    made, key = refusing(shop, lease=timedelta(seconds=60), effect_timeout=timedelta(seconds=30)), new_key()
    made.is_slow = True
    inside, may_end = threading.Event(), threading.Event()

    def wait() -> None:
        inside.set()
        may_end.wait(20)

    made.bank.before["undo charge"] = wait
    ends: list[Exception] = []

    def first() -> None:
        try:
            made.pay(key)
        except Rejected as error:
            ends.append(error)

    owner = threading.Thread(target=first)
    owner.start()
    inside.wait(20)

    with pytest.raises(NotYet):
        made.pay(key)
    may_end.set()
    owner.join()

    assert len(ends) == 1
