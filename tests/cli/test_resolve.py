"""`nebis resolve` and `nebis recover`: what people may decide, and that each of it is written down (SEC30)."""

import json
import textwrap
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest

from nebis import Attempt, InDoubt, Nebis, Opaque
from nebis.cli.desk import WHY as WHY_REFUSED
from nebis.core.envelope import unseal
from nebis.core.record import EffectVerdict, OutcomeKind, Record, RecordId, State
from nebis.core.verbs import Resolve, TakeOver
from nebis.http.exchange import thaw
from nebis.testing.conformance.moves import by, claiming, completing, owner
from nebis.testing.conformance.refusals import REFUSALS
from nebis.testing.conformance.specimens import LEASE_US, SECOND_US
from nebis.testing.conformance.stage import Stage
from tests.cli.command import Outcome, nebis
from tests.cli.scenes import Scene, on_each_database, opened

KEY = "order-7f3a-0123456789abcdef"
WHY = ("--reason", "the bank's statement of the day")


@pytest.fixture(params=["sqlite", "postgres"])
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scene]:
    yield from on_each_database(request, tmp_path)


@pytest.fixture
def local_scene(tmp_path: Path) -> Iterator[Scene]:
    """One database is enough for what never gets that far, or what the core alone decides."""
    with opened(f"sqlite:///{tmp_path}/nebis.db") as scene:
        yield scene


@pytest.fixture
def result(tmp_path: Path) -> str:
    """A file as a person writes it, with a newline at its end."""
    path = tmp_path / "result.json"
    path.write_text('{"id": "ch_1"}\n')
    return str(path)


def entered(scene: Scene, situation: str, *, age_us: int = 10 * LEASE_US) -> Stage:
    """Lead a key into a situation that is over for a while, by the clock that commands go by."""
    stage = scene.stage(KEY, now=scene.clock() - age_us)
    stage.enter(situation)
    return stage


def resolve(scene: Scene, record: Record, *options: str) -> Outcome:
    return nebis("resolve", str(record.record_id), *WHY, *options, store=scene.url)


def check_refused(scene: Scene, record: Record, outcome: Outcome, answer: str, words: str) -> None:
    """See that nothing changed, that a reason was given, and that it was written down."""
    assert (outcome.status, outcome.stdout) == (1, "")
    assert outcome.stderr.startswith("nebis: refused, and nothing changed: ")
    assert outcome.stderr.count("\n") == 1
    assert words in outcome.stderr
    assert scene.found(record) == record
    assert scene.answers(record)[-1:] == [answer]


def test_the_result_of_an_open_effect_lets_the_operation_go_on_after_it(scene: Scene, result: str) -> None:
    stage = entered(scene, "in doubt after one effect")
    before = stage.record

    outcome = resolve(scene, before, "--happened", result, "--fence", str(before.fence), "--effect", "ship")

    found = scene.found(before)
    assert (outcome.status, outcome.stderr) == (0, "")
    assert "is in progress: the next request with its key, or a worker, goes on with it at once" in outcome.stdout
    assert found is not None
    assert (found.state, found.open_effect) == (State.IN_PROGRESS, None)
    assert found.effects[1].verdict is EffectVerdict.HAPPENED
    assert unseal(found.effects[1].result or b"", limit_bytes=100) == b'{"id": "ch_1"}'
    [line] = scene.connection.run(scene.store.audits_of(before.record_id))
    assert (line.signed.what, line.signed.reason, line.answer) == ("resolve --happened", WHY[1], "done")
    assert line.signed.fence_seen == before.fence
    assert "@" in line.signed.who
    assert abs(line.at - scene.clock()) < 60 * SECOND_US


def test_the_final_answer_ends_it_although_an_effect_is_open(scene: Scene, result: str) -> None:
    stage = entered(scene, "in doubt, queryable")

    outcome = resolve(scene, stage.record, "--happened", result, "--final")

    found = scene.found(stage.record)
    assert outcome.status == 0
    assert found is not None
    assert (found.state, found.outcome_kind) == (State.COMPLETED, OutcomeKind.SUCCEEDED)
    assert unseal(found.outcome or b"", limit_bytes=100) == b'{"id": "ch_1"}'


def test_callers_get_what_a_person_found_out(scene: Scene, tmp_path: Path) -> None:
    """The whole way: in doubt, resolved with a file, replayed as the operation's own type."""
    application = Nebis(scene.url)

    @application.operation("charge", effects=Opaque)
    def charge(attempt: Attempt, command: int) -> dict[str, int]:
        raise InDoubt("no answer")

    with application:
        with pytest.raises(InDoubt) as raised:
            charge(key=KEY, tenant="acct_1", command=5)
        (tmp_path / "paid.json").write_text('{"charged": 5}')
        record = scene.connection.run(scene.store.find_by_id(RecordId(UUID(raised.value.operation_id))))
        assert record is not None

        outcome = resolve(scene, record, "--happened", str(tmp_path / "paid.json"))
        told = charge(key=KEY, tenant="acct_1", command=5)

    assert (outcome.status, told) == (0, {"charged": 5})


def test_the_answer_of_an_endpoint_is_an_http_answer(scene: Scene, result: str) -> None:
    stage = scene.stage(KEY, now=scene.clock() - 10 * LEASE_US)
    stage.ask(claiming("first", command=None))
    stage.ask("doubt")

    outcome = resolve(scene, stage.record, "--happened", result, "--status", "201")

    found = scene.found(stage.record)
    assert outcome.status == 0
    assert found is not None
    assert found.outcome is not None
    exchange = thaw(unseal(found.outcome, limit_bytes=1000)).exchange
    assert (exchange.status, exchange.body) == (201, b'{"id": "ch_1"}')
    assert dict(exchange.headers)["content-type"] == "application/json"


def test_that_nothing_is_seen_is_no_proof_f065(scene: Scene) -> None:
    before = entered(scene, "in doubt, queryable").record

    outcome = resolve(scene, before, "--did-not-happen")

    check_refused(scene, before, outcome, "no_proof", "then add --owner-is-dead")


def test_a_call_that_can_still_land_is_waited_for(scene: Scene) -> None:
    """Even of a dead owner: its call may be under way until its own timeout, which its lease outlasts."""
    before = entered(scene, "in doubt without an effect", age_us=0).record

    outcome = resolve(scene, before, "--did-not-happen", "--owner-is-dead")

    check_refused(scene, before, outcome, "lease_live", "its call may land; wait until then (20")


def test_what_cannot_happen_any_more_is_run_anew(scene: Scene) -> None:
    before = entered(scene, "in doubt, queryable").record

    outcome = resolve(scene, before, "--did-not-happen", "--owner-is-dead")

    found = scene.found(before)
    assert (outcome.status, "runs it anew" in outcome.stdout) == (0, True)
    assert found is not None
    assert (found.state, found.effects) == (State.AVAILABLE, ())
    assert scene.answers(before) == ["done"]


def test_a_call_that_is_recognised_may_be_made_again(scene: Scene) -> None:
    before = entered(scene, "in doubt, recoveries used up").record

    outcome = resolve(scene, before, "--retry")

    found = scene.found(before)
    assert outcome.status == 0
    assert found is not None
    assert (found.state, found.recoveries) == (State.IN_PROGRESS, 0)


def test_a_call_that_nobody_would_recognise_is_not_made_again(scene: Scene) -> None:
    before = entered(scene, "in doubt, queryable").record

    outcome = resolve(scene, before, "--retry")

    check_refused(scene, before, outcome, "not_resumable", "say so with --happened or --did-not-happen")


def test_a_record_that_moved_on_is_left_alone_sec30(scene: Scene, result: str) -> None:
    """What a person saw is no longer so: a late owner completed, or another doubt began under a newer fence."""
    stage = entered(scene, "in doubt without an effect")
    seen = stage.record
    stage.ask(by(owner, completing()))
    completed = stage.record

    outcome = resolve(scene, seen, "--happened", result, "--fence", str(seen.fence))

    check_refused(scene, completed, outcome, "completed", "it has an outcome, which never changes")


def test_a_fence_that_is_not_the_one_seen_is_refused_sec30(scene: Scene) -> None:
    before = entered(scene, "in doubt, queryable").record

    outcome = resolve(scene, before, "--did-not-happen", "--owner-is-dead", "--fence", str(before.fence + 1))

    check_refused(scene, before, outcome, "moved_on", "look at it again")


def test_an_effect_that_is_not_the_one_seen_is_refused_sec30(scene: Scene) -> None:
    before = entered(scene, "in doubt, queryable").record

    outcome = resolve(scene, before, "--did-not-happen", "--owner-is-dead", "--effect", "ship")

    check_refused(scene, before, outcome, "moved_on", "look at it again")


@pytest.mark.parametrize(
    ("situation", "answer"),
    [("running", "in_progress"), ("available", "available"), ("completed", "completed"), ("expired", "expired")],
)
def test_only_a_doubt_can_be_resolved(local_scene: Scene, result: str, situation: str, answer: str) -> None:
    before = entered(local_scene, situation).record

    outcome = resolve(local_scene, before, "--happened", result)

    check_refused(local_scene, before, outcome, answer, "it is not in doubt")


def test_what_is_being_undone_cannot_end_well(local_scene: Scene, result: str) -> None:
    before = entered(local_scene, "in doubt while undoing").record

    refused = resolve(local_scene, before, "--happened", result)
    check_refused(local_scene, before, refused, "undoing", "use --retry")
    resumed = resolve(local_scene, before, "--retry")

    found = local_scene.found(before)
    assert resumed.status == 0
    assert found is not None
    assert (found.state, found.is_undoing) == (State.IN_PROGRESS, True)


def test_what_is_not_there_is_refused_and_written_down(scene: Scene) -> None:
    absent = "00000000-0000-4000-8000-000000000000"

    outcome = nebis("resolve", absent, "--retry", *WHY, "--json", store=scene.url)

    told = json.loads(outcome.stdout)
    assert (outcome.status, told["done"], told["refusal"]) == (1, False, "absent")
    [line] = scene.connection.run(scene.store.audits_of(RecordId(UUID(absent))))
    assert (line.answer, line.signed.fence_seen) == ("absent", None)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--retry"], "--reason"),
        (["--retry", "--reason", "  "], "--reason is 1 to 2000 characters"),
        (WHY, "say one of --happened FILE, --did-not-happen and --retry"),
        (["--retry", "--did-not-happen", *WHY], "say one of"),
        (["--retry", "--owner-is-dead", *WHY], "--owner-is-dead goes with --did-not-happen"),
        (["--happened", "/nowhere/result.json", *WHY], "cannot be read: No such file"),
    ],
)
def test_what_makes_no_sense_is_one_line_and_changes_nothing(
    local_scene: Scene, options: list[str], words: str
) -> None:
    before = entered(local_scene, "in doubt, sticky").record

    outcome = nebis("resolve", str(before.record_id), *options, store=local_scene.url)

    assert (outcome.status, outcome.stdout) == (2, "")
    assert words in outcome.stderr
    assert (local_scene.found(before), local_scene.answers(before)) == (before, [])


@pytest.mark.parametrize("text", ["{'id': 1}", "", '{"a": 1, "a": 2}', "NaN", '"\\ud800"'])
def test_a_file_that_could_not_be_read_back_is_not_stored(local_scene: Scene, tmp_path: Path, text: str) -> None:
    before = entered(local_scene, "in doubt, opaque").record
    (tmp_path / "wrong.json").write_text(text)

    outcome = resolve(local_scene, before, "--happened", str(tmp_path / "wrong.json"))

    assert (outcome.status, "the file cannot be stored" in outcome.stderr) == (2, True)
    assert local_scene.found(before) == before


def test_with_the_application_the_file_is_checked_against_its_type(local_scene: Scene, tmp_path: Path) -> None:
    """An outcome never changes, so one that nobody can decode would fail every retry for good."""
    stage = local_scene.stage(KEY, now=local_scene.clock() - 10 * LEASE_US)
    stage.ask(claiming("first", operation="charge"))
    stage.ask("doubt")
    (tmp_path / "shop.py").write_text(
        textwrap.dedent(
            f"""
            from nebis import Nebis, Opaque
            nebis = Nebis({local_scene.url!r})
            @nebis.operation("charge", effects=Opaque)
            def charge(command: int) -> list[int]:
                return []
            """
        )
    )
    (tmp_path / "wrong.json").write_text('{"charged": 5}')
    (tmp_path / "right.json").write_text("[5]")
    arguments = ("resolve", str(stage.record.record_id), *WHY, "--app", "shop:nebis", "--happened")

    wrong = nebis(*arguments, str(tmp_path / "wrong.json"), store=local_scene.url, PYTHONPATH=str(tmp_path))
    untouched = local_scene.found(stage.record)
    right = nebis(*arguments, str(tmp_path / "right.json"), store=local_scene.url, PYTHONPATH=str(tmp_path))

    assert (wrong.status, "not of the declared type" in wrong.stderr) == (2, True)
    assert untouched == stage.record
    assert right.status == 0


def test_every_refusal_that_a_person_can_meet_is_explained() -> None:
    assert (set(REFUSALS[Resolve]) | set(REFUSALS[TakeOver])) <= set(WHY_REFUSED)


def test_a_lapsed_record_that_nobody_may_run_is_put_in_doubt(scene: Scene) -> None:
    before = entered(scene, "lapsed, opaque").record

    outcome = nebis("recover", str(before.record_id), store=scene.url)

    found = scene.found(before)
    assert (outcome.status, outcome.stderr) == (0, "")
    assert f"nebis show {before.record_id}" in outcome.stdout
    assert found is not None
    assert (found.state, found.doubt_reason, found.fence) == (State.IN_DOUBT, "owner-gone", before.fence)
    assert scene.answers(before) == ["in_doubt"]


@pytest.mark.parametrize("situation", ["lapsed", "suspended", "undoing, lapsed"])
def test_what_can_go_on_is_left_to_those_who_can(local_scene: Scene, situation: str) -> None:
    before = entered(local_scene, situation).record

    outcome = nebis("recover", str(before.record_id), store=local_scene.url)

    assert (outcome.status, "nebis worker --app package.module:nebis" in outcome.stdout) == (0, True)
    assert local_scene.found(before) == before


def test_what_an_owner_still_holds_is_not_recovered(scene: Scene) -> None:
    before = entered(scene, "running opaquely", age_us=0).record

    outcome = nebis("recover", str(before.record_id), store=scene.url)

    check_refused(scene, before, outcome, "lease_live", "its owner may be alive")
