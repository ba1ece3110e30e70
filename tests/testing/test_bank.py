"""The bank that the promise is measured against has to keep its own word first."""

import ast
import http.client
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import nebis.testing.bank
from nebis.testing.bank import Bank, BankProcess
from nebis.testing.bank.behaviours import Kind
from nebis.testing.bank.books import Mode

NO_ANSWER = (OSError, http.client.HTTPException)
KEYED = [Mode.STICKY, Mode.SUCCESS_ONLY, Mode.FENCED]


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bank]:
    """A bank in a process of its own; each test uses references of its own."""
    with BankProcess(tmp_path_factory.mktemp("bank") / "bank.db") as process:
        yield process.bank


@pytest.fixture
def reference(request: pytest.FixtureRequest) -> str:
    """A reference that no other test uses, and also a key."""
    return str(request.node.name)


def charge(bank: Bank, mode: Mode, reference: str, *, fence: int = 1, **marks: Any) -> tuple[int, dict[str, Any]]:
    reply = bank.charge(mode, reference, key=reference, fence=fence if mode is Mode.FENCED else None, **marks)
    return reply.status, reply.body


def test_it_uses_none_of_the_code_that_it_witnesses_against() -> None:
    """Its own modules import the standard library and each other."""
    folder = Path(nebis.testing.bank.__file__).parent
    imported = {
        module
        for file in folder.glob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        for module in (
            [node.module]
            if isinstance(node, ast.ImportFrom) and node.module
            else [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else []
        )
    }

    foreign = {module for module in imported if module.partition(".")[0] not in sys.stdlib_module_names}

    assert foreign
    assert all(module.startswith("nebis.testing.bank") for module in foreign)


@pytest.mark.parametrize("mode", [Mode.OPAQUE, Mode.QUERYABLE])
def test_counter_without_memory_charges_every_call(bank: Bank, reference: str, mode: Mode) -> None:
    first, second = charge(bank, mode, reference), charge(bank, mode, reference)

    assert (first[0], second[0]) == (201, 201)
    assert first[1]["charge"] != second[1]["charge"]
    assert len(bank.ledger(reference)) == 2


@pytest.mark.parametrize("mode", KEYED)
def test_counter_with_memory_charges_once_and_repeats_its_answer(bank: Bank, reference: str, mode: Mode) -> None:
    first = charge(bank, mode, reference)
    again = charge(bank, mode, reference, fence=2)

    assert first == again
    assert len(bank.ledger(reference)) == 1
    assert [request["status"] for request in bank.requests(reference)] == [201, 201]


def test_twins_at_one_counter_are_charged_once(bank: Bank, reference: str) -> None:
    with ThreadPoolExecutor(16) as pool:
        answers = [pool.submit(charge, bank, Mode.STICKY, reference) for _ in range(64)]

    assert len({answer.result()[1]["charge"] for answer in answers}) == 1
    assert len(bank.ledger(reference)) == 1


@pytest.mark.parametrize(
    ("mode", "second"), [(Mode.STICKY, 402), (Mode.SUCCESS_ONLY, 201), (Mode.FENCED, 201), (Mode.OPAQUE, 201)]
)
def test_only_the_sticky_counter_remembers_that_it_declined(
    bank: Bank, reference: str, mode: Mode, second: int
) -> None:
    bank.behave(reference, Kind.DECLINE)

    assert charge(bank, mode, reference)[0] == 402
    assert charge(bank, mode, reference)[0] == second
    assert len(bank.ledger(reference)) == (second == 201)


def test_fenced_counter_refuses_a_fence_below_the_highest_that_it_saw(bank: Bank, reference: str) -> None:
    bank.behave(reference, Kind.DECLINE)
    assert charge(bank, Mode.FENCED, reference, fence=7)[0] == 402

    assert charge(bank, Mode.FENCED, reference, fence=6)[0] == 409
    assert bank.ledger(reference) == []
    assert charge(bank, Mode.FENCED, reference, fence=7)[0] == 201
    assert charge(bank, Mode.FENCED, reference, fence=6)[0] == 409
    assert len(bank.ledger(reference)) == 1


def test_key_of_another_charge_is_refused(bank: Bank, reference: str) -> None:
    charge(bank, Mode.STICKY, reference, amount=5)

    assert charge(bank, Mode.STICKY, reference, amount=6)[0] == 422
    assert [entry["amount"] for entry in bank.ledger(reference)] == [5]


def test_queryable_counter_burns_what_did_not_happen(bank: Bank, reference: str) -> None:
    assert bank.find(reference) is None
    assert bank.void(reference)
    assert charge(bank, Mode.QUERYABLE, reference)[0] == 410
    assert bank.ledger(reference) == []


def test_queryable_counter_tells_what_happened_and_does_not_void_it(bank: Bank, reference: str) -> None:
    _, made = charge(bank, Mode.QUERYABLE, reference)

    assert bank.find(reference) == made
    assert not bank.void(reference)


def test_lost_reply_is_lost_after_the_charge(bank: Bank, reference: str) -> None:
    bank.behave(reference, Kind.LOSE_REPLY)

    with pytest.raises(NO_ANSWER):
        charge(bank, Mode.STICKY, reference)

    assert len(bank.ledger(reference)) == 1
    assert charge(bank, Mode.STICKY, reference)[0] == 201
    assert [request["behaviour"] for request in bank.requests(reference)] == ["lose_reply", None]


def test_call_that_fails_before_is_not_charged(bank: Bank, reference: str) -> None:
    bank.behave(reference, Kind.FAIL_BEFORE, times=2)

    assert [charge(bank, Mode.STICKY, reference)[0] for _ in range(3)] == [503, 503, 201]
    assert len(bank.ledger(reference)) == 1


def test_delayed_call_lands_although_its_sender_is_gone(bank: Bank, reference: str) -> None:
    bank.behave(reference, Kind.DELAY_BEFORE, seconds=60)
    with pytest.raises(NO_ANSWER):
        charge(bank, Mode.OPAQUE, reference, timeout_seconds=0.05)
    assert bank.ledger(reference) == []

    bank.release(reference)

    wait_for(lambda: len(bank.ledger(reference)) == 1)


def test_delay_after_holds_the_reply_and_not_the_charge(bank: Bank, reference: str) -> None:
    bank.behave(reference, Kind.DELAY_AFTER, seconds=60)
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(charge, bank, Mode.OPAQUE, reference)
        wait_for(lambda: len(bank.ledger(reference)) == 1)
        assert not answer.done()

        bank.release(reference)

        assert answer.result()[0] == 201


@pytest.mark.parametrize(
    ("path", "body", "headers"),
    [
        ("/sticky/charges", {"reference": "r", "amount": 1}, {}),
        ("/fenced/charges", {"reference": "r", "amount": 1}, {"Idempotency-Key": "k"}),
        ("/opaque/charges", {"reference": "r"}, {}),
        ("/opaque/charges", [], {}),
        ("/behaviours", {"reference": "r", "kind": "dance"}, {}),
    ],
)
def test_request_that_it_does_not_understand_is_refused(
    bank: Bank, path: str, body: object, headers: dict[str, str]
) -> None:
    assert bank._ask("POST", path, body, headers).status == 400


def test_what_was_answered_survives_a_kill(tmp_path: Path) -> None:
    with BankProcess(tmp_path / "bank.db") as process:
        first = charge(process.bank, Mode.STICKY, "r")
        process.kill()

    with BankProcess(tmp_path / "bank.db") as process:
        assert len(process.bank.ledger()) == 1
        assert charge(process.bank, Mode.STICKY, "r") == first
        assert len(process.bank.ledger()) == 1


@pytest.mark.parametrize("table", ["ledger", "request", "reply"])
def test_books_are_only_ever_appended_to(tmp_path: Path, table: str) -> None:
    with BankProcess(tmp_path / "bank.db") as process:
        charge(process.bank, Mode.STICKY, "r")

    with sqlite3.connect(tmp_path / "bank.db") as books:
        for change in (f"DELETE FROM {table}", f"UPDATE {table} SET at = 0"):
            with pytest.raises(sqlite3.IntegrityError, match="only ever appended to"):
                books.execute(change)
    books.close()


def test_it_ends_when_whoever_started_it_is_gone(tmp_path: Path) -> None:
    with BankProcess(tmp_path / "bank.db") as process:
        assert process.leave() == 0


def wait_for(condition: Callable[[], bool]) -> None:
    """Wait until another process did what it was told; bounded, since it may never do it."""
    pause = threading.Event()
    for _ in range(1000):
        if condition():
            return
        pause.wait(0.01)
    raise AssertionError("the bank did not do it within ten seconds")
