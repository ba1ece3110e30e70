"""The matrix is checked: a planted bug turns its cell red, and for the right reason."""

import pytest

from tests.matrix.conftest import Scene
from tests.matrix.points import Kind, label_of


@pytest.mark.parametrize("store", ["sqlite"])
@pytest.mark.parametrize(
    ("bug", "kind", "point", "rules"),
    [
        ("key per attempt", Kind.STICKY, "call/charged", {"H1"}),
        ("key per attempt", Kind.SUCCESS_ONLY, "checkpoint/before", {"H1"}),
        ("blind takeover", Kind.UNRECOVERABLE, "call/charged", {"H1"}),
        ("blind takeover", Kind.QUERYABLE, "checkpoint/before-commit", {"H1"}),
        ("answer unstored", Kind.STICKY, "answered", {"H4", "H6", "H9"}),
    ],
)
def test_planted_bug_is_seen(scene: Scene, *, store: str, bug: str, kind: Kind, point: str, rules: set[str]) -> None:
    evidence = scene.evidence(kind, f"canary:{bug.replace(' ', '-')}:{kind}:{point}")

    with scene.child(place=label_of(kind, point), sabotage=bug) as child:
        evidence.hear(child.ask(kind, evidence.key))
    scene.wait_for_lease(evidence)
    with scene.child(sabotage=bug) as child:
        evidence.hear(child.ask(kind, evidence.key))

    assert {violation.partition(" ")[0] for violation in evidence.violations()} == rules
