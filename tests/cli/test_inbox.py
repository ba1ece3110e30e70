"""`nebis inbox`: parked messages are visible, and what people decide about them is written down (SEC30)."""

import json
import re
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import UUID

import pytest

from nebis.cli.app import run
from nebis.cli.letters import lines, portrait, progress_lines
from nebis.core.record import RecordId
from nebis.delivery import ParkReason
from nebis.ports.history import AuditLine, Signed
from nebis.ports.inbox import Letter, ParkedLetter, Place, Progress
from tests.cli.command import Outcome
from tests.cli.scenes import Scene, check_snapshot, on_each_database, opened

NOW = 1_700_000_000_000_000
WHY = ("--reason", "the ledger is mended")
SECRET_PAYLOAD = b'{"payment": "p-1", "cents": 1200}'

APP = """
    from dataclasses import dataclass
    from nebis import {nebis}, Attempt, AsyncAttempt, Incoming, Local, Rejected

    nebis = {nebis}("{url}")

    @dataclass(frozen=True)
    class PaymentCreated:
        payment: str
        cents: int

    @nebis.consumer("ledger", effects=Local)
    {define} ledger(message: Incoming[PaymentCreated]) -> None:
        if message.payload.cents > 5000:
            raise ValueError("still broken")
"""


def letter(number: int = 1, **changes: object) -> Letter:
    values: dict[str, object] = {
        "parked_id": UUID(int=number),
        "consumer": "ledger",
        "topic": "payments",
        "message_id": "evt-0123456789",
        "partition": "0",
        "offset": 40 + number,
        "content_type": "application/json",
        "headers": (("trace", "1"),),
        "payload": SECRET_PAYLOAD,
        "payload_bytes": len(SECRET_PAYLOAD),
        **changes,
    }
    return Letter(**values)  # type: ignore[arg-type]


def parked(number: int = 1, reason: ParkReason = ParkReason.ATTEMPTS_USED_UP, **changes: object) -> ParkedLetter:
    values: dict[str, object] = {"letter": letter(number), "reason": reason, "detail": "ValueError", "attempts": 10}
    return ParkedLetter(**{**values, **changes})  # type: ignore[arg-type]


@pytest.fixture(params=["sqlite", "postgres"])
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scene]:
    yield from on_each_database(request, tmp_path)


@pytest.fixture
def local_scene(tmp_path: Path) -> Iterator[Scene]:
    """One database is enough for what is the same on both."""
    with opened(f"sqlite:///{tmp_path}/nebis.db") as scene:
        yield scene


def keep(scene: Scene, *letters: ParkedLetter) -> None:
    for each in letters:
        scene.connection.run(scene.store.park(each, now=NOW))


def found(scene: Scene, number: int = 1) -> ParkedLetter | None:
    return scene.connection.run(scene.store.find_parked(UUID(int=number)))


def answers(scene: Scene, number: int = 1) -> list[tuple[str, str]]:
    lines = scene.connection.run(scene.store.audits_of(RecordId(UUID(int=number))))
    return [(line.signed.what, line.answer) for line in lines]


Runs = Callable[..., Outcome]


@pytest.fixture
def inbox(monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]) -> Runs:
    """Runs the command inside this process, as starting another costs more than all that it does."""

    def run_inbox(scene: Scene | None, *arguments: str) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["nebis", "inbox", *arguments])
        if scene is not None:
            monkeypatch.setenv("NEBIS_STORE", scene.url)
        status = run()
        told = capsysbinary.readouterr()
        outcome = Outcome(status, told.out.decode(), told.err.decode())
        assert "1200" not in outcome.stdout + outcome.stderr or "--payload" in arguments, "no payload shows by itself"
        return outcome

    return run_inbox


def test_every_kind_of_parked_message_as_it_is_shown() -> None:
    later = NOW + 3_700_000_000
    page = [
        parked(number, reason, parked_at=NOW, is_due=reason is ParkReason.IN_DOUBT)
        for number, reason in enumerate(ParkReason, start=1)
    ]
    told = lines(page, later)
    for each in page:
        told += ["", *portrait(each, [], later, suffix=" --store sqlite:///x.db")]
    check_snapshot("inbox/every-reason.txt", "\n".join(told))


def test_message_that_says_little_and_has_a_history() -> None:
    bare = parked(
        1,
        ParkReason.TOO_LARGE,
        letter=letter(message_id=None, offset=None, partition=None, headers=(), payload=None, payload_bytes=20_000_000),
        detail="",
        record_id=RecordId(UUID(int=77)),
        parked_at=NOW,
    )
    signed = Signed(who="ada@host", what="inbox retry", reason="raised the limit\nof bytes")
    audits = [AuditLine(at=NOW, signed=signed, answer="done")]
    check_snapshot("inbox/bare.txt", "\n".join(portrait(bare, audits, NOW + 1, suffix="")))


def test_list_tells_what_is_parked_and_how_far_consumers_are(scene: Scene, inbox: Runs) -> None:
    keep(scene, parked(1), parked(2, ParkReason.NO_ID, letter=letter(2, consumer="mail", message_id=None)))
    for offset in (3, 4, 9):
        place = Place(consumer="ledger", partition="payments/0", offset=offset)
        scene.connection.run(scene.store.advance(place))

    told = inbox(scene, "list")
    machine = json.loads(inbox(scene, "list", "--json").stdout)
    filtered = json.loads(inbox(scene, "list", "--consumer", "mail", "--json").stdout)
    limited = inbox(scene, "list", "--limit", "1")

    assert told.status == 0
    assert re.search(r"ledger\s+attempts-used-up\s+payments\s+0@41", told.stdout)
    assert "ledger has applied payments/0 up to 9, after 1 gap; the latest skipped 5 to 8" in told.stdout
    assert [each["id"] for each in machine["parked"]] == [str(UUID(int=1)), str(UUID(int=2))]
    assert machine["offsets"] == [
        {"consumer": "ledger", "partition": "payments/0", "last_offset": 9, "gaps": 1, "latest_gap": [5, 8]}
    ]
    assert [each["reason"] for each in filtered["parked"]] == ["no-id"]
    assert "more than 1" in limited.stderr


def test_list_of_nothing(local_scene: Scene, inbox: Runs) -> None:
    told = inbox(local_scene, "list")

    assert (told.status, told.stdout) == (0, "")
    assert "no message is parked" in told.stderr


def test_gaps_are_told_with_care() -> None:
    plain = Progress(consumer="ledger", partition="payments/0", last_offset=9, gaps=0, gap=None, updated_at=NOW)
    several = Progress(consumer="ledger", partition="payments/1", last_offset=9, gaps=3, gap=(5, 5), updated_at=NOW)

    assert progress_lines([plain, several]) == [
        "ledger has applied payments/0 up to 9",
        "ledger has applied payments/1 up to 9, after 3 gaps; the latest skipped 5",
    ]


def test_show_and_its_payload_only_on_request(scene: Scene, inbox: Runs) -> None:
    keep(scene, parked(1), parked(2, letter=letter(2, payload=None)))

    told = inbox(scene, "show", str(UUID(int=1)))
    machine = json.loads(inbox(scene, "show", str(UUID(int=1)), "--json").stdout)
    payload = inbox(scene, "show", str(UUID(int=1)), "--payload")
    absent = inbox(scene, "show", str(UUID(int=2)), "--payload")

    assert "because   attempts-used-up (ValueError)" in told.stdout
    assert (machine["headers"], machine["message_id_hint"]) == (["trace"], "evt-… (14)")
    assert payload.stdout.encode() == SECRET_PAYLOAD
    assert absent.status == 1


def test_discard_drops_it_and_is_written_down(scene: Scene, inbox: Runs) -> None:
    keep(scene, parked(1))

    told = inbox(scene, "discard", str(UUID(int=1)), *WHY)
    again = inbox(scene, "discard", str(UUID(int=1)), *WHY, "--json")
    remains = inbox(scene, "show", str(UUID(int=1)))

    assert (told.status, again.status, remains.status) == (0, 1, 1)
    assert json.loads(again.stdout)["done"] is False
    assert found(scene) is None
    assert answers(scene) == [("inbox discard", "done"), ("inbox discard", "absent")]
    assert "inbox discard -> done (the ledger is mended)" in remains.stdout


def test_retry_leaves_it_to_a_worker(scene: Scene, inbox: Runs) -> None:
    keep(scene, parked(1))

    told = inbox(scene, "retry", str(UUID(int=1)), *WHY)
    absent = inbox(scene, "retry", str(UUID(int=9)), *WHY)

    assert (told.status, absent.status) == (0, 1)
    assert "sent in again by the next worker of ledger" in told.stdout
    kept = found(scene)
    assert kept is not None
    assert kept.is_due
    assert answers(scene) == [("inbox retry", "done")]
    assert answers(scene, 9) == [("inbox retry", "absent")]


@pytest.mark.parametrize("face", ["Nebis", "AsyncNebis"])
def test_retry_with_the_application_runs_its_handler_now(
    local_scene: Scene, inbox: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, face: str
) -> None:
    (tmp_path / f"{face.lower()}_ledger.py").write_text(
        textwrap.dedent(APP).format(nebis=face, url=local_scene.url, define="def" if face == "Nebis" else "async def")
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    broken = letter(2, message_id="evt-2", payload=b'{"payment": "p-2", "cents": 9999}')
    stranger = letter(3, consumer="another", message_id="evt-3")
    keep(local_scene, parked(1), parked(2, letter=broken), parked(3, letter=stranger))
    app = ("--app", f"{face.lower()}_ledger:nebis")

    cured, failed, unknown = (inbox(local_scene, "retry", str(UUID(int=number)), *WHY, *app) for number in (1, 2, 3))

    assert (cured.status, failed.status, unknown.status) == (0, 1, 2), cured.stderr
    assert "is applied" in cured.stdout
    assert "stays parked: attempts-used-up" in failed.stderr
    assert "declares no consumer 'another'" in unknown.stderr
    assert found(local_scene, 1) is None
    kept = found(local_scene, 2)
    assert kept is not None
    assert not kept.is_due
    assert answers(local_scene, 3) == []


@pytest.mark.parametrize("arguments", [("show", "not-an-id"), ("retry", str(UUID(int=1))), ("discard", "x", *WHY)])
def test_wrong_usage_is_said_in_one_line(local_scene: Scene, inbox: Runs, arguments: tuple[str, ...]) -> None:
    told = inbox(local_scene, *arguments)

    assert told.status == 2
    assert told.stdout == ""


def test_command_alone_shows_its_help(inbox: Runs) -> None:
    told = inbox(None)

    assert told.status == 0
    assert "discard" in told.stdout
