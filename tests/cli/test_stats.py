"""`nebis stats`: counts, ages, and an exit status for monitoring."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from nebis.cli import statistics
from nebis.cli.statistics import Statistics
from nebis.ports.outbox import Depth
from nebis.ports.store import Tally
from nebis.testing.conformance.specimens import SECOND_US
from tests.cli.command import nebis
from tests.cli.scenes import Scene, check_snapshot, drawn_in_colour, on_each_database

HOUR_US = 3600 * SECOND_US


@pytest.fixture(params=["sqlite", "postgres"])
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scene]:
    yield from on_each_database(request, tmp_path)


def test_what_is_there_and_what_happened_plain_and_in_colour(scene: Scene) -> None:
    for situation in ("running", "lapsed", "in doubt, queryable", "completed", "expired", "available"):
        scene.stage(situation).enter(situation)
    tallies = {Tally("replays", "charge"): 12, Tally("replays", "ship"): 3, Tally("doubts", "charge"): 1}
    scene.connection.run(scene.store.tally(tallies))
    now = scene.stage("").now + 2 * HOUR_US

    for name, stuck_after_us in (("stuck", HOUR_US), ("not-stuck", 3 * HOUR_US)):
        found = Statistics(
            counts=scene.connection.run(scene.store.count(now=now)),
            tallies=scene.connection.run(scene.store.tallies()),
            stuck_after_us=stuck_after_us,
            depth=Depth(pending=3, parked=1, oldest_pending_us=now - 2 * HOUR_US, now=now),
        )
        check_snapshot(f"stats/{name}.txt", "\n".join(statistics.lines(found)))
        check_snapshot(f"stats/{name}.ansi", drawn_in_colour((statistics.painted(found), False)))


@pytest.mark.parametrize(("situation", "state"), [("running", "in_progress"), ("in doubt, sticky", "in_doubt")])
def test_something_that_is_stuck_for_an_hour_fails(scene: Scene, situation: str, state: str) -> None:
    scene.stage("key", now=scene.clock() - HOUR_US - SECOND_US).enter(situation)

    stuck = nebis("stats", store=scene.url)
    told = nebis("stats", "--json", store=scene.url)
    patient = nebis("stats", "--stuck-after", "2h", store=scene.url)

    assert (stuck.status, patient.status, told.status) == (1, 0, 1)
    assert f"look at it: nebis list --state {state.replace('_', '-')}" in stuck.stdout
    assert json.loads(told.stdout)["stuck"] == [state]
    assert "stuck" not in patient.stdout


def test_an_empty_store_and_one_whose_records_have_ended_are_healthy(scene: Scene) -> None:
    empty = nebis("stats", store=scene.url)
    scene.stage("key").enter("completed")
    ended = nebis("stats", "--json", store=scene.url)

    assert (empty.status, ended.status) == (0, 0)
    told = json.loads(ended.stdout)
    assert told["records"]["completed"] == 1
    assert told["counters"]["replays"] == {"total": 0, "by_operation": {}}
    assert (told["oldest_in_progress_seconds"], told["oldest_in_doubt_seconds"]) == (None, None)
