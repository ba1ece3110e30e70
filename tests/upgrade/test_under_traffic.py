"""A migration while requests run: none fails, none runs twice (F115)."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import psycopg

from nebis import Attempt, Local, Nebis, uuid4_key
from tests.cli.command import nebis, start_nebis
from tests.upgrade.older_code import opened_by_older_code

REQUESTS_PER_SECOND = 200
THREADS = 8
NAMES = (
    *("0002_counters_and_attempts", "0003_people", "0004_messages", "0005_velocity", "0006_ids_that_lead"),
    *("0007_plain_checks", "0008_fewer_checks", "0009_less_log"),
)
APPLIED = "".join(f"applied {name}\n" for name in NAMES)


@dataclass(frozen=True)
class Pay:
    invoice: str


@dataclass
class Traffic:
    """What clients sent and what they saw."""

    ran: list[str] = field(default_factory=list)
    answers: dict[str, str] = field(default_factory=dict)
    failures: list[BaseException] = field(default_factory=list)
    longest_seconds: float = 0.0
    reached: threading.Condition = field(default_factory=threading.Condition)

    def wait_for(self, more: int) -> None:
        """Wait until so many more requests were answered."""
        with self.reached:
            goal = len(self.answers) + more
            assert self.reached.wait_for(lambda: len(self.answers) >= goal or self.failures, timeout=60)


def serving(application: Nebis, traffic: Traffic) -> Callable[[str], str]:
    @application.operation("pay", effects=Local)
    def pay(attempt: Attempt, command: Pay) -> str:
        traffic.ran.append(command.invoice)
        return f"paid {command.invoice} as {attempt.new_id('payment')}"

    return lambda key: pay(tenant="acct_1", key=key, command=Pay(invoice=key))


@contextmanager
def clients(call: Callable[[str], str], traffic: Traffic) -> Iterator[None]:
    """Send a steady stream, every request twice: once for the work and once for the replay."""
    is_over = threading.Event()

    def send() -> None:
        due = time.monotonic()
        while not is_over.is_set():
            key = uuid4_key()
            try:
                started = time.monotonic()
                answer = call(key)
                assert call(key) == answer
                took_seconds = time.monotonic() - started
            except BaseException as error:  # noqa: BLE001 - whatever a client sees is the finding.
                traffic.failures.append(error)
                return
            with traffic.reached:
                traffic.answers[key] = answer
                traffic.longest_seconds = max(traffic.longest_seconds, took_seconds)
                traffic.reached.notify_all()
            due = max(due + 2 * THREADS / REQUESTS_PER_SECOND, time.monotonic() - 1)
            is_over.wait(max(0, due - time.monotonic()))

    threads = [threading.Thread(target=send) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        is_over.set()
        for thread in threads:
            thread.join()


def check(url: str, traffic: Traffic) -> None:
    assert traffic.failures == []
    assert Counter(traffic.ran) == dict.fromkeys(traffic.answers, 1)
    with Nebis(url) as newer:
        call = serving(newer, traffic)
        runs = len(traffic.ran)
        assert {key: call(key) for key in list(traffic.answers)[::10]} == dict(list(traffic.answers.items())[::10])
        assert len(traffic.ran) == runs


def test_a_migration_under_traffic_fails_no_request_and_repeats_none(url: str) -> None:
    traffic = Traffic()
    with opened_by_older_code(url) as older, clients(serving(older, traffic), traffic):
        traffic.wait_for(100)
        outcome = nebis("migrate", "apply", store=url)
        traffic.wait_for(100)

    assert (outcome.status, outcome.stdout) == (0, APPLIED)
    check(url, traffic)


def test_a_migration_that_has_to_wait_keeps_no_request_waiting(postgres_url: str) -> None:
    """A change of a table queues behind a long transaction, and everybody else would queue behind the change."""
    traffic = Traffic()
    with (
        opened_by_older_code(postgres_url) as older,
        psycopg.connect(postgres_url) as user,
        clients(serving(older, traffic), traffic),
    ):
        traffic.wait_for(50)
        user.execute("LOCK TABLE nebis_record IN ROW EXCLUSIVE MODE")
        process = start_nebis("migrate", "apply", store=postgres_url)
        assert process.stderr is not None
        refusals = [process.stderr.readline() for _ in range(3)]
        traffic.wait_for(50)
        user.rollback()
        stdout, _ = process.communicate(timeout=60)
        traffic.wait_for(50)

    assert all("trying again in" in refusal for refusal in refusals)
    assert (process.returncode, stdout) == (0, APPLIED)
    check(postgres_url, traffic)
