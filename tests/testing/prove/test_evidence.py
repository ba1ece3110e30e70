"""What a night adds up, what it forgets, and that processes which write at once lose nothing."""

import json
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from nebis.testing.prove.evidence import KEYS, Evidence, Seen, totals_of
from tests.testing.prove.checkout import Checkout

CORE, FLOWS, MATRIX = "src/nebis/core/step.py", "src/nebis/flows/enter.py", "tests/matrix/test_kill.py"


@pytest.fixture
def committed(checkout: Checkout) -> Checkout:
    for file in (CORE, FLOWS, MATRIX):
        checkout.write(file, "first")
    checkout.commit()
    return checkout


def counts(evidence: Evidence) -> dict[str, int]:
    return totals_of(evidence.records())


def test_pieces_of_a_layer_add_up(committed: Checkout) -> None:
    evidence = Evidence(committed.root, "night")

    evidence.add("kill matrix", Seen(counts={"kills": 600}), 100.0)
    evidence.add("kill matrix", Seen(counts={"kills": 601}, failures=["done twice"]), 20.5)
    evidence.add("model check", Seen(counts={"model_states": 5}, done="a world"), 1.0)

    kept = json.loads((committed.root / "proof" / "latest.json").read_text())
    assert list(kept) == ["commit", *KEYS, "layers"]
    assert (kept["kills"], kept["model_states"], kept["violations"]) == (1201, 5, 1)
    assert kept["layers"]["kill matrix"] == {
        "commit": kept["commit"],
        "pieces": 2,
        "seconds": 120.5,
        "counts": {"kills": 1201, "violations": 1},
        "done": [],
    }
    assert kept["layers"]["model check"]["done"] == ["a world"]


def test_layer_begins_at_zero_when_its_code_was_changed_and_others_go_on(committed: Checkout) -> None:
    evidence = Evidence(committed.root, "night")
    evidence.add("kill matrix", Seen(counts={"kills": 600}), 1.0)
    evidence.add("model check", Seen(counts={"model_states": 5}, done="a world"), 1.0)
    before = evidence.record("model check").commit

    committed.write(FLOWS, "second")
    after = committed.commit()

    assert evidence.record("kill matrix").counts == {}
    assert evidence.record("kill matrix").commit == after
    assert evidence.record("model check").counts["model_states"] == 5
    assert evidence.record("model check").commit == before
    evidence.write()
    kept = json.loads(evidence.place.read_text())
    assert (kept["kills"], kept["model_states"], kept["commit"]) == (0, 5, before)
    assert list(kept["layers"]) == ["model check"]


def test_commit_of_the_proof_is_the_newest_of_the_code_that_is_proved(committed: Checkout) -> None:
    evidence = Evidence(committed.root, "night")
    committed.write(FLOWS, "second")
    source = committed.commit()
    committed.write(MATRIX, "second")
    tests = committed.commit()

    evidence.add("model check", Seen(counts={"model_states": 5}), 1.0)
    evidence.add("kill matrix", Seen(counts={"kills": 600}), 1.0)

    assert evidence.record("kill matrix").commit == tests
    assert json.loads(evidence.place.read_text())["commit"] == source


def test_commit_elsewhere_takes_nothing_away(committed: Checkout) -> None:
    evidence = Evidence(committed.root, "night")
    evidence.add("kill matrix", Seen(counts={"kills": 600}), 1.0)

    committed.write("docs/page.md", "words")
    committed.write("src/nebis/cli/entry.py", "no part of it")
    committed.commit()

    assert counts(evidence)["kills"] == 600


def test_score_is_made_of_all_pieces(committed: Checkout) -> None:
    evidence = Evidence(committed.root, "night")

    evidence.add("mutation", Seen(counts={"mutants": 12, "mutants_killed": 10, "mutants_killable": 10}), 1.0)
    evidence.add("mutation", Seen(counts={"mutants": 40, "mutants_killed": 30, "mutants_killable": 40}), 1.0)

    assert counts(evidence)["mutation_score"] == 80


def add_often(root: Path, layer: str, times: int) -> None:
    evidence = Evidence(root, "night")
    for _ in range(times):
        evidence.add(layer, Seen(counts={"seen": 1}), 0.0)


def test_processes_that_write_at_once_lose_nothing(committed: Checkout) -> None:
    layers = ("kill matrix", "model check", "simulation", "kill matrix")
    with ProcessPoolExecutor(4) as pool:
        for added in [pool.submit(add_often, committed.root, layer, 10) for layer in layers]:
            added.result()

    records = Evidence(committed.root, "night").records()
    assert {name: record.pieces for name, record in records.items()} == {
        "model check": 10,
        "simulation": 10,
        "kill matrix": 20,
    }
    assert totals_of(records)["seen"] == 40
    assert sorted(path.name for path in (committed.root / "proof").iterdir()) == ["latest.json"]


def test_layer_has_one_process_at_a_time(committed: Checkout) -> None:
    one, other = Evidence(committed.root, "night"), Evidence(committed.root, "night")

    with one.turn("soak") as first, other.turn("soak") as second, other.turn("kill matrix") as third:
        assert (first, second, third) == (True, False, True)
    with other.turn("soak") as later:
        assert later


def test_smaller_size_writes_elsewhere_and_may_begin_at_zero(committed: Checkout) -> None:
    evidence = Evidence(committed.root, "ci")
    evidence.add("soak", Seen(counts={"soak_requests": 9}), 1.0)
    assert counts(evidence)["soak_requests"] == 9

    evidence.forget()

    assert counts(evidence)["soak_requests"] == 0
    assert evidence.place == committed.root / ".nebis" / "proof-ci.json"
    assert not (committed.root / "proof").exists()
