"""A worker can be seen from outside, and costs next to nothing for it."""

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from nebis import Nebis
from nebis.ports.store import DefiniteFailure
from nebis.worker import Worker, pace
from tests.cli.command import nebis as run_nebis
from tests.worker.shops import Shop

Make = Callable[..., Shop]


def seen_at(made: Shop) -> int | None:
    backend = made.backend()
    sessions = backend.beat()
    try:
        return sessions.run(backend.store.worker_seen_at())
    finally:
        sessions.close()


def test_worker_says_that_it_is_alive_and_not_with_every_pass(shop: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    made = shop()
    assert seen_at(made) is None

    made.work()
    first = seen_at(made)
    made.work()
    second = seen_at(made)
    monkeypatch.setattr(pace, "SIGN_SECONDS", 0.0)
    made._worker._sign._due = 0.0  # type: ignore[attr-defined]  # A minute later.
    made.work()
    third = seen_at(made)

    assert first is not None
    assert third is not None
    assert first == second
    assert first < third


def test_sign_that_cannot_be_written_stops_no_pass(
    shop: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made = shop()

    def fails() -> None:
        raise DefiniteFailure("permission denied for table nebis_meta")

    monkeypatch.setattr(made.backend().store, "note_worker", fails)
    with caplog.at_level(logging.INFO, "nebis.worker"):
        report = made.work()

    assert report.is_idle
    assert "permission denied" in caplog.text


def test_doctor_sees_a_worker_until_it_is_silent_for_minutes(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'nebis.db'}"

    def worker_line() -> str:
        [line] = [line for line in run_nebis("doctor", store=url).stdout.splitlines() if line[6:].startswith("worker")]
        return line

    with Nebis(url, housekeeping=False) as nebis:
        nebis.open()
        assert worker_line().startswith("note  worker      none was ever seen")

        Worker(nebis).run_once()
        assert worker_line().startswith("ok    worker      one was seen ")

        backend = nebis.opened()[0].backend
        long_ago = backend.sessions.run(backend.store.clock()) - 3 * 3600 * 1_000_000
        backend.sessions.run(backend.store.note_worker(now=long_ago))
        assert worker_line().startswith("note  worker      none was seen for 3h 00m; start one again")
