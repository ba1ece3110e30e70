"""The proof as a program: what it runs, what it refuses, how it ends."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from nebis.testing.prove.__main__ import main
from nebis.testing.prove.evidence import Seen
from nebis.testing.prove.layers import LAYERS, Campaign, Layer
from nebis.testing.prove.sizes import SIZES
from tests.testing.prove.checkout import Checkout

FLOWS = "src/nebis/flows/enter.py"

Plays = Callable[[str, Callable[[Campaign], Iterator[Seen]]], None]


@pytest.fixture
def plays(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> Plays:
    """Layers that see what they are told, in a checkout of their own."""
    checkout.write(FLOWS, "first")
    checkout.write("src/nebis/core/step.py", "first")
    checkout.commit()
    monkeypatch.chdir(checkout.root)
    for name, layer in LAYERS.items():
        monkeypatch.setitem(LAYERS, name, Layer(run=_sees(), counts=layer.counts))

    def play(name: str, run: Callable[[Campaign], Iterator[Seen]]) -> None:
        monkeypatch.setitem(LAYERS, name, replace(LAYERS[name], run=run))

    return play


def _sees(*pieces: Seen) -> Callable[[Campaign], Iterator[Seen]]:
    return lambda _: iter(pieces)


def enough(size: str, **more: int) -> Seen:
    counts = {**SIZES[size].wanted, **more}
    if counts.pop("mutation_score", 0):
        counts |= {"mutants_killed": 98, "mutants_killable": 100}
    return Seen(counts=counts)


def kept(checkout: Checkout) -> dict[str, object]:
    told: dict[str, object] = json.loads((checkout.root / "proof" / "latest.json").read_text())
    return told


def test_proof_holds_if_enough_was_seen_and_nothing_broken(
    checkout: Checkout, plays: Plays, capsys: pytest.CaptureFixture[str]
) -> None:
    plays("soak", _sees(enough("ci")))

    code = main(["--size", "ci"])

    assert code == 0
    assert "proved: 0 broken promises" in capsys.readouterr().out
    assert json.loads((checkout.root / ".nebis" / "proof-ci.json").read_text())["kills"] == 480
    assert not (checkout.root / "proof").exists()


def test_proof_fails_if_too_little_was_seen(plays: Plays, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--size", "ci"]) == 1
    assert "kill matrix (kills: 0 of 480)" in capsys.readouterr().out


def test_smaller_size_begins_at_zero_each_time(plays: Plays) -> None:
    plays("soak", _sees(enough("ci")))
    assert main(["--size", "ci"]) == 0

    plays("soak", _sees())

    assert main(["--size", "ci"]) == 1


def test_proof_fails_with_a_story_if_a_promise_was_broken(plays: Plays, capsys: pytest.CaptureFixture[str]) -> None:
    plays("soak", _sees(enough("ci")))
    plays("simulation", _sees(Seen(failures=["seed 7 did it twice"])))

    assert main(["--size", "ci"]) == 1
    assert "seed 7 did it twice" in capsys.readouterr().out


def test_proof_fails_if_a_layer_could_not_look(plays: Plays, capsys: pytest.CaptureFixture[str]) -> None:
    plays("soak", _sees(enough("ci")))
    plays("simulation", _sees(Seen(breakdowns=["no memory"])))

    assert main(["--size", "ci"]) == 1
    assert "no memory" in capsys.readouterr().out


def test_proof_fails_if_a_planted_bug_was_not_caught(plays: Plays, capsys: pytest.CaptureFixture[str]) -> None:
    plays("planted bugs", _sees(enough("ci", planted_bugs_total=3, planted_bugs_caught=2)))

    assert main(["--size", "ci"]) == 1
    assert "2 of 3 were caught" in capsys.readouterr().out


def test_one_layer_of_a_smaller_size_is_asked_for_its_own_numbers_only(plays: Plays) -> None:
    plays("kill matrix", _sees(Seen(counts={"kills": 480})))

    assert main(["--size", "ci", "--only", "kill matrix"]) == 0
    assert main(["--size", "ci", "--only", "kill matrix", "--only", "soak"]) == 1


def test_night_goes_on_where_it_ended_and_says_what_is_missing(
    checkout: Checkout, plays: Plays, capsys: pytest.CaptureFixture[str]
) -> None:
    known: list[int] = []

    def played(campaign: Campaign) -> Iterator[Seen]:
        known.append(campaign.record.counts.get("simulation_seeds", 0))
        for _ in range(campaign.rounds):
            yield Seen(counts={"simulation_seeds": 60_000})

    plays("simulation", played)

    assert main(["--size", "night", "--only", "simulation"]) == 3
    assert "simulation (simulation_seeds: 60000 of 300000)" in capsys.readouterr().out
    assert main(["--size", "night", "--only", "simulation", "--rounds", "4"]) == 3

    assert known == [0, 60_000]
    assert kept(checkout)["simulation_seeds"] == 300_000
    assert "simulation_seeds" not in capsys.readouterr().out


def test_night_is_over_when_all_is_there_and_leaves_out_what_has_enough(
    plays: Plays, capsys: pytest.CaptureFixture[str]
) -> None:
    plays("soak", _sees(enough("night")))
    assert main(["--size", "night", "--only", "soak"]) == 0

    plays("soak", _sees(Seen(failures=["nobody asked for it"])))

    assert main(["--size", "night"]) == 0
    assert "enough was seen already" in capsys.readouterr().out


def test_night_does_not_forget_what_an_earlier_piece_saw_broken(plays: Plays) -> None:
    plays("soak", _sees(enough("night")))
    plays("kill matrix", _sees(Seen(failures=["done twice"])))
    assert main(["--size", "night"]) == 1

    plays("kill matrix", _sees())

    assert main(["--size", "night"]) == 1


def test_night_asks_for_every_named_piece(plays: Plays, monkeypatch: pytest.MonkeyPatch) -> None:
    plays("soak", _sees(enough("night")))
    worlds = Layer(run=_sees(Seen(done="one world")), pieces=lambda _: ["one world", "another"])
    monkeypatch.setitem(LAYERS, "model check", worlds)
    assert main(["--size", "night"]) == 3

    plays("model check", _sees(Seen(done="another")))

    assert main(["--size", "night"]) == 0


def test_night_refuses_code_that_no_commit_has(
    checkout: Checkout, plays: Plays, capsys: pytest.CaptureFixture[str]
) -> None:
    checkout.write(FLOWS, "not committed")

    assert main(["--size", "night"]) == 2
    told = capsys.readouterr().out
    assert "simulation" in told
    assert "model check" not in told
    assert main(["--size", "night", "--only", "model check"]) == 3
    assert main(["--size", "smoke", "--only", "planted bugs"]) == 0


def test_piece_does_not_count_if_its_code_was_changed_meanwhile(
    checkout: Checkout, plays: Plays, capsys: pytest.CaptureFixture[str]
) -> None:
    def played(_: Campaign) -> Iterator[Seen]:
        yield Seen(counts={"kills": 600})
        checkout.write(FLOWS, "second")
        yield Seen(counts={"kills": 600})

    plays("kill matrix", played)

    assert main(["--size", "night", "--only", "kill matrix"]) == 1
    assert "was changed meanwhile" in capsys.readouterr().out
    assert kept(checkout)["kills"] == 600


@pytest.mark.parametrize("rounds", ["0", "-1", "many"])
def test_rounds_are_a_number(plays: Plays, rounds: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--rounds", rounds])
    assert "--rounds" in capsys.readouterr().err


def test_outside_of_a_checkout_it_says_where_to_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)

    assert main(["--size", "smoke"]) == 2
    assert "root of a checkout" in capsys.readouterr().out
