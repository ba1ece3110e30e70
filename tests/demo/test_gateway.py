"""The card gateway by itself: a witness has to be right before anybody can be judged by it."""

import http.client
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.demo.stage import two_free_ports, wait_until
from tests.tidy.repository import ROOT

GATEWAY = ROOT / "examples" / "payments" / "gateway.py"


class Gateway:
    """A gateway that can be killed and started again on the same books."""

    def __init__(self, folder: Path) -> None:
        self.port = two_free_ports()
        self._file = folder / "gateway.db"
        self.start()

    def start(self) -> None:
        # Isolated: nothing of ours can be imported.
        command = [sys.executable, "-I", str(GATEWAY), "--port", str(self.port), "--file", str(self._file)]
        self.process = subprocess.Popen(command)
        wait_until(self.is_up, seconds=20)

    def is_up(self) -> bool:
        try:
            return self.call("GET", "/healthz")[0] == 200
        except OSError:
            return False

    def kill(self) -> None:
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def call(self, method: str, path: str, body: object = None, key: str | None = None) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            headers = {} if key is None else {"Idempotency-Key": key}
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()

    def charge(self, key: str, invoice: str, *, cents: int = 4200, card: str = "4242424242424242") -> tuple[int, Any]:
        body = {"invoice_id": invoice, "amount_cents": cents, "currency": "USD", "card": card}
        return self.call("POST", "/charges", body, key)

    def listed(self, name: str, invoice: str) -> list[Any]:
        return [row for row in self.call("GET", f"/{name}")[1][name] if row["invoice_id"] == invoice]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """One gateway for all tests, each with invoices of its own."""
    running = Gateway(tmp_path_factory.mktemp("gateway"))
    yield running
    running.kill()


def test_a_key_moves_money_once_and_the_books_survive_a_kill(gateway: Gateway) -> None:
    first = gateway.charge("key-1", "once")
    gateway.kill()
    gateway.start()
    again = gateway.charge("key-1", "once")

    assert first == again
    assert first[0] == 201
    assert gateway.listed("charges", "once") == [first[1]]
    assert set(first[1]) == {"charge_id", "idempotency_key", "invoice_id", "amount_cents", "created_at"}
    assert [request["idempotency_key"] for request in gateway.listed("requests", "once")] == ["key-1", "key-1"]


def test_a_decline_is_remembered_too(gateway: Gateway) -> None:
    told = [gateway.charge("key-2", "declined", card="4000000000000002") for _ in range(2)]
    gateway.call("POST", "/behaviour", {"decline_next": 1})
    told += [gateway.charge("key-3", "declined") for _ in range(2)]

    assert told == [(402, {"error": "card_declined"})] * 4
    assert gateway.listed("charges", "declined") == []


def test_a_lost_reply_is_a_charge_and_a_failure_before_is_none(gateway: Gateway) -> None:
    gateway.call("POST", "/behaviour", {"lose_reply_next": 1, "fail_before_next": 1})

    unavailable = gateway.charge("key-4", "lost")
    before = gateway.listed("charges", "lost")
    with pytest.raises(http.client.RemoteDisconnected):
        gateway.charge("key-4", "lost")

    assert (unavailable[0], before) == (503, [])
    assert [charge["idempotency_key"] for charge in gateway.listed("charges", "lost")] == ["key-4"]
    assert gateway.charge("key-4", "lost")[0] == 201
    assert len(gateway.listed("charges", "lost")) == 1


def test_only_what_is_given_changes(gateway: Gateway) -> None:
    gateway.call("POST", "/behaviour", {"delay_ms": 7, "decline_next": 2})

    told = gateway.call("POST", "/behaviour", {"decline_next": 0})

    assert told == (200, {"delay_ms": 7, "lose_reply_next": 0, "fail_before_next": 0, "decline_next": 0})
    assert gateway.call("POST", "/behaviour", {"delay_ms": "soon"})[0] == 400
    assert gateway.call("POST", "/behaviour", {"delay": 1})[0] == 400
    assert gateway.call("POST", "/behaviour", {"delay_ms": 0})[0] == 200


def test_refunds_never_exceed_their_charge(gateway: Gateway) -> None:
    charge_id = gateway.charge("key-5", "refunded")[1]["charge_id"]
    body = {"charge_id": charge_id, "amount_cents": 3000}

    first, again = [gateway.call("POST", "/refunds", body, "key-6") for _ in range(2)]
    second = gateway.call("POST", "/refunds", body, "key-7")

    assert first == again
    assert (first[0], second[0]) == (201, 409)
    assert gateway.listed("refunds", "refunded") == [first[1]]
    assert set(first[1]) == {"refund_id", "charge_id", "invoice_id", "amount_cents", "idempotency_key"}
