"""The worker's own loop: its pace, its end, and a store that is not there."""

import asyncio
import threading
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from nebis import AsyncNebis, Local, Nebis
from nebis.core.record import EffectsMode, State
from nebis.declaration import Declaration
from nebis.policy import Opaque, hours
from nebis.ports.store import DefiniteFailure, Scan
from nebis.recovery import Patience
from nebis.runtime.entropy import draw
from nebis.subject import Subject
from nebis.worker import AsyncWorker, Deed, Report, Worker
from tests.flows.specimens import declaration, owned, quick

QUICK = timedelta(milliseconds=1)


def test_worker_goes_on_after_a_store_that_was_not_there_and_ends_when_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stop, reports = threading.Event(), list[Report]()
    with Nebis(f"sqlite:///{tmp_path / 'nebis.db'}", housekeeping=False) as nebis:
        recover, failures = nebis.recover, [DefiniteFailure("no route to host")]

        def told(report: Report) -> None:
            reports.append(report)
            stop.set()

        def flaky(*arguments: object) -> Report:
            if failures:
                raise failures.pop()
            return recover(*arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(nebis, "recover", flaky)
        Worker(nebis, interval=QUICK, told=told).run(stop)

    assert len(reports) == 1
    assert "no route to host" in caplog.text


def test_asyncio_worker_goes_on_after_a_store_that_was_not_there_and_ends_when_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    reports = list[Report]()

    async def scene() -> None:
        stop = asyncio.Event()
        async with AsyncNebis(f"sqlite:///{tmp_path / 'nebis.db'}", housekeeping=False) as nebis:
            recover, failures = nebis.recover, [DefiniteFailure("no route to host")]

            def told(report: Report) -> None:
                reports.append(report)
                if len(reports) == 2:
                    stop.set()

            async def flaky(*arguments: object) -> Report:
                if failures:
                    raise failures.pop()
                return await recover(*arguments)  # type: ignore[arg-type]

            monkeypatch.setattr(nebis, "recover", flaky)
            await AsyncWorker(nebis, interval=QUICK, told=told).run(stop)

    asyncio.run(scene())

    assert len(reports) == 2
    assert "no route to host" in caplog.text


def test_pass_that_did_something_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="nebis.worker")
    with Nebis("memory://", housekeeping=False) as nebis:
        _lapse(nebis, declaration(Opaque), hours(-1))

        Worker(nebis).run_once()
        Worker(nebis).run_once()

    assert caplog.text.count("unregistered") == 2


def _lapse(nebis: Nebis, declared: Declaration[str, str] | Subject, age: timedelta, *, name: str = "gone") -> None:
    """Leave a record whose lease ended long ago."""
    backend, secrets = nebis.opened()[0].backend, nebis.opened()[1]
    marks = declared.marks(secrets, key="key-of-an-endpoint-1", tenant="acct_1", command="")
    drawn = draw()
    claim = marks(drawn.record_id, drawn.nonce)
    renamed = replace(claim, terms=replace(claim.terms, operation=name))
    now = backend.sessions.run(backend.store.clock())
    backend.sessions.run(backend.store.apply([renamed], now=now + age // timedelta(microseconds=1)))


def state(nebis: Nebis) -> State | None:
    backend = nebis.opened()[0].backend
    records = backend.sessions.run(backend.store.scan(Scan()))
    return records[0].state if records else None


@pytest.mark.parametrize(
    ("mode", "age", "deed", "after"),
    [
        (Local, hours(-1), Deed.CLIENT_ONLY, State.IN_PROGRESS),
        (Local, hours(-48), Deed.GIVEN_UP, None),
        (Opaque, hours(-1), Deed.DOUBTED, State.IN_DOUBT),
    ],
)
def test_endpoint_is_left_to_its_client_for_its_whole_time(
    mode: EffectsMode, age: timedelta, deed: Deed, after: State | None
) -> None:
    """G3: no record stays in progress for ever, even if its client never comes back; one that is given up is purged."""
    with Nebis("memory://", housekeeping=False) as nebis:
        subject = declaration(mode)
        nebis.protect(subject)
        _lapse(nebis, subject, age, name=subject.name)

        report = Worker(nebis).run_once()

        assert report.deeds == {deed: 1}
        assert state(nebis) is after


def test_doubt_of_an_endpoint_ends_at_its_deadline() -> None:
    with Nebis("memory://", housekeeping=False) as nebis:
        subject = declaration(Opaque, doubt_deadline=timedelta(milliseconds=1), backoff_first=QUICK)
        nebis.protect(subject)
        _lapse(nebis, subject, hours(-1), name=subject.name)
        worker = Worker(nebis)
        worker.run_once()

        while not worker.run_once().deeds[Deed.EXPIRED]:
            pass

        assert state(nebis) is State.COMPLETED


def test_worker_that_is_told_to_stop_begins_nothing() -> None:
    with Nebis("memory://", housekeeping=False) as nebis:
        _lapse(nebis, declaration(), hours(-1))

        assert not Worker(nebis).run_once(lambda: False).deeds


def test_worker_that_is_told_to_stop_within_a_page_leaves_the_rest() -> None:
    words = [True, True, False, False]
    with Nebis("memory://", housekeeping=False) as nebis:
        _lapse(nebis, declaration(), hours(-1))

        assert not Worker(nebis).run_once(lambda: words.pop(0)).deeds


def test_record_that_failed_is_left_alone_for_longer_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("nebis.recovery.time.monotonic", lambda: now[0])
    patience, record = Patience(), owned(quick())
    policy = quick(backoff_first=timedelta(seconds=1), backoff_longest=timedelta(seconds=3)).policy
    waits = []
    for _ in range(3):
        patience.lose(record, policy)
        began = now[0]
        while not patience.is_over(record):
            now[0] += 0.5
        waits.append(now[0] - began)

    assert waits == [1.0, 2.0, 3.0]
    patience.forget_the_rest()
    patience.lose(record, policy)
    assert not patience.is_over(record)
    patience.forget_the_rest()
    patience.forget_the_rest()
    assert patience.is_over(record)
