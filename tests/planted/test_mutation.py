"""The hunt for mutants: names that last, a score that hides nothing, and a list that must stay true."""

import pytest

from tests.planted.mutation import every_mutant, judged, listed

MUTANTS = every_mutant()
NAMES = {mutant.name for mutant in MUTANTS}


def test_mutants_have_names_of_their_own_and_can_be_compiled() -> None:
    assert len(NAMES) == len(MUTANTS) > 900
    assert all(mutant.compiled() for mutant in MUTANTS[::25])


def test_every_listed_survivor_is_a_mutant_and_has_a_reason() -> None:
    reasons = listed()

    assert reasons.keys() <= NAMES
    assert all(reasons.values())


def test_the_score_leaves_out_what_is_listed_and_nothing_else() -> None:
    every = {"a", "b", "c", "d"}

    told = judged(killed={"a", "b"}, survived={"c", "d"}, every=every, reasons={"c": "It is the same."})

    assert told == {"mutants": 4, "mutants_killed": 2, "mutation_score": 66, "violations": ["survived: d"]}


@pytest.mark.parametrize(
    ("reasons", "violation"),
    [
        ({"a": "It is the same.", "b": "So is this."}, "listed as a survivor, but killed: a"),
        ({"b": "It is the same.", "c": "So is this."}, "listed as a survivor, but no mutant: c"),
        ({"b": ""}, "listed as a survivor without a reason: b"),
    ],
)
def test_a_list_that_is_not_true_is_a_violation(reasons: dict[str, str], violation: str) -> None:
    told = judged(killed={"a"}, survived={"b"}, every={"a", "b"}, reasons=reasons)

    assert told["violations"] == [violation]
