"""The proof as a program: what it adds up, what it refuses, and its smaller layers for real."""

import json
from pathlib import Path

import pytest

from nebis.testing.prove import evidence
from nebis.testing.prove.__main__ import main
from nebis.testing.prove.layers import LAYERS, Seen
from nebis.testing.prove.sizes import SIZES


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory that looks like a checkout, with layers that see what they are told."""
    (tmp_path / "tests" / "matrix").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    for name in LAYERS:
        monkeypatch.setitem(LAYERS, name, lambda _: Seen())
    return tmp_path


def enough(size: str) -> Seen:
    return Seen(counts=dict(SIZES[size].wanted))


def test_proof_holds_if_enough_was_seen_and_nothing_broken(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(LAYERS, "soak", lambda _: enough("ci"))

    code = main(["--size", "ci"])

    assert code == 0
    assert "proved: 0 broken promises" in capsys.readouterr().out
    kept = json.loads((checkout / ".nebis" / "proof-ci.json").read_text())
    assert list(kept) == ["commit", *evidence.KEYS]
    assert kept["kills"] == 480
    assert not (checkout / "proof").exists()


def test_proof_fails_if_too_little_was_seen(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--size", "ci"]) == 1
    assert "kills: 0 of 480" in capsys.readouterr().out


def test_proof_fails_with_a_story_if_a_promise_was_broken(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(LAYERS, "soak", lambda _: enough("ci"))
    monkeypatch.setitem(LAYERS, "simulation", lambda _: Seen(failures=["seed 7 did it twice"]))

    assert main(["--size", "ci"]) == 1
    assert "seed 7 did it twice" in capsys.readouterr().out


def test_proof_fails_if_a_planted_bug_was_not_caught(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = Seen(counts={**SIZES["ci"].wanted, "planted_bugs_total": 3, "planted_bugs_caught": 2})
    monkeypatch.setitem(LAYERS, "planted bugs", lambda _: seen)

    assert main(["--size", "ci"]) == 1
    assert "2 of 3 were caught" in capsys.readouterr().out


def test_night_goes_on_where_it_ended_and_adds_up(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pieces: list[int] = []

    def played(campaign: object) -> Seen:
        pieces.append(campaign.piece)  # type: ignore[attr-defined]  # A campaign, as every layer gets it.
        return Seen(counts={"simulation_seeds": SIZES["night"].seeds, "planted_bugs_total": 0})

    monkeypatch.setitem(LAYERS, "simulation", played)

    assert main(["--size", "night"]) == 0
    assert main(["--size", "night"]) == 0

    assert pieces == [0, 1]
    kept = json.loads((checkout / "proof" / "latest.json").read_text())
    assert kept["simulation_seeds"] == 2 * SIZES["night"].seeds


def test_what_was_seen_of_another_commit_does_not_count(tmp_path: Path) -> None:
    place = tmp_path / "latest.json"
    evidence.write(place, {**evidence.read(place, "one"), "kills": 7})

    assert evidence.read(place, "one")["kills"] == 7
    assert evidence.read(place, "other")["kills"] == 0


def test_outside_of_a_checkout_it_says_where_to_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)

    assert main(["--size", "smoke"]) == 2
    assert "root of a checkout" in capsys.readouterr().out
