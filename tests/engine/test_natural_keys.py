"""A unique row of the application's own, met again under a fresh key: the original answer, and one row."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from nebis import (
    AsyncAttempt,
    AsyncNebis,
    Attempt,
    Declared,
    Local,
    NaturalKeyReused,
    Nebis,
    Opaque,
    OriginalUnsettled,
    Rejected,
    StoreUnavailable,
    minutes,
)
from nebis.answering import original
from nebis.core.record import Outcome, OutcomeKind, State
from nebis.ports.store import DefiniteFailure
from nebis.stores import open_blocking
from tests.engines.postgres import PostgresServer

TWINS = 8
TABLE = "CREATE TABLE payment (reference TEXT PRIMARY KEY, amount INTEGER NOT NULL, operation_id TEXT NOT NULL)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Payment:
    reference: str
    amount: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Paid:
    id: str
    amount: int


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty store."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'shop.db'}"
    server: PostgresServer = request.getfixturevalue("postgres_server")
    return server.create_database()


@pytest.fixture
def nebis(url: str) -> Iterator[Nebis]:
    with Nebis(url) as opened:
        yield opened


class Shop:
    """A shop whose payments are unique by the merchant's reference."""

    def __init__(self, nebis: Nebis, **options: Any) -> None:
        self.nebis = nebis
        self.mark = "?" if str(nebis._location).startswith("sqlite") else "%s"
        self.options = {"effects": Local, **options}
        self.runs = 0
        self.entered = threading.Event()

        @nebis.operation("prepare", effects=Local)
        def prepare(attempt: Attempt, command: None) -> None:
            with attempt.transaction() as tx:
                tx.connection.execute(TABLE)
                tx.finish(None)

        prepare(key=str(uuid4()), tenant="shop", command=None)

        @nebis.operation("pay", **self.options)
        def pay(attempt: Attempt, command: Payment) -> Paid:
            self.runs += 1
            paid = Paid(id=str(attempt.new_id("payment")), amount=command.amount)
            row = (command.reference, command.amount, attempt.operation_id)
            with attempt.transaction() as tx:
                places = ", ".join([self.mark] * 3)
                made = tx.connection.execute(f"INSERT INTO payment VALUES ({places}) ON CONFLICT DO NOTHING", row)
                if made.rowcount == 0:
                    paid = attempt.original(self.maker(tx.connection, command.reference)) or Paid(
                        id="from the row", amount=command.amount
                    )
                tx.finish(paid)
            return paid

        self.pay = pay

    def maker(self, connection: Any, reference: str) -> str:
        query = f"SELECT operation_id FROM payment WHERE reference = {self.mark}"
        [found] = connection.execute(query, (reference,)).fetchone()
        return str(found)

    def ask(self, reference: str, *, amount: int = 5, key: str | None = None, tenant: str = "shop") -> Paid:
        command = Payment(reference=reference, amount=amount)
        return self.pay(key=key or str(uuid4()), tenant=tenant, command=command)


def test_fresh_keys_at_once_on_one_reference_make_one_row_and_get_one_answer(nebis: Nebis) -> None:
    """P17."""
    shop, together = Shop(nebis), threading.Barrier(TWINS)
    keys = [str(uuid4()) for _ in range(TWINS)]

    def ask(key: str) -> Paid:
        together.wait()
        return shop.ask("order-1", key=key)

    with ThreadPoolExecutor(TWINS) as threads:
        answers = list(threads.map(ask, keys))

    assert len(set(answers)) == 1
    assert answers[0].id != "from the row"
    assert shop.runs == TWINS
    assert [shop.ask("order-1", key=key) for key in keys] == answers
    assert shop.runs == TWINS  # Each key has an answer of its own by now, the same one.
    assert shop.ask("order-2") != answers[0]


def test_another_command_for_the_same_reference_is_refused_and_its_key_stays_free(nebis: Nebis) -> None:
    shop, key = Shop(nebis), str(uuid4())
    first = shop.ask("order-1")

    with pytest.raises(NaturalKeyReused):
        shop.ask("order-1", amount=6, key=key)

    assert shop.ask("order-1", key=key) == first
    assert shop.ask("order-2", amount=6, key=str(uuid4())).amount == 6


def test_nobody_is_shown_what_another_tenant_was_answered(nebis: Nebis) -> None:
    """SEC01."""
    shop = Shop(nebis)
    shop.ask("order-1")

    assert shop.ask("order-1", tenant="other").id == "from the row"


def test_the_row_answers_where_the_record_is_gone(nebis: Nebis, url: str) -> None:
    shop = Shop(nebis, retention=minutes(10), metadata_retention=minutes(10))
    first = shop.ask("order-1")
    backend = open_blocking(url)
    try:
        now = backend.sessions.run(backend.store.clock()) + 3_600_000_000
        backend.sessions.run(backend.store.sweep(limit=100, now=now))
    finally:
        backend.sessions.close()

    again = shop.ask("order-1")

    assert (again.id, again.amount) == ("from the row", first.amount)


def test_an_original_that_runs_is_waited_for_by_its_repetition() -> None:
    """The second is told 409 and keeps nothing under its key; once the first has ended it gets its answer."""
    rows: dict[str, str] = {}
    entered, leave = threading.Event(), threading.Event()
    with Nebis("memory://") as nebis:

        @nebis.operation("pay", effects=Opaque)
        def pay(attempt: Attempt, command: Payment) -> Paid:
            if command.reference in rows:
                found = attempt.original(rows[command.reference])
                assert isinstance(found, Paid)
                return found
            rows[command.reference] = attempt.operation_id
            entered.set()
            assert leave.wait(20)
            return Paid(id=attempt.operation_id, amount=command.amount)

        command, second = Payment(reference="order-1", amount=5), str(uuid4())
        with ThreadPoolExecutor(1) as thread:
            first = thread.submit(pay, key=str(uuid4()), tenant="shop", command=command)
            assert entered.wait(20)
            try:
                with pytest.raises(OriginalUnsettled):
                    pay(key=second, tenant="shop", command=command)
            finally:
                leave.set()

            answer = first.result()
            assert pay(key=second, tenant="shop", command=command) == answer


def test_a_successor_that_meets_its_own_row_goes_on() -> None:
    """The first attempt left the row and died: what it made is its own, and not somebody's answer."""
    with Nebis("memory://") as nebis:

        @nebis.operation("pay", effects=Declared)
        def pay(attempt: Attempt, command: Payment) -> Paid:
            assert attempt.original(attempt.operation_id) is None
            return Paid(id="own", amount=command.amount)

        assert pay(key=str(uuid4()), tenant="shop", command=Payment(reference="order-1", amount=5)).id == "own"


def test_a_rejection_is_the_original_answer_too() -> None:
    rows: dict[str, str] = {}
    with Nebis("memory://") as nebis:

        @nebis.operation("pay", effects=Opaque)
        def pay(attempt: Attempt, command: Payment) -> Paid:
            if command.reference in rows:
                return attempt.original(rows[command.reference])  # type: ignore[no-any-return]  # It raises.
            rows[command.reference] = attempt.operation_id
            raise Rejected("declined")

        for _ in range(2):
            with pytest.raises(Rejected, match="declined"):
                pay(key=str(uuid4()), tenant="shop", command=Payment(reference="order-1", amount=5))


@pytest.mark.parametrize("kind", [OutcomeKind.UNKNOWN, OutcomeKind.UNSTORABLE])
def test_an_outcome_without_an_answer_has_nothing_to_show(kind: OutcomeKind) -> None:
    with Nebis("memory://") as nebis:

        @nebis.operation("pay", effects=Opaque)
        def pay(command: Payment) -> Paid:
            return Paid(id="1", amount=command.amount)

        assert pay.declaration.reveal(Outcome(kind=kind, body=b"")) is None


def test_a_fingerprint_that_nobody_can_compare_is_never_guessed() -> None:
    """F104."""
    seen: list[tuple[Any, ...]] = []
    with Nebis("memory://") as nebis:

        @nebis.operation("pay", effects=Opaque)
        def pay(attempt: Attempt, command: Payment) -> Paid:
            seen.append((attempt._request, attempt.record))
            return Paid(id=attempt.operation_id, amount=command.amount)

        for _ in range(2):
            pay(key=str(uuid4()), tenant="shop", command=Payment(reference="order-1", amount=5))
        (_, first), (request, second) = seen
        found = nebis.find(first.record_id)

    assert found is not None
    assert isinstance(original(request, second, found), Paid)
    assert original(request, second, replace(found, fingerprint_version=999)) is None
    assert original(request, second, replace(found, operation="other")) is None
    assert original(request, second, replace(found, state=State.EXPIRED, outcome=None)) is None
    assert original(request, second, None) is None


def test_a_store_that_cannot_be_read_is_said_to_be_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    with Nebis("memory://") as nebis:

        @nebis.operation("pay", effects=Local)
        def pay(attempt: Attempt, command: Payment) -> Paid:
            world, _ = nebis.opened()
            monkeypatch.setattr(world.backend.store, "find_by_id", _refuse)
            return attempt.original(uuid4())  # type: ignore[no-any-return]  # It raises.

        with pytest.raises(StoreUnavailable):
            pay(key=str(uuid4()), tenant="shop", command=Payment(reference="order-1", amount=5))


def _refuse(*_: Any) -> Any:
    raise DefiniteFailure("it is gone")


@pytest.mark.parametrize("scheme", ["postgresql", "postgresql+asyncpg"])
def test_tasks_with_fresh_keys_make_one_row_and_get_one_answer(postgres_url: str, scheme: str) -> None:
    place: Callable[[int], str] = "${}".format if "asyncpg" in scheme else lambda _: "%s"

    async def scene() -> list[Paid]:
        async with AsyncNebis(postgres_url.replace("postgresql", scheme, 1)) as nebis:

            @nebis.operation("pay", effects=Local)
            async def pay(attempt: AsyncAttempt, command: Payment) -> Paid:
                row = (command.reference, command.amount, attempt.operation_id)
                async with attempt.transaction() as tx:
                    made = f"INSERT INTO payment VALUES ({place(1)}, {place(2)}, {place(3)}) ON CONFLICT DO NOTHING"
                    if await _rows(tx.connection, made, row):
                        tx.finish(Paid(id=attempt.operation_id, amount=command.amount))
                    else:
                        query = f"SELECT operation_id FROM payment WHERE reference = {place(1)}"
                        tx.finish(await attempt.original(await _one(tx.connection, query, command.reference)))
                return Paid(id="", amount=0)

            @nebis.operation("prepare", effects=Local)
            async def prepare(attempt: AsyncAttempt, command: None) -> None:
                async with attempt.transaction() as tx:
                    await tx.execute(TABLE)
                    tx.finish(None)

            await prepare(key=str(uuid4()), tenant="shop", command=None)
            command = Payment(reference="order-1", amount=5)
            return await asyncio.gather(*(pay(key=str(uuid4()), tenant="shop", command=command) for _ in range(TWINS)))

    answers = asyncio.run(scene())

    assert len(set(answers)) == 1
    assert answers[0].id


async def _rows(connection: Any, text: str, row: tuple[object, ...]) -> int:
    if "asyncpg" in type(connection).__module__:
        return int((await connection.execute(text, *row)).rpartition(" ")[2])
    rows: int = (await connection.execute(text, row)).rowcount
    return rows


async def _one(connection: Any, text: str, value: str) -> str:
    if "asyncpg" in type(connection).__module__:
        return str(await connection.fetchval(text, value))
    [found] = await (await connection.execute(text, (value,))).fetchone()
    return str(found)
