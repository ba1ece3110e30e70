"""A bank whose replies are lost, late or a refusal, and a client that comes back at once (F004, F063, F066).

Leases are long here: whoever had to wait for one would be told "in flight" instead of an answer.
"""

from collections.abc import Iterator

import pytest

from nebis.testing.bank.behaviours import Kind as Bad
from tests.matrix.conftest import Scene
from tests.matrix.points import STORES, Kind, label_of
from tests.matrix.stage import Child, Evidence

LEASE_SECONDS = 60.0
BANK_TIMEOUT_SECONDS = 0.25
"""How long a child waits for a bank that was told not to answer."""
HELD_SECONDS = 600.0
"""As good as for ever: a test ends the delay itself."""

CALLED_AGAIN = tuple(kind for kind in Kind if kind.is_called_again)
NEVER_CALLED_AGAIN = (Kind.QUERYABLE, Kind.UNRECOVERABLE, Kind.OPAQUE)

pytestmark = pytest.mark.parametrize("store", STORES)


@pytest.fixture
def child(scene: Scene) -> Iterator[Child]:
    """A process with a long lease and little patience for the bank."""
    with scene.child(lease_seconds=LEASE_SECONDS, timeout_seconds=BANK_TIMEOUT_SECONDS) as started:
        yield started


@pytest.fixture
def persistent_child(scene: Scene) -> Iterator[Child]:
    """One whose handlers ask again by themselves, in the same attempt."""
    marks = {"lease_seconds": LEASE_SECONDS, "timeout_seconds": BANK_TIMEOUT_SECONDS, "persists": True}
    with scene.child(**marks) as started:
        yield started


def ask(child: Child, evidence: Evidence, *, calls: int = 1) -> None:
    evidence.hear(child.ask(evidence.kind, evidence.key, calls=calls))


def settled(evidence: Evidence, *, state: str, charges: int, calls: int) -> None:
    """Assert what is true once the bank has served everything that was ever sent to it."""
    evidence.bank.release(evidence.key)
    served = evidence.calls(calls)
    assert evidence.state == state
    assert (len(served), len({call["key"] for call in served})) == (calls, 1)
    assert evidence.charges == charges
    assert evidence.violations() == []


@pytest.mark.parametrize("kind", CALLED_AGAIN)
@pytest.mark.parametrize("bad", [Bad.LOSE_REPLY, Bad.DELAY_AFTER, Bad.DELAY_BEFORE, Bad.FAIL_BEFORE])
def test_call_without_an_answer_is_made_again_at_once_under_the_same_key(
    scene: Scene, child: Child, store: str, kind: Kind, bad: Bad
) -> None:
    """E1: two calls, one key, one charge; a call that lands late, after its successor, changes nothing."""
    evidence = scene.evidence(kind, f"replies:{store}:{kind}:{bad}")
    scene.bank.behave(evidence.key, bad, seconds=HELD_SECONDS)

    ask(child, evidence)
    assert not evidence.answers
    ask(child, evidence, calls=2)

    assert len(evidence.answers) == 2
    assert len(set(evidence.answers)) == 1
    settled(evidence, state="completed", charges=1, calls=2)


@pytest.mark.parametrize("kind", NEVER_CALLED_AGAIN)
@pytest.mark.parametrize("bad", [Bad.LOSE_REPLY, Bad.DELAY_AFTER, Bad.DELAY_BEFORE, Bad.FAIL_BEFORE])
def test_call_that_cannot_be_made_again_leaves_doubt(
    scene: Scene, child: Child, store: str, kind: Kind, bad: Bad
) -> None:
    """P6: in doubt for every caller, whatever the bank did; never a second call."""
    evidence = scene.evidence(kind, f"replies:{store}:{kind}:{bad}")
    scene.bank.behave(evidence.key, bad, seconds=HELD_SECONDS)

    ask(child, evidence, calls=3)

    assert evidence.codes("info") == {"outcome-unknown"}
    settled(evidence, state="in_doubt", charges=int(bad is not Bad.FAIL_BEFORE), calls=1)


@pytest.mark.parametrize(("kind", "told"), [(Kind.STICKY, "fail"), (Kind.FENCED, "fail"), (Kind.SUCCESS_ONLY, "info")])
def test_no_is_believed_only_if_the_earlier_call_can_no_longer_be_a_yes(
    scene: Scene, child: Child, store: str, kind: Kind, told: str
) -> None:
    """F063: the first call is held up, the second declined; then the first one lands."""
    evidence = scene.evidence(kind, f"declined:{store}:{kind}")
    scene.bank.behave(evidence.key, Bad.DELAY_BEFORE, seconds=HELD_SECONDS)
    scene.bank.behave(evidence.key, Bad.DECLINE)

    ask(child, evidence)
    ask(child, evidence, calls=2)

    is_definite = told == "fail"
    assert evidence.codes("fail") == ({"rejected"} if is_definite else set())
    settled(
        evidence,
        state="completed" if is_definite else "in_doubt",
        charges=int(not is_definite),
        calls=2,
    )


@pytest.mark.parametrize("kind", CALLED_AGAIN)
def test_no_after_an_own_call_without_an_answer_is_no_more_definite_than_a_strangers(
    scene: Scene, persistent_child: Child, store: str, kind: Kind
) -> None:
    """F063 within one attempt, whose both calls carry the same fence: whatever was told, it stays true."""
    evidence = scene.evidence(kind, f"declined-again:{store}:{kind}")
    scene.bank.behave(evidence.key, Bad.DELAY_BEFORE, seconds=HELD_SECONDS)
    scene.bank.behave(evidence.key, Bad.DECLINE)

    ask(persistent_child, evidence, calls=2)

    assert evidence.codes("fail") == (set() if kind is Kind.SUCCESS_ONLY else {"rejected"})
    is_doubtful = kind is Kind.SUCCESS_ONLY
    settled(evidence, state="in_doubt" if is_doubtful else "completed", charges=int(is_doubtful), calls=2)


@pytest.mark.parametrize(
    ("kind", "charges"),
    [(Kind.STICKY, 0), (Kind.SUCCESS_ONLY, 1), (Kind.FENCED, 1), (Kind.QUERYABLE, 0), (Kind.UNRECOVERABLE, 0)],
)
def test_no_that_nobody_lived_to_hear_is_asked_for_again_where_that_is_safe(
    scene: Scene, store: str, kind: Kind, charges: int
) -> None:
    """The bank declines and the process dies with the reply in hand; what nobody was told may still become a yes."""
    evidence = scene.evidence(kind, f"declined-unheard:{store}:{kind}")
    scene.bank.behave(evidence.key, Bad.DECLINE)

    with scene.child(place=label_of(kind, "call/charged")) as child:
        ask(child, evidence)
    scene.wait_for_lease(evidence)
    scene.retry(evidence)

    is_doubtful = not kind.is_called_again
    settled(
        evidence,
        state="in_doubt" if is_doubtful else "completed",
        charges=charges,
        calls=1 if is_doubtful else 2,
    )
    assert bool(evidence.codes("fail")) is (kind is Kind.STICKY)
