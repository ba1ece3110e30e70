"""A process is killed at every point, for every kind of effect, on both stores; its client comes back (F001-F007).

Each cell is one test, so a failing one is named: `test_cell[sqlite-sticky-call/charged]`.
"""

import pytest

from tests.matrix.conftest import Scene
from tests.matrix.points import STORES, Expected, Kind, expected_after_kill, label_of, points_of
from tests.matrix.stage import Evidence

TRIES = 2

CELLS = [(store, kind, point) for store in STORES for kind in Kind for point in points_of(kind)]


def test_grid_is_as_large_as_promised() -> None:
    """At least twenty points for each of six classes on both stores."""
    classes = [kind for kind in Kind if kind is not Kind.OPAQUE]

    assert len(classes) == 6
    assert all(len(points_of(kind)) >= 20 for kind in classes)
    assert all(len({label_of(kind, point) for point in points_of(kind)}) == len(points_of(kind)) for kind in Kind)
    assert len(CELLS) >= 240


@pytest.mark.parametrize(("store", "kind", "point"), CELLS, ids=["-".join(cell) for cell in CELLS])
def test_cell(scene: Scene, store: str, kind: Kind, point: str) -> None:
    """G1, G2, G3: one effect, one answer, settled within a lease and two tries; or in doubt where nobody may know.

    What is in doubt and can be asked for leaves it by the worker.
    """
    key = f"kill:{store}:{kind}:{point}"
    expected = expected_after_kill(kind, point)
    evidence = scene.evidence(kind, key)

    with scene.child(place=label_of(kind, point)) as child:
        killed = evidence.hear(child.ask(kind, key))
    assert killed[-1].get("doomed") == label_of(kind, point).partition("#")[0], "it outlived the point"
    scene.wait_for_lease(evidence)
    for _ in range(TRIES):
        scene.retry(evidence)
        if evidence.state == expected.state:
            break

    calls = evidence.calls(expected.calls)
    assert evidence.state == expected.state
    assert evidence.charges == expected.charges
    assert len(set(evidence.answers)) == (expected.state == "completed")
    assert evidence.codes("info") <= {"killed", "outcome-unknown"}
    assert len(calls) == expected.calls
    assert len({call["key"] for call in calls}) == min(expected.calls, 1)
    assert evidence.violations() == []
    if kind is Kind.QUERYABLE and expected.state == "in_doubt":
        _leaves_doubt(scene, evidence, expected)


def _leaves_doubt(scene: Scene, evidence: Evidence, before: Expected) -> None:
    """The worker asks the bank, which knows or burns the key; then the operation goes on to its one end."""
    scene.work(evidence, passes=1)
    assert evidence.state == ("completed" if before.charges else "available"), "what nobody charged is the client's"
    scene.retry(evidence)

    calls = evidence.calls(1)
    assert evidence.state == "completed"
    assert (evidence.charges, len(calls), len(set(evidence.answers))) == (1, 1, 1)
    assert evidence.violations() == []


TWICE = [
    (store, kind, point)
    for store in STORES
    for kind in Kind
    if kind.is_called_again
    for point in ("intend/after-commit", "call/charged", "complete/before-commit")
]


@pytest.mark.parametrize(("store", "kind", "point"), TWICE, ids=["-".join(cell) for cell in TWICE])
def test_successor_that_dies_at_the_same_point_has_a_successor_too(
    scene: Scene, store: str, kind: Kind, point: str
) -> None:
    """F009: whoever goes on with a record is an owner like any other."""
    evidence = scene.evidence(kind, f"killed-twice:{store}:{kind}:{point}")

    for _ in range(2):
        with scene.child(place=label_of(kind, point)) as child:
            killed = evidence.hear(child.ask(kind, evidence.key))
        assert "doomed" in killed[-1], "it outlived the point"
        scene.wait_for_lease(evidence)
    scene.retry(evidence)

    calls = evidence.calls(3 if point == "call/charged" else 1)
    assert len(calls) == (3 if point == "call/charged" else 1)
    assert len({call["key"] for call in calls}) == 1
    assert evidence.state == "completed"
    assert evidence.charges == 1
    assert len(set(evidence.answers)) == 1
    assert evidence.violations() == []
