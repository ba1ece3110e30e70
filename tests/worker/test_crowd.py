"""Many lapsed records, many that nobody can run, and many workers."""

import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from nebis import Local, Nebis
from nebis.core.envelope import seal
from nebis.core.record import State
from nebis.core.verbs import Claim
from nebis.ports.store import Scan
from nebis.runtime.entropy import draw
from nebis.worker import Deed, Report, Worker

GOOD, BAD, WORKERS = 1000, 1000, 8
LONG_AGO_US = 3_600_000_000


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty store."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'nebis.db'}"
    location: str = request.getfixturevalue("postgres_url")
    return location


@contextmanager
def process(url: str, runs: Counter[str], lock: threading.Lock) -> Iterator[Nebis]:
    """One of many processes that know the operation."""
    with Nebis(url, housekeeping=False) as nebis:

        @nebis.operation("pay", effects=Local)
        def pay(command: str) -> str:
            with lock:
                runs[command] += 1
            return f"paid {command}"

        yield nebis


def lapsed(nebis: Nebis, operation: str, number: int, *, command: bytes | None = None) -> Claim:
    """Return the claim of an owner that is gone."""
    pay = nebis.operations["pay"].declaration
    key = f"key-of-{operation}-{number:05}"
    request = pay.call(nebis.opened()[1], key=key, tenant="acct_1", command=key)
    drawn = draw()
    claim = request.claim(drawn.record_id, drawn.nonce)
    terms = replace(claim.terms, operation=operation)
    return replace(claim, terms=terms, command=claim.command if command is None else command)


def fill(nebis: Nebis) -> None:
    """Leave a thousand records behind a thousand that nobody here can run, whose leases ended earlier."""
    backend = nebis.opened()[0].backend
    now = backend.sessions.run(backend.store.clock())
    bad = [lapsed(nebis, "unknown-operation", number) for number in range(BAD // 2)]
    bad += [lapsed(nebis, "pay", -number, command=seal(b"[]")) for number in range(1, BAD // 2 + 1)]
    good = [lapsed(nebis, "pay", number) for number in range(GOOD)]
    for claims, instant in ((bad, now - 2 * LONG_AGO_US), (good, now - LONG_AGO_US)):
        for start in range(0, len(claims), 200):
            backend.sessions.run(backend.store.apply(claims[start : start + 200], now=instant))


def left(nebis: Nebis) -> int:
    """Count the records that are still in progress."""
    backend = nebis.opened()[0].backend
    return backend.sessions.run(backend.store.count()).by_state[State.IN_PROGRESS]


def test_each_good_record_is_recovered_once_and_bad_ones_keep_nobody_waiting(url: str) -> None:
    """F059, F060: in one pass, whatever stands before it."""
    runs: Counter[str] = Counter()
    lock = threading.Lock()
    with ExitStack() as stack:
        processes = [stack.enter_context(process(url, runs, lock)) for _ in range(WORKERS)]
        fill(processes[0])
        with ThreadPoolExecutor(WORKERS) as pool:
            reports: list[Report] = list(pool.map(lambda nebis: Worker(nebis).run_once(), processes))

        assert left(processes[0]) == BAD
    assert len(runs) == GOOD
    assert set(runs.values()) == {1}
    assert sum(report.deeds[Deed.FINISHED] for report in reports) == GOOD
    for report in reports:
        assert report.deeds[Deed.UNREGISTERED] == BAD // 2
        assert report.deeds[Deed.UNREADABLE] == BAD // 2
        assert report.skipped == {"unknown-operation": BAD // 2, "pay": BAD // 2}
        assert not report.is_idle


def test_command_that_is_not_the_one_that_was_claimed_is_never_run(tmp_path: Path) -> None:
    """SEC34: a row that somebody changed is no way to have something run."""
    runs: Counter[str] = Counter()
    with process(f"sqlite:///{tmp_path / 'nebis.db'}", runs, threading.Lock()) as nebis:
        backend = nebis.opened()[0].backend
        now = backend.sessions.run(backend.store.clock())
        forged = lapsed(nebis, "pay", 1, command=seal(b'"pay somebody else"'))
        backend.sessions.run(backend.store.apply([forged], now=now - LONG_AGO_US))

        report = Worker(nebis).run_once()

        assert report.deeds == {Deed.UNREADABLE: 1}
        assert not runs
        [found] = backend.sessions.run(backend.store.scan(Scan()))
        assert found.attempts == 1


def test_report_reads_like_a_sentence() -> None:
    report = Report(swept=2)
    report.deeds.update({Deed.FINISHED: 3, Deed.UNREGISTERED: 1})
    report.skipped["gone"] = 1

    assert str(report) == "3 finished, 1 unregistered, 2 swept; not runnable here: gone (1)"
    assert report.as_json() == {
        "records": {"finished": 3, "unregistered": 1},
        "skipped": {"gone": 1},
        "swept": 2,
        "redriven": 0,
    }
    assert str(Report()) == "nothing to do"
    assert Report().is_idle
