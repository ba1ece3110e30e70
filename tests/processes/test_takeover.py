"""Owners that stop, die or are locked out, in real processes.

Leases are real here, so these tests wait for them to pass; nothing is asserted about how long anything takes.
"""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import psycopg
import pytest

from nebis import Attempt, Execution, InDoubt, Local, Nebis, NotYet, Opaque, Operation
from nebis.core.record import EffectsMode, Record, RecordId, State
from tests.processes.child import OPERATION, TENANT
from tests.processes.company import Process, runs

LEASE = timedelta(seconds=3)
KEY = "key-of-a-takeover-01"


@contextmanager
def successor(url: str, effects: EffectsMode = Local) -> Iterator[Operation[str, str]]:
    """Another owner of the same operation, in this process."""
    with Nebis(url) as nebis:

        @nebis.operation(OPERATION, effects=effects, lease=LEASE, renewal=LEASE / 3, effect_timeout=LEASE / 2)
        def pay(attempt: Attempt, command: str) -> str:
            return "the winner's"

        yield pay


def insisting(operation: Operation[str, str]) -> Execution[str]:
    """Ask until the other owner's lease is over, as a client that was told to come back does."""
    while True:
        try:
            return operation.execute(key=KEY, tenant=TENANT, command=KEY)
        except NotYet as told:
            time.sleep(min(told.retry_after_seconds, 0.2))  # The lease of a process that cannot answer must pass.


def stored(url: str, operation_id: str) -> Record:
    with Nebis(url) as nebis:
        backend = nebis.opened()[0].backend
        record = backend.sessions.run(backend.store.find_by_id(RecordId(UUID(operation_id))))
        assert record is not None
        return record


def owner(url: str, witness: Path, effects: str = "local") -> Process:
    return Process("attempt", url, witness, KEY, effects, LEASE.total_seconds())


def test_owner_that_was_stopped_past_its_lease_changes_nothing_and_answers_with_the_winners_bytes(
    url: str, witness: Path
) -> None:
    """F048, F050: SIGSTOP inside the handler, a takeover, SIGCONT."""
    with owner(url, witness) as stopped:
        assert stopped.hear() == {"running": 1}
        stopped.stop()
        with successor(url) as pay:
            won = insisting(pay)
        before = stored(url, won.operation_id)

        stopped.go_on_again()
        stopped.go_on()

        assert stopped.hear() == {"answer": "the winner's", "is_replay": True}
    assert won.result == "the winner's"
    assert stored(url, won.operation_id) == before
    assert before.attempts == 2


def test_opaque_owner_that_was_stopped_is_in_doubt_and_may_still_end_it(url: str, witness: Path) -> None:
    """F049: nobody runs it again; the fence did not move, so the late owner's outcome is the truth."""
    with owner(url, witness, "opaque") as stopped:
        assert stopped.hear() == {"running": 1}
        stopped.stop()
        with successor(url, Opaque) as pay:
            with pytest.raises(InDoubt) as told:
                insisting(pay)
            stopped.go_on_again()
            stopped.go_on()
            assert stopped.hear() == {"completed": True}
            stopped.go_on()
            assert stopped.hear() == {"answer": f"by {stopped.pid}", "is_replay": False}

            assert insisting(pay).result == f"by {stopped.pid}"
    assert runs(witness) == {KEY: 1}
    assert stored(url, str(told.value.operation_id)).state is State.COMPLETED


def test_killed_owner_is_taken_over_by_the_next_request(url: str, witness: Path) -> None:
    """F002: kill -9 right after the claim."""
    with owner(url, witness) as killed:
        assert killed.hear() == {"running": 1}
        killed.kill()

    with successor(url) as pay:
        won = insisting(pay)
        again = insisting(pay)

    assert (won.result, won.is_replay) == ("the winner's", False)
    assert (again.result, again.is_replay) == ("the winner's", True)
    assert stored(url, won.operation_id).attempts == 2


def test_killed_opaque_owner_leaves_doubt_and_never_a_second_run(url: str, witness: Path) -> None:
    """F004: what it did before it died cannot be known."""
    with owner(url, witness, "opaque") as killed:
        assert killed.hear() == {"running": 1}
        killed.kill()

    with successor(url, Opaque) as pay:
        for _ in range(2):
            with pytest.raises(InDoubt):
                insisting(pay)

    assert runs(witness) == {KEY: 1}


def test_owner_killed_between_commit_and_answer_is_replayed(url: str, witness: Path) -> None:
    """F007: the client never heard, and gets the very same answer."""
    with owner(url, witness) as killed:
        assert killed.hear() == {"running": 1}
        killed.go_on()
        assert killed.hear() == {"completed": True}
        killed.kill()

        with successor(url) as pay:
            answered = pay.execute(key=KEY, tenant=TENANT, command=KEY)

        assert (answered.result, answered.is_replay) == (f"by {killed.pid}", True)
    assert runs(witness) == {KEY: 1}


def test_forked_processes_each_use_connections_of_their_own(url: str, witness: Path) -> None:
    """F094: forked with an open store and while an attempt runs; parent and children go on."""
    with Process("fork", url, witness, 4) as parent:
        told = parent.hear()

    assert told["statuses"] == [0, 0, 0, 0]
    assert told["before"] == f"before by {told['pid']}"
    assert told["across"] == f"slow by {told['pid']}"
    assert len(set(told["after"])) == 4
    assert runs(witness) == {"before": 1, "slow": 1, "child": 4}


class Crowd:
    """Several attempts that run until they are told to end."""

    def __init__(self, url: str, size: int) -> None:
        self.nebis = Nebis(url)
        self.keys = [f"key-of-the-crowd-{number:03}" for number in range(size)]
        self.may_end = threading.Event()
        self.lost: list[str] = []
        self.running = threading.Semaphore(0)
        self.ids: dict[str, str] = {}

        @self.nebis.operation("crowd", effects=Local, lease=LEASE, renewal=LEASE / 4, effect_timeout=LEASE / 2)
        def work(attempt: Attempt, command: str) -> int:
            self.ids[command] = attempt.operation_id
            self.running.release()
            self.may_end.wait()
            if attempt.lost:
                self.lost.append(command)
            return attempt.number

        self.work = work

    def call(self, key: str) -> int:
        return self.work(key=key, tenant=TENANT, command=key)


@contextmanager
def held(url: str, operation_id: str) -> Iterator[None]:
    """Hold one record locked in somebody's open transaction."""
    with psycopg.connect(url) as stranger:
        stranger.execute("SELECT 1 FROM nebis_record WHERE record_id = %s FOR UPDATE", (operation_id,))
        yield
        stranger.rollback()


def test_record_that_somebody_holds_locked_harms_no_other(postgres_url: str) -> None:
    """One open transaction, for two leases: every other record keeps its lease and no other claim fails."""
    crowd = Crowd(postgres_url, 12)
    with crowd.nebis, ThreadPoolExecutor(12) as pool:
        attempts = [pool.submit(crowd.call, key) for key in crowd.keys]
        for _ in attempts:
            crowd.running.acquire()
        locked, *others = [crowd.ids[key] for key in crowd.keys]

        with successor(postgres_url) as pay, held(postgres_url, locked):
            begun = now(crowd.nebis)
            claims = 0
            while not all_live_on(crowd.nebis, others, begun + 2 * LEASE // timedelta(microseconds=1)):
                assert pay(key=f"key-of-a-stranger-{claims:04}", tenant=TENANT, command="pay") == "the winner's"
                claims += 1
                time.sleep(0.05)  # Two leases must really pass while the lock is held.
            assert claims > 1
            assert not all_live_on(crowd.nebis, [locked], begun + 2 * LEASE // timedelta(microseconds=1))

        crowd.may_end.set()
        assert [attempt.result() for attempt in attempts] == [1] * len(attempts)
    assert crowd.lost == []


def now(nebis: Nebis) -> int:
    backend = nebis.opened()[0].backend
    return backend.sessions.run(backend.store.clock())


def all_live_on(nebis: Nebis, operation_ids: list[str], until: int) -> bool:
    """Tell whether every one of these records is still its first owner's and has a lease beyond that instant."""
    backend = nebis.opened()[0].backend
    for operation_id in operation_ids:
        record = backend.sessions.run(backend.store.find_by_id(RecordId(UUID(operation_id))))
        assert record is not None
        assert record.attempts == 1
        if record.lease_until <= until:
            return False
    return True
