"""The layers: where each goes on, and that what could not be looked at is told from what was broken."""

from dataclasses import replace
from pathlib import Path

import pytest

from nebis.testing.modelcheck.configurations import CONFIGURATIONS, named
from nebis.testing.prove import layers
from nebis.testing.prove.evidence import Record, Seen
from nebis.testing.prove.layers import LAYERS, Campaign
from nebis.testing.prove.running import passed, told
from nebis.testing.prove.sizes import SIZES
from tests.tidy.repository import ROOT

SMOKE, NIGHT = SIZES["smoke"], SIZES["night"]


def campaign(root: Path = ROOT, *, size: str = "night", rounds: int = 1, **known: object) -> Campaign:
    record = replace(Record(commit="0" * 40), **known)  # type: ignore[arg-type]  # Fields by name.
    return Campaign(size=SIZES[size], root=root, processes=2, rounds=rounds, record=record)


def test_model_check_searches_the_worlds_that_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    small = named("local, guarded, two tenants")
    monkeypatch.setattr(layers, "worlds", lambda _: [small, replace(small, name="done before")])

    seen = list(layers.model(campaign(done=["done before"])))

    assert [piece.done for piece in seen] == [small.name]
    assert seen[0].counts["model_states"] > small.at_least
    assert not seen[0].failures


def test_night_searches_every_world_with_more_of_each_trouble() -> None:
    deeper = layers.worlds(NIGHT)

    assert len({world.name for world in deeper}) == len(deeper)
    for world in CONFIGURATIONS:
        own = [each for each in deeper if each.name.startswith(f"{world.name};")]
        assert max(each.crashes for each in own) == world.crashes + 1
        assert max(each.late for each in own) == world.late + 1
        assert max(each.starts for each in own) == world.starts + 1
        assert all(each.budget > world.budget for each in own)
    assert layers.worlds(SMOKE) == []


def test_simulation_goes_on_with_the_first_seed_that_was_not_played(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layers, "SEEDS_PER_PIECE", 100)
    size = replace(SMOKE, seeds=125)
    started = replace(campaign(counts={"simulation_seeds": 10_000}), size=size)

    seen = list(layers.simulation(started))

    assert [piece.counts["simulation_seeds"] for piece in seen] == [100, 25]
    assert [piece.failures for piece in seen] == [[], []]


def test_soak_has_another_seed_in_each_round(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[object, ...]] = []

    def noted(_root: Path, _module: str, *marks: object) -> Seen:
        asked.append(marks)
        return Seen()

    monkeypatch.setattr(layers, "told", noted)

    list(layers.soak(campaign(rounds=2, pieces=3)))

    assert [marks[-2:] for marks in asked] == [("--seed", 4), ("--seed", 5)]


def test_failovers_come_in_small_pieces_with_a_control_in_each_round(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    def noted(_root: Path, _module: str, *marks: object) -> Seen:
        asked.append(marks[1] if marks[0] == "--count" else marks[0])
        return Seen()

    monkeypatch.setattr(layers, "told", noted)

    list(layers.failover(campaign(size="ci", rounds=2)))
    list(layers.failover(campaign(size="smoke")))

    assert asked == ["--control", 2, "--control", 2]


def test_named_pieces_are_done_once_and_only_if_anything_was_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([Seen(breakdowns=["no memory"]), Seen(counts={"planted_bugs_total": 7})])
    monkeypatch.setattr(layers, "told", lambda *_: next(answers))
    pieces = list(LAYERS["planted bugs"].pieces(NIGHT))

    seen = list(layers.planted(campaign(done=pieces[2:])))

    assert [piece.done for piece in seen] == [None, pieces[1]]


def test_score_leaves_out_what_nothing_can_kill(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = Seen(
        counts={"mutants": 100, "mutants_killed": 90, "mutation_score": 94},
        failures=["survived: one", "survived: another", "listed as a survivor, but killed: a third"],
    )
    monkeypatch.setattr(layers, "told", lambda *_: answer)
    pieces = list(LAYERS["mutation"].pieces(NIGHT))

    [seen] = layers.mutation(campaign(done=pieces[1:]))

    assert seen.counts == {"mutants": 100, "mutants_killed": 90, "mutants_killable": 92}
    assert seen.done == pieces[0]
    assert len(seen.failures) == 3


def test_mutation_that_could_not_begin_saw_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = Seen(counts={"mutation_score": 0}, failures=["without a mutant: a test failed"])
    monkeypatch.setattr(layers, "told", lambda *_: answer)

    seen = next(layers.mutation(campaign()))

    assert seen == Seen(breakdowns=["without a mutant: a test failed"])


def test_module_that_breaks_down_saw_nothing(tmp_path: Path) -> None:
    (tmp_path / "breaks.py").write_text("raise SystemExit('out of order')")
    (tmp_path / "speaks.py").write_text("""print('words'); print('{"kills": 3, "violations": ["done twice"]}')""")

    assert told(tmp_path, "breaks") == Seen(breakdowns=["breaks broke down:\nout of order\n"])
    assert told(tmp_path, "speaks") == Seen(counts={"kills": 3}, failures=["done twice"])


def test_tests_that_pass_are_named_and_those_that_fail_are_told(tmp_path: Path) -> None:
    (tmp_path / "test_all.py").write_text(
        "import os, pytest\n"
        "def test_good():\n    assert os.environ['WEATHER'] == 'fair'\n"
        "def test_bad():\n    assert 1 == 2\n"
        "def test_later():\n    pytest.skip('not today')\n"
    )
    seen = Seen()

    names = passed(tmp_path, seen, "test_all.py", processes=0, settings={"WEATHER": "fair"})

    assert names == [("test_all", "test_good")]
    [failure] = seen.failures
    assert failure.startswith("test_all.test_bad failed:")
    assert "assert 1 == 2" in failure
    assert not seen.breakdowns


def test_tests_that_do_not_run_saw_nothing(tmp_path: Path) -> None:
    seen = Seen()

    assert passed(tmp_path, seen, "--no-such-flag", processes=0) == []
    assert not seen.failures
    assert len(seen.breakdowns) == 1
