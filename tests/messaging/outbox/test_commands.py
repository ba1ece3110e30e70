"""`nebis outbox`, `nebis relay` and `nebis stats` in this process: what people see, and what they decide."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nebis.cli import outbox
from nebis.cli.app import run
from nebis.ports.outbox import Entry, EntryQuery, Mark, MessageState
from tests.cli.command import Outcome
from tests.cli.scenes import check_snapshot
from tests.messaging.outbox.benches import SECOND_US, Bench, message

Command = Callable[..., Outcome]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], url: str) -> Command:
    """Run a command as its process would: dozens of processes would take a minute."""
    monkeypatch.setenv("NEBIS_STORE", url)

    def called(*arguments: str) -> Outcome:
        monkeypatch.setattr("sys.argv", ["nebis", *arguments])
        capsys.readouterr()
        status = run()
        told = capsys.readouterr()
        assert "Traceback" not in told.out + told.err
        return Outcome(status, told.out, told.err)

    return called


def parked(bench: Bench) -> None:
    bench.stage(message("one", "k", headers=(("Trace", "1"),)), message("two", "k"), message("three"))
    taken = {entry.message.id: entry for entry in bench.take("a relay")}
    bench.mark("a relay", [taken["one"]], MessageState.PARKED)
    bench.mark("a relay", [taken["three"]], MessageState.PUBLISHED)


def test_people_see_what_waits_and_decide_in_their_name(bench: Bench, command: Command) -> None:
    parked(bench)

    def told(*arguments: str) -> Any:
        return json.loads(command("outbox", *arguments, "--json").stdout)

    waiting = command("outbox", "list")
    published = told("list", "--state", "published")
    shown = command("outbox", "show", "one")
    retried = command("outbox", "retry", "one", "--reason", "the broker takes it now")
    again = told("show", "one")
    discarded = command("outbox", "discard", "one", "--reason", "nobody wants it", "--json")
    refused = command("outbox", "retry", "one", "--reason", "after all")
    payload = command("outbox", "show", "one", "--payload")

    assert [line.split()[:2] for line in waiting.stdout.splitlines()] == [
        ["id", "state"],
        ["one", "parked"],
        ["two", "pending"],
    ]
    assert [each["id"] for each in published["messages"]] == ["three"]
    assert "parked: mend what refuses it" in shown.stdout
    assert "3 bytes of application/octet-stream" in shown.stdout
    assert (retried.status, retried.stdout) == (0, "one is pending: it is published by the next relay\n")
    assert (again["state"], again["attempts"], again["header_names"]) == ("pending", 0, ["Trace"])
    assert [line["what"] for line in again["audit"]] == ["outbox retry"]
    assert json.loads(discarded.stdout)["done"]
    assert (refused.status, "nothing changed" in refused.stderr) == (1, True)
    assert payload.stdout == "one"
    assert command("outbox", "retry", "two", "--reason", " ").status == 2


def test_what_is_not_there_is_said(bench: Bench, command: Command) -> None:
    assert command("outbox", "show", "four").status == 1
    assert command("outbox", "list", "--state", "lost").status == 2
    assert "no message is like that" in command("outbox", "list", "--topic", "none").stderr
    assert command("outbox").status == 0
    bench.stage(message("one"), message("two"))
    assert "more than 1" in command("outbox", "list", "--limit", "1").stderr


def test_stats_show_the_depth_and_fail_when_a_message_waits_too_long_f114(bench: Bench, command: Command) -> None:
    empty = command("stats", "--json")
    parked(bench)

    stuck = command("stats")
    told = json.loads(command("stats", "--json").stdout)

    assert json.loads(empty.stdout)["outbox"] == {"pending": 0, "parked": 0, "oldest_pending_seconds": None}
    assert (empty.status, stuck.status) == (0, 1)
    assert "is a relay running?" in stuck.stdout
    assert (told["outbox"]["pending"], told["outbox"]["parked"], told["stuck"]) == (1, 1, ["outbox"])
    assert told["outbox"]["oldest_pending_seconds"] > 3600


def test_an_application_without_a_relay_is_told_how_to_make_one(
    command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    module = tmp_path / "relayless.py"
    module.write_text("from nebis import Nebis\nnebis = Nebis('memory://')\nother = 7\n")
    monkeypatch.syspath_prepend(tmp_path)

    lonely = command("relay", "--app", "relayless:nebis")
    wrong = command("relay", "--app", "relayless:other")
    malformed = command("relay", "--app", "relayless")

    assert [told.status for told in (lonely, wrong, malformed)] == [2, 2, 2]
    assert "make one in that module: Relay(nebis, publishers)" in lonely.stderr
    assert "neither a relay nor a Nebis" in wrong.stderr
    assert "package.module:name" in malformed.stderr


def test_what_people_see_of_waiting_messages(bench: Bench) -> None:
    bench.stage(
        message("0f9d", "account-7", topic="payment.created", headers=(("Trace", "1"),)),
        message("1a2b", "account-7", topic="payment.created"),
        message("2c3d", topic="mail", available_at=bench.now + 90 * SECOND_US),
        message("3e4f"),
        message("4a5b"),
    )
    taken = {entry.message.id: entry for entry in bench.take("host:17:ab")}
    bench.run(bench.outbox.mark("host:17:ab", [refused(taken["0f9d"], MessageState.PARKED)], now=bench.now))
    bench.run(bench.outbox.mark("host:17:ab", [refused(taken["3e4f"], MessageState.PUBLISHED)], now=bench.now))
    bench.pass_seconds(10)

    entries = bench.run(bench.outbox.entries(EntryQuery()))

    check_snapshot("outbox/list.txt", "\n".join(outbox.lines(entries, bench.now)))
    shown = [line for entry in entries for line in [*outbox.portrait(entry, bench.now), ""]]
    check_snapshot("outbox/show.txt", "\n".join(shown))


def refused(entry: Entry, state: MessageState) -> Mark:
    error = "the stream is full\x1b[2J"
    return Mark(sequence=entry.sequence, fence=entry.fence, state=state, attempts=entry.attempts, error=error)
