"""`nebis show` in every state that a record can be in, plain and in colour, on every database."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from nebis import Attempt, Local, Nebis, Rejected
from nebis.cli import portrait as picture
from nebis.cli.advice import advice
from nebis.cli.portrait import Portrait
from nebis.cli.showing import drawing
from nebis.core.answers import Grant
from nebis.core.record import Fence, Record
from nebis.ports.history import AttemptNote, LateResult, Signed
from nebis.testing.conformance.moves import claiming
from nebis.testing.conformance.specimens import LEASE_US, SECOND_US, record_id_of
from tests.cli.command import nebis
from tests.cli.scenes import Scene, check_snapshot, drawn_in_colour, on_each_database

SITUATIONS = [
    "running",
    "running opaquely",
    "lapsed",
    "running without a command",
    "lapsed, opaque",
    "calling, queryable, lapsed",
    "calling again, success-only",
    "suspended",
    "one effect done, lapsed",
    "undoing, lapsed",
    "available",
    "in doubt without an effect",
    "in doubt, opaque",
    "in doubt, sticky",
    "in doubt, sticky, downstream forgot",
    "in doubt, queryable",
    "in doubt after one effect",
    "in doubt while undoing",
    "in doubt, recoveries used up",
    "completed",
    "completed after an effect",
    "completed, rejected after an undo",
    "completed, unstorable",
    "expired",
    "expired, never proved",
]


@pytest.fixture(params=["sqlite", "postgres"])
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scene]:
    yield from on_each_database(request, tmp_path)


def drawn(scene: Scene, record: Record, now: int) -> Portrait:
    found = scene.connection.run(drawing(scene.store, record.record_id, now=now))
    assert found is not None
    return found


def check_both(name: str, portrait: Portrait) -> None:
    advised = advice(portrait.record, portrait.now)
    parts = [(part.picture, part.is_whole) for part in picture.painted(portrait, advised)]
    check_snapshot(f"show/{name}.txt", "\n".join(picture.lines(portrait, advised)))
    check_snapshot(f"show/{name}.ansi", drawn_in_colour(*parts))


@pytest.mark.parametrize("situation", SITUATIONS)
def test_a_record_is_shown_with_what_can_be_done_next(scene: Scene, situation: str) -> None:
    stage = scene.stage("order-7f3a-0123456789abcdef")
    stage.enter(situation)
    portrait = drawn(scene, stage.record, stage.now + 5 * SECOND_US)

    assert advice(portrait.record, portrait.now)
    check_both(situation.replace(",", "").replace(" ", "-"), portrait)


def test_a_request_that_was_not_stored_waits_for_its_client(scene: Scene) -> None:
    stage = scene.stage("order-7f3a-0123456789abcdef")
    stage.enter("running without a command")

    check_both("lapsed-without-a-command", drawn(scene, stage.record, stage.now + 2 * LEASE_US))


def test_the_whole_story_is_told_in_order(scene: Scene) -> None:
    """Owner, attempts, late results and audit stand in one timeline with what the record itself says."""
    stage = scene.stage("order-7f3a-0123456789abcdef")
    stage.enter("calling, success-only")
    first = stage.record
    stage.wait(LEASE_US)
    stage.ask(claiming("second"))
    second, resumed_at = stage.record, stage.now
    stage.wait(3 * SECOND_US)
    stage.ask("doubt")
    notes = [
        AttemptNote(
            record_id=record.record_id,
            fence=record.fence,
            started_at=started_at,
            lease_us=LEASE_US,
            host=host,
            pid=pid,
            how=how,
        )
        for record, started_at, host, pid, how in (
            (first, first.created_at, "shop-1", 4711, Grant.NEW),
            (second, resumed_at, "shop-2", 815, Grant.RESUMED),
        )
    ]
    late = LateResult(record_id=first.record_id, fence=first.fence, effect="charge", body=b"canary")
    signed = Signed(
        who="ann@shop-1",
        what="resolve --did-not-happen",
        reason="the bank shows nothing",
        record_id=first.record_id,
        fence_seen=second.fence,
    )
    run = scene.connection.run
    run(scene.store.note_attempts(notes))
    run(scene.store.keep_late_result(late, keep_us=SECOND_US, now=stage.now + SECOND_US))
    run(scene.store.audit(signed, "no_proof", now=stage.now + 2 * SECOND_US))

    portrait = drawn(scene, stage.record, stage.now + 5 * SECOND_US)

    check_both("the-whole-story", portrait)
    told = json.dumps(picture.as_json(portrait, advice(portrait.record, portrait.now)))
    assert "canary" not in told
    assert stage.record.key not in told


def test_the_command_finds_a_record_by_its_id_and_says_what_to_do(scene: Scene) -> None:
    stage = scene.stage("order-7f3a-0123456789abcdef")
    stage.enter("in doubt, queryable")
    identifier = str(stage.record.record_id)

    outcome = nebis("show", identifier, store=scene.url)
    told = json.loads(nebis("show", identifier, "--json", store=scene.url).stdout)

    assert (outcome.status, outcome.stderr) == (0, "")
    assert outcome.stdout.startswith(f"{identifier}  in doubt\n")
    assert f"nebis resolve {identifier} --happened result.json --fence {stage.record.fence}" in outcome.stdout
    assert (told["state"], told["effect_list"][0]["class"], told["audit"]) == ("in_doubt", "queryable", [])
    assert "order-7f3a-0123456789abcdef" not in outcome.stdout


def test_a_copied_command_names_the_store_that_was_named(scene: Scene) -> None:
    stage = scene.stage("order-7f3a-0123456789abcdef")
    stage.enter("lapsed, opaque")

    outcome = nebis("show", str(stage.record.record_id), "--store", scene.url)

    assert f"nebis recover {stage.record.record_id} --store " in outcome.stdout
    assert "password" not in outcome.stdout


def test_a_key_is_looked_up_with_its_tenant_and_operation_and_never_repeated(scene: Scene) -> None:
    key = "order-7f3a-0123456789abcdef"
    with Nebis(scene.url) as application:

        @application.operation("place_order", effects=Local)
        def place_order(attempt: Attempt, command: str) -> str:
            raise Rejected(f"{command} is sold out")

        with pytest.raises(Rejected):
            place_order(key=key, tenant="acct_1", command="apple")

    options = ("--operation", "place_order", key)
    mine = nebis("show", "--tenant", "acct_1", *options, store=scene.url)
    theirs = nebis("show", "--tenant", "acct_2", *options, store=scene.url)
    halfway = nebis("show", "--tenant", "acct_1", key, store=scene.url)
    bare = nebis("show", key, store=scene.url)

    assert (mine.status, "outcome    rejected" in mine.stdout) == (0, True)
    assert (theirs.status, theirs.stderr) == (1, "nebis: there is no record of this key\n")
    assert (halfway.status, bare.status) == (2, 2)
    for outcome in (mine, theirs, halfway, bare):
        assert key not in outcome.stdout + outcome.stderr


def test_of_a_record_that_is_gone_what_people_left_is_still_shown(scene: Scene) -> None:
    gone = record_id_of("gone")
    late = LateResult(record_id=gone, fence=Fence(1), effect=None, body=b"paid")
    scene.connection.run(scene.store.keep_late_result(late, keep_us=SECOND_US))

    outcome = nebis("show", str(gone), store=scene.url)

    assert outcome.status == 1
    assert f"there is no record {gone}, or no longer" in outcome.stderr
    assert "result of the operation came too late from fence 1: 4 bytes kept, not used" in outcome.stdout


def test_nothing_from_a_row_reaches_the_terminal_as_a_command(scene: Scene) -> None:
    """SEC24: a tenant's name may be chosen by somebody who wants to hide a line from an operator."""
    stage = scene.stage("order-7f3a-0123456789abcdef")
    stage.ask(claiming("first", tenant="acct\x1b[2J\r\n1"))

    shown = nebis("show", str(stage.record.record_id), store=scene.url).stdout
    listed = nebis("list", store=scene.url).stdout

    assert "\x1b" not in shown + listed
    assert "acct\\x1b[2J\\r\\n1" in shown
    assert len(listed.splitlines()) == 2
