"""The fixtures for other people's tests: what they require, what they notice, and that they stay out of the way."""

import asyncio
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from nebis import AsyncAttempt, AsyncNebis, Attempt, Declared, InDoubt, Local, Nebis, Opaque, Rejected, Sticky, days
from nebis.runtime.blocking import BlockingTurn
from nebis.testing.repetition import crash_points, duplicate, race
from tests.tidy.repository import ROOT

PAGE = ROOT / "docs" / "how-to" / "test-your-operations.md"
PYTEST = (
    sys.executable,
    "-m",
    "pytest",
    "-q",
    "-p",
    "no:nebis",
    "-p",
    "nebis.testing.pytest_plugin",
    "-p",
    "no:cacheprovider",
)


@pytest.fixture
def shop(tmp_path: Path) -> Any:
    with Nebis(f"sqlite:///{tmp_path}/shop.db") as nebis:
        yield nebis


class Gateway:
    """A downstream that remembers keys, and one that does not."""

    def __init__(self) -> None:
        self.charged: Counter[str] = Counter()
        self._seen: set[str] = set()

    def charge(self, order: str, *, idempotency_key: str) -> str:
        if idempotency_key not in self._seen:
            self._seen.add(idempotency_key)
            self.charged[order] += 1
        return f"charge of {order}"

    def charge_blindly(self, order: str) -> str:
        self.charged[order] += 1
        return f"charge of {order}"


def test_the_page_runs_as_it_stands(tmp_path: Path) -> None:
    [block] = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), flags=re.DOTALL | re.MULTILINE)
    (tmp_path / "test_shop.py").write_text(block)

    run = subprocess.run([*PYTEST, "-W", "error"], cwd=tmp_path, capture_output=True, text=True, check=False)

    assert run.returncode == 0, run.stdout + run.stderr
    assert "4 passed" in run.stdout


def test_the_plugin_is_declared_for_everybody_who_installs_the_package() -> None:
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    assert project["entry-points"]["pytest11"] == {"nebis": "nebis.testing.pytest_plugin"}


def test_the_plugin_imports_nothing_behind_its_fixtures() -> None:
    script = "import sys, nebis.testing.pytest_plugin; print('nebis.testing.repetition' in sys.modules)"

    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert run.stdout == "False\n"


def test_a_declared_effect_happens_once_wherever_the_process_dies(shop: Nebis) -> None:
    """F002-F007."""
    gateway = Gateway()

    @shop.operation("pay", effects=Declared)
    def pay(attempt: Attempt, order: str) -> str:
        return str(attempt.effect("charge", gateway.charge, order, recall=Sticky(days(1)), returns=str))

    crashes = crash_points(pay, tenant="acct-1", command=lambda key: key)

    places = [crash.where for crash in crashes]
    assert {"before claim", "after claim", "before effect charge", "after effect charge", "after complete"} <= {*places}
    assert [crash.result for crash in crashes] == [f"charge of {crash.key}" for crash in crashes]
    assert set(gateway.charged.values()) == {1}


def test_an_opaque_effect_that_may_have_happened_is_in_doubt_and_never_repeated(shop: Nebis) -> None:
    """F003, F004."""
    gateway = Gateway()

    @shop.operation("pay", effects=Opaque)
    def pay(order: str) -> str:
        return gateway.charge_blindly(order)

    crashes = crash_points(pay, tenant="acct-1", command=lambda key: key)

    assert max(gateway.charged.values()) == 1
    endings = {crash.where: type(crash.error) for crash in crashes}
    assert issubclass(endings["after run handler"], InDoubt)
    assert endings["after complete"] is type(None)


def test_an_effect_that_hides_in_a_local_handler_is_noticed(shop: Nebis) -> None:
    """A test that uses the fixture must be able to fail: the handler promises `Local` and charges a card."""
    gateway = Gateway()

    @shop.operation("pay", effects=Local)
    def pay(order: str) -> str:
        return gateway.charge_blindly(order)

    crashes = crash_points(pay, tenant="acct-1", command=lambda key: key)

    assert "after run handler" in [crash.where for crash in crashes if gateway.charged[crash.key] == 2]


def test_rows_of_a_transaction_are_there_once_wherever_the_process_dies(shop: Nebis) -> None:
    """F012: rows and answer are one commit."""

    @shop.operation("book", effects=Local)
    def book(attempt: Attempt, order: str) -> str:
        with attempt.transaction() as tx:
            tx.connection.execute("CREATE TABLE IF NOT EXISTS booking (order_id TEXT)")
            tx.connection.execute("INSERT INTO booking VALUES (?)", (order,))
            tx.finish(order)
        return order

    @shop.operation("count", effects=Local)
    def count(attempt: Attempt, order: str) -> int:
        with attempt.transaction() as tx:
            number = int(
                tx.connection.execute("SELECT count(*) FROM booking WHERE order_id = ?", (order,)).fetchone()[0]
            )
            tx.finish(number)
        return number

    crashes = crash_points(book, tenant="acct-1", command=lambda key: key)

    assert "after transaction commit" in [crash.where for crash in crashes]
    assert {count(key=f"count-{crash.key}", tenant="acct-1", command=crash.key) for crash in crashes} == {1}


def test_an_asyncio_operation_dies_and_recovers_in_the_same_places(tmp_path: Path) -> None:
    gateway = Gateway()

    async def charge(order: str, *, idempotency_key: str) -> str:
        return gateway.charge(order, idempotency_key=idempotency_key)

    async def main() -> list[Any]:
        async with AsyncNebis(f"sqlite:///{tmp_path}/shop.db") as nebis:

            @nebis.operation("pay", effects=Declared)
            async def pay(attempt: AsyncAttempt, order: str) -> str:
                return str(await attempt.effect("charge", charge, order, recall=Sticky(days(1)), returns=str))

            await duplicate(pay, tenant="acct-1", command="order-1")
            await race(pay, tenant="acct-1", command="order-2")
            found: list[Any] = await crash_points(pay, tenant="acct-1", command=lambda key: key)
            return found

    crashes = asyncio.run(main())

    assert "after effect charge" in [crash.where for crash in crashes]
    assert [crash.result for crash in crashes] == [f"charge of {crash.key}" for crash in crashes]
    assert set(gateway.charged.values()) == {1}


def test_twins_and_retries_of_an_operation_run_once(shop: Nebis) -> None:
    runs: list[str] = []

    @shop.operation("pay", effects=Local)
    def pay(order: str) -> str:
        runs.append(order)
        return order

    assert [one.is_replay for one in duplicate(pay, tenant="acct-1", command="order-1")] == [False, True, True]
    assert sum(not one.is_replay for one in race(pay, tenant="acct-1", command="order-2", count=6)) == 1
    assert runs == ["order-1", "order-2"]


def test_a_key_that_was_used_before_is_told(shop: Nebis) -> None:
    @shop.operation("pay", effects=Local)
    def pay(order: str) -> str:
        return order

    pay(key="key-1", tenant="acct-1", command="order-1")

    with pytest.raises(AssertionError, match="use a key that is new"):
        duplicate(pay, tenant="acct-1", command="order-1", key="key-1")


def test_a_rejection_is_an_ending_like_any_other_and_nothing_stays_patched(shop: Nebis) -> None:
    performs = BlockingTurn.performs

    @shop.operation("pay", effects=Local)
    def pay(order: str) -> str:
        raise Rejected("declined")

    crashes = crash_points(pay, tenant="acct-1", command="order-1")

    assert {type(crash.error) for crash in crashes} == {Rejected}
    assert BlockingTurn.performs is performs
