"""The demo while its processes are killed: one charge, one booking, one receipt, whatever dies (F003, F004, F009)."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import pytest

from tests.demo.stage import Demo, Reply, wait_until

PAYMENTS = 334
REQUESTS = 500
CONNECTIONS = 20


def receipts(demo: Demo) -> Counter[str]:
    return Counter(receipt["invoice_id"] for receipt in demo.get("/v1/receipts")["receipts"])


def unbalanced(demo: Demo) -> dict[str, int]:
    sums: dict[str, int] = defaultdict(int)
    for entry in demo.get("/v1/ledger")["entries"]:
        sums[entry["transaction_id"]] += entry["amount_cents"]
    return {transaction: left for transaction, left in sums.items() if left != 0}


def keys_at_gateway(demo: Demo, bill: str) -> set[str]:
    found = demo.get("/requests", gateway=True)["requests"]
    return {request["idempotency_key"] for request in found if request["invoice_id"] == bill}


def kill_while_charging(demo: Demo, bill: str, key: str) -> None:
    """Send a payment and kill the server once its card is charged and the gateway still holds the reply."""
    demo.behave(delay_ms=8000)

    def lose() -> None:
        try:
            demo.pay(bill, key)
        except OSError:
            return

    client = threading.Thread(target=lose)
    client.start()
    wait_until(lambda: len(demo.charges(bill)) == 1, seconds=20)
    os.kill(demo.get("/healthz")["pid"], signal.SIGKILL)
    client.join()


def insist(demo: Demo, bill: str, key: str, *, pause_seconds: float, seconds: float) -> Reply:
    """Send the same request until there is a definite answer, as a good client does."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            told = demo.pay(bill, key, timeout=10)
        except OSError:
            told = None
        if told is not None and told.status not in (409, 500, 503):
            return told
        assert time.monotonic() < deadline, f"no answer after {seconds} s; the last was {told}\n{demo.said()}"
        time.sleep(pause_seconds)  # The client's own pause between two tries.


def test_a_client_that_retries_gets_its_one_charge_after_the_server_was_killed(demo: Demo) -> None:
    bill, key = f"inv_{uuid4().hex[:12]}", str(uuid4())

    kill_while_charging(demo, bill, key)
    told = insist(demo, bill, key, pause_seconds=0.5, seconds=20)
    demo.behave(delay_ms=0)

    assert told.status == 201
    assert [charge["charge_id"] for charge in demo.charges(bill)] == [told.json["charge_id"]]
    assert len(keys_at_gateway(demo, bill)) == 1
    wait_until(lambda: receipts(demo)[bill] == 1, seconds=20)
    assert unbalanced(demo) == {}


def test_the_worker_finishes_alone_what_nobody_asks_for_again(demo: Demo) -> None:
    bill, key = f"inv_{uuid4().hex[:12]}", str(uuid4())

    kill_while_charging(demo, bill, key)
    wait_until(lambda: receipts(demo)[bill] == 1, seconds=30, what=demo.said)
    demo.behave(delay_ms=0)

    assert len(demo.charges(bill)) == 1
    assert len(keys_at_gateway(demo, bill)) == 1
    late = demo.pay(bill, key)
    assert (late.status, late.is_replay) == (201, True)


@pytest.mark.timeout(300)
def test_orders_killed_after_each_thing_that_happens_are_done_or_undone(demo: Demo) -> None:
    """F005: after every event of an order that succeeds, and of one that is rejected once stock is reserved."""
    wishes = [{"sku": "apple", "quantity": 2}, {"sku": "pear", "quantity": 1001}]
    run = subprocess.run(
        [sys.executable, "-m", "tests.demo.killed_orders", json.dumps(wishes)],
        cwd=demo.folder,
        env=demo.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    orders: list[dict[str, Any]] = [json.loads(line) for line in run.stdout.splitlines()]
    died_after = {(order["body"]["sku"], order["after"]) for order in orders}
    assert {("apple", f"EffectKnown:{name}") for name in ("charge", "stock", "shipment")} <= died_after
    assert {("pear", f"EffectKnown:{name}") for name in ("charge", "stock", "undo:charge", "undo:stock")} <= died_after
    done = {order["invoice"] for order in orders if order["body"]["sku"] == "apple"}
    undone = {order["invoice"] for order in orders if order["body"]["sku"] == "pear"}

    def refunded() -> Counter[str]:
        found = demo.get("/refunds", gateway=True)["refunds"]
        return Counter(refund["invoice_id"] for refund in found if refund["amount_cents"] == 4200)

    # The worker finishes all of them, without a client.
    wait_until(
        lambda: done <= set(receipts(demo)) and undone <= set(refunded()),
        seconds=40,
        what=lambda: (done - set(receipts(demo)), undone - set(refunded()), demo.said()),
    )

    charges = Counter(charge["invoice_id"] for charge in demo.charges())
    assert {charges[bill] for bill in done | undone} == {1}
    assert {refunded()[bill] for bill in undone} == {1}
    assert not done & set(refunded())
    assert not undone & set(receipts(demo))
    told = {order["invoice"]: demo.post("/v1/orders", order["body"], order["key"]).status for order in orders}
    assert told == dict.fromkeys(done, 201) | dict.fromkeys(undone, 409)
    assert unbalanced(demo) == {}


@pytest.mark.timeout(300)
def test_a_storm_of_retries_while_every_process_is_killed_twice_charges_each_payment_once(demo: Demo) -> None:
    bills = {f"inv_{uuid4().hex[:12]}": str(uuid4()) for _ in range(PAYMENTS)}
    chance = random.Random(7)
    sent = [*bills.items(), *chance.choices(list(bills.items()), k=REQUESTS - PAYMENTS)]
    chance.shuffle(sent)
    victims = ["api", "gateway", "worker"] * 2
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        answers: list[tuple[str, Future[Reply]]] = [
            (bill, pool.submit(insist, demo, bill, key, pause_seconds=0.2, seconds=60)) for bill, key in sent
        ]
        for number, victim in enumerate(victims, start=1):
            # Spread over the storm: the next dies when so many more are answered.
            enough = number * REQUESTS // (len(victims) + 1)
            wait_until(lambda enough=enough: sum(each.done() for _, each in answers) >= enough, seconds=60)  # type: ignore[misc]
            demo.kill(victim)
        told = [(bill, each.result()) for bill, each in answers]

    assert {reply.status for _, reply in told} == {201}
    bodies: dict[str, set[bytes]] = defaultdict(set)
    for bill, reply in told:
        bodies[bill].add(reply.body)
    assert all(len(each) == 1 for each in bodies.values())
    wait_until(lambda: set(bills) <= set(receipts(demo)), seconds=60, what=demo.said)
    charges = Counter(charge["invoice_id"] for charge in demo.charges())
    counted = receipts(demo)
    assert {charges[bill] for bill in bills} == {1}
    assert {counted[bill] for bill in bills} == {1}
    assert unbalanced(demo) == {}
