"""The planted bugs: enough of them, told in the docs, and a few seen here; `nebis.testing.prove` tries the rest."""

import pytest

from nebis.testing.modelcheck import MUTANTS
from tests.planted.__main__ import ROOT, is_seen, look
from tests.planted.bugs import BUGS, Bug
from tests.planted.table import PAGE, page

HERE = ("unique index dropped", "answered before it is stored")


def test_there_are_at_least_forty_and_each_has_a_name_and_a_layer() -> None:
    names = [bug.name for bug in BUGS]

    assert len(names) == len(set(names)) >= 40
    assert all(bug.layers for bug in BUGS)
    assert {mutant.name for mutant in MUTANTS if mutant.expected is not None} <= set(names)


def test_the_page_tells_all_of_them() -> None:
    """Made by `python -m tests.planted --table`."""
    assert (ROOT / PAGE).read_text() == page()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("bug", [bug for bug in BUGS if bug.name in HERE], ids=lambda bug: bug.name)
def test_planted_bug_is_seen_by_every_layer_that_must_see_it(bug: Bug) -> None:
    assert [told for layer in bug.layers if (told := look(bug, layer))] == []


def test_without_a_bug_nothing_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a hunt would prove nothing."""
    monkeypatch.setattr("tests.planted.__main__.SEEDS", 100)
    innocent = Bug(name="no bug at all", lesson="none", simulated=True)

    assert not is_seen(innocent, "simulation")


def test_hunt_that_breaks_down_is_not_taken_for_a_find() -> None:
    told = look(Bug(name="no such bug", lesson="none", simulated=True), "simulation")

    assert told is not None
    assert "did not see it" in told
