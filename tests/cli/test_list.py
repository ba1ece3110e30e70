"""`nebis list`: tables for people, JSON for programs, and filters."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from nebis.cli import listing
from nebis.core.record import Resource
from nebis.ports.store import Scan
from nebis.testing.conformance.moves import attaching, by, claiming, owner
from nebis.testing.conformance.specimens import SECOND_US
from tests.cli.command import nebis, start_nebis
from tests.cli.scenes import Scene, check_snapshot, drawn_in_colour, on_each_database

KEY = "order-{}-0123456789abcdef"


@pytest.fixture(params=["sqlite", "postgres"])
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scene]:
    yield from on_each_database(request, tmp_path)


def listed(scene: Scene, *options: str) -> list[str]:
    """Return the operations that a filter lets through."""
    outcome = nebis("list", "--json", *options, store=scene.url)
    assert (outcome.status, outcome.stderr) == (0, "")
    return sorted(record["operation"] for record in json.loads(outcome.stdout)["records"])


def test_each_state_has_a_line_plain_and_in_colour(scene: Scene) -> None:
    situations = ["running, with a resource", "lapsed, opaque", "suspended", "available", "in doubt, queryable"]
    for number, situation in enumerate([*situations, "completed", "expired"]):
        scene.stage(KEY.format(number)).enter(situation)
    now = scene.stage("").now + 20 * SECOND_US

    page = scene.connection.run(scene.store.scan(Scan(), now=now))

    check_snapshot("list/every-state.txt", "\n".join(listing.lines(page, now)))
    for width in (100, 160):
        picture = listing.painted(page, now, width)
        check_snapshot(f"list/every-state-{width}.ansi", drawn_in_colour((picture, False), width=width))


def test_a_column_that_no_line_needs_is_left_out(scene: Scene) -> None:
    scene.stage(KEY.format(1)).enter("completed")
    now = scene.stage("").now + SECOND_US

    page = scene.connection.run(scene.store.scan(Scan(), now=now))

    check_snapshot("list/completed-only.txt", "\n".join(listing.lines(page, now)))


def test_records_are_found_by_tenant_operation_state_age_and_resource(scene: Scene) -> None:
    now = scene.clock()
    old = scene.stage(KEY.format(1), now=now - 3600 * SECOND_US)
    old.ask(claiming("first", operation="refund", tenant="acct_2"))
    old.ask(by(owner, attaching(resource=Resource(type="payment", id="pay_1"))))
    young = scene.stage(KEY.format(2), now=now)
    young.ask(claiming("first", operation="charge"))
    doubted = scene.stage(KEY.format(3), now=now)
    doubted.ask(claiming("first", operation="ship"))
    doubted.ask("doubt")

    assert listed(scene) == ["charge", "refund", "ship"]
    assert listed(scene, "--tenant", "acct_2") == ["refund"]
    assert listed(scene, "--operation", "charge") == ["charge"]
    assert listed(scene, "--state", "in-doubt") == ["ship"]
    assert listed(scene, "--state", "in doubt", "--state", "IN_PROGRESS") == ["charge", "refund", "ship"]
    assert listed(scene, "--older-than", "5m") == ["refund"]
    assert listed(scene, "--older-than", "2h") == []
    assert listed(scene, "--resource", "payment/pay_1") == ["refund"]
    assert listed(scene, "--resource", "payment") == ["refund"]
    assert listed(scene, "--resource", "payment/pay_2") == []


def test_more_than_the_limit_is_said_not_shown(scene: Scene) -> None:
    for number in range(3):
        scene.stage(KEY.format(number)).enter("running")

    piped = nebis("list", "--limit", "2", store=scene.url)
    told = json.loads(nebis("list", "--limit", "2", "--json", store=scene.url).stdout)
    whole = json.loads(nebis("list", "--limit", "3", "--json", store=scene.url).stdout)

    assert len(piped.stdout.splitlines()) == 3
    assert "there are more than 2" in piped.stderr
    assert (len(told["records"]), told["has_more"]) == (2, True)
    assert (len(whole["records"]), whole["has_more"]) == (3, False)


def test_a_key_is_never_shown_in_full_sec24(scene: Scene) -> None:
    for key in ("k", "short-key", KEY.format(1)):
        scene.stage(key).enter("running")

    plain = nebis("list", store=scene.url).stdout
    told = nebis("list", "--json", store=scene.url).stdout

    hints = sorted(record["key_hint"] for record in json.loads(told)["records"])
    assert hints == ["orde… (24)", "sho… (9)", "… (1)"]
    assert "short-key" not in plain + told
    assert KEY.format(1) not in plain + told


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--state", "lost"], "use one of in-progress, available, in-doubt, completed, expired"),
        (["--older-than", "soon"], "write 90s, 5m, 1h or 2d"),
        (["--limit", "0"], "--limit"),
    ],
)
def test_what_cannot_be_asked_for_is_one_line(tmp_path: Path, options: list[str], words: str) -> None:
    outcome = nebis("list", *options, store=f"sqlite:///{tmp_path}/nebis.db")

    assert (outcome.status, outcome.stdout) == (2, "")
    assert words in outcome.stderr


def test_looking_creates_neither_file_nor_tables(tmp_path: Path) -> None:
    absent = nebis("list", store=f"sqlite:///{tmp_path}/nebis.db")
    (tmp_path / "empty.db").touch()
    empty = nebis("list", store=f"sqlite:///{tmp_path}/empty.db")

    assert (absent.status, [path.name for path in tmp_path.iterdir()]) == (2, ["empty.db"])
    assert (empty.status, "run `nebis migrate apply`" in empty.stderr) == (1, True)


def test_whoever_stops_reading_is_no_error(scene: Scene) -> None:
    for number in range(20):
        scene.stage(KEY.format(number)).enter("running")
    process = start_nebis("list", store=scene.url)
    assert process.stdout is not None
    assert process.stderr is not None

    process.stdout.readline()
    process.stdout.close()
    complaint = process.stderr.read()
    process.stderr.close()

    assert (process.wait(timeout=60), complaint) == (0, "")
