"""A process is frozen, its lease passes, somebody else goes on; then it wakes and goes on too (F048-F050)."""

import pytest

from tests.matrix.conftest import Scene
from tests.matrix.points import STORES, Kind, label_of

POINTS = ("handler/begin", "intend/after", "call/charged", "checkpoint/after", "complete/before")
POINTS_OF_ROWS = ("handler/begin", "intend/before", "checkpoint/after", "complete/before")
"""A local step is frozen outside its transactions: inside one it cannot be taken over, which has its own test."""
POINTS_OF_OPAQUE = ("handler/begin", "call/charged", "complete/before")


def points_of(kind: Kind) -> tuple[str, ...]:
    return {Kind.TRANSACTIONAL: POINTS_OF_ROWS, Kind.OPAQUE: POINTS_OF_OPAQUE}.get(kind, POINTS)


def is_in_doubt(kind: Kind, point: str) -> bool:
    """Tell whether nobody but the frozen owner may know what happened."""
    if kind is Kind.OPAQUE:
        return True
    return kind in (Kind.QUERYABLE, Kind.UNRECOVERABLE) and point in ("intend/after", "call/charged")


CELLS = [(store, kind, point) for store in STORES for kind in Kind for point in points_of(kind)]


@pytest.mark.parametrize(("store", "kind", "point"), CELLS, ids=["-".join(cell) for cell in CELLS])
def test_cell(scene: Scene, store: str, kind: Kind, point: str) -> None:
    """G1, G2: whoever ends it, it happened once and everybody is told the same."""
    key = f"stop:{store}:{kind}:{point}"
    evidence = scene.evidence(kind, key)

    with scene.child(place=label_of(kind, point), how="stop") as child:
        frozen = child.ask(kind, key)
        assert "doomed" in frozen[-1], "it never came to the point"
        scene.wait_for_lease(evidence)
        scene.retry(evidence)
        assert evidence.state == ("in_doubt" if is_in_doubt(kind, point) else "completed")
        child.thaw()
        evidence.hear([*frozen, *child.hear()])
    scene.retry(evidence)

    assert evidence.state == "completed"
    assert evidence.charges == 1
    assert len(set(evidence.answers)) == 1
    assert evidence.violations() == []


@pytest.mark.parametrize("store", ["postgres"])
def test_owner_that_is_frozen_inside_its_transaction_is_not_taken_over(scene: Scene, store: str) -> None:
    """The lock on its record is a proof of life, however long the lease is over."""
    key = f"stop:{store}:inside-transaction"
    evidence = scene.evidence(Kind.TRANSACTIONAL, key)

    with scene.child(place="after send", how="stop") as child:
        frozen = child.ask(Kind.TRANSACTIONAL, key)
        scene.wait_for_lease(evidence)
        scene.retry(evidence, calls=1)
        assert evidence.codes("refused") == {"in-flight"}
        child.thaw()
        evidence.hear([*frozen, *child.hear()])
    scene.retry(evidence)

    assert evidence.state == "completed"
    assert evidence.charges == 1
    assert len(set(evidence.answers)) == 1
    assert evidence.violations() == []
