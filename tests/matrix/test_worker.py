"""A process is killed and no client ever comes back: the worker alone settles its record, in a bounded time (O5, G3).

The bound is one of the store's clock and of the order of events, not of this machine's speed: whatever died is settled
by the second pass that begins after its lease, so within a lease and two recovery intervals.
"""

import pytest

from tests.matrix.conftest import Scene
from tests.matrix.points import STORES, Kind, expected_after_kill, label_of

PASSES = 2
POINTS = ("claim/after-commit", "intend/after-commit", "call/charged", "checkpoint/after-commit", "complete/before")
POINTS_OF_OPAQUE = ("claim/after-commit", "call/charged", "complete/before")


def settled(kind: Kind, point: str) -> str:
    """Return where a record must stand once a worker looked after it."""
    expected = expected_after_kill(kind, point)
    if expected.state == "in_doubt" and kind is Kind.QUERYABLE:
        return "completed" if expected.charges else "available"
    return expected.state


CELLS = [
    (store, kind, point)
    for store in STORES
    for kind in Kind
    for point in (POINTS_OF_OPAQUE if kind is Kind.OPAQUE else POINTS)
]


@pytest.mark.parametrize(("store", "kind", "point"), CELLS, ids=["-".join(cell) for cell in CELLS])
def test_cell(scene: Scene, store: str, kind: Kind, point: str) -> None:
    evidence = scene.evidence(kind, f"worker:{store}:{kind}:{point}")
    with scene.child(place=label_of(kind, point)) as child:
        killed = evidence.hear(child.ask(kind, evidence.key))
    assert "doomed" in killed[-1], "it outlived the point"
    scene.wait_for_lease(evidence)

    passes = scene.work(evidence, passes=PASSES)

    assert len(passes) == PASSES
    assert passes[0]["passed"] == ["in_progress"]
    assert passes[0]["lease_until"] <= passes[0]["began"] <= passes[0]["ended"] <= passes[1]["began"]
    assert evidence.state == settled(kind, point), "it was not settled by the second pass after its lease"
    completed = [entry["at"] for entry in evidence.said if entry.get("type") == "completed"]
    assert all(passes[0]["began"] <= at <= passes[1]["ended"] for at in completed)
    assert bool(completed) is (evidence.state == "completed")
    assert evidence.charges == expected_after_kill(kind, point).charges
    scene.retry(evidence, calls=1)
    assert len(set(evidence.answers)) == (evidence.state == "completed")
    assert evidence.violations() == []
