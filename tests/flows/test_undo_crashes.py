"""Reserve, charge, settle, with undo: dying before and after every ask, at both levels, again and again."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from nebis import Declared, Rejected, Sticky, Undo, days
from nebis.core.record import OutcomeKind, Record, State
from nebis.declaration import Declaration, declare
from nebis.flows.effect import run_effect
from nebis.flows.execute import execute
from nebis.flows.ledger import Ledger
from nebis.flows.recover import recover
from nebis.planning import plan_effect
from nebis.ports.asks import Raised, Returned
from nebis.ports.store import BlockingBackend
from nebis.runtime.entropy import draw
from nebis.stores import open_blocking
from tests.flows.crashing import Clock, Crash, Doom, MortalWorld
from tests.flows.specimens import LEASE_US, NOW, SECRETS

STEPS = ("reserve", "charge", "settle")
PAST_THE_LEASE_SECONDS = LEASE_US / 1_000_000 + 1


@pytest.fixture(scope="module", params=["memory", "sqlite"])
def backend(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BlockingBackend]:
    """One store for all crashes, each of which has a key of its own."""
    path = tmp_path_factory.mktemp("undo") / "nebis.db"
    opened = open_blocking("memory://" if request.param == "memory" else f"sqlite:///{path}")
    opened.sessions.run(opened.store.migrate())
    yield opened
    opened.sessions.close()


class Books:
    """What was really done: each thing once per key, as a downstream that remembers keys does it."""

    def __init__(self, refuses: str | None) -> None:
        self._refuses = refuses
        self._by_key: dict[str, str] = {}

    def do(self, what: str, *, idempotency_key: str) -> str:
        if what == self._refuses:
            raise Rejected(f"no {what}")
        self._by_key.setdefault(idempotency_key, what)
        return what

    def undo(self, result: str, *, idempotency_key: str, original_key: str) -> str:
        assert self._by_key[original_key] == result
        self._by_key.setdefault(idempotency_key, f"undo {result}")
        return result

    @property
    def done(self) -> Counter[str]:
        return Counter(self._by_key.values())


class Tale:
    """One operation of three effects, of which the bank may refuse one, on one key."""

    def __init__(self, backend: BlockingBackend, key: str, refuses: str | None) -> None:
        self.backend = backend
        self.clock = Clock(NOW)
        self.books = Books(refuses)
        self.ran_while_undoing = 0
        self.request = self._declaration().call(SECRETS, key=key, tenant="acct_1", command="42 EUR")
        self.identity = self.request.claim(draw().record_id, draw().nonce).identity

    def _declaration(self) -> Declaration[Any, Any]:
        def handle(command: str) -> str:
            raise AssertionError("worlds bring their own handlers")

        undo = {name: Undo(call=self.books.undo, recall=Sticky(days(1))) for name in STEPS}
        return declare("pay", handle, is_async=False, effects=Declared, undo=undo, options={})

    def world(self, doom: Doom | None = None) -> MortalWorld:
        world = _World(self.backend, self.clock, doom)
        world.tale = self
        return world

    def handle(self, world: MortalWorld, record: Record, ledger: Ledger) -> str:
        self.ran_while_undoing += record.is_undoing
        for name in STEPS:
            planned = plan_effect(
                self.request, record, name, self.books.do, ((name,), {}), recall=Sticky(days(1)), returns=None
            )
            world.run(run_effect(record, self.request.policy, ledger, planned.plan))
        return "done"

    def ask(self, doom: Doom | None = None) -> None:
        """Send the request."""
        self.world(doom).run(execute(self.request))

    def recover(self, doom: Doom | None = None) -> None:
        """Let a worker pass by."""
        found = self.stored
        if found is not None and found.state is State.IN_PROGRESS:
            self.world(doom).run(recover(self.request, found))

    @property
    def stored(self) -> Record | None:
        return MortalWorld(self.backend, self.clock).find(self.identity)


class _World(MortalWorld):
    tale: Tale

    def _run_handler(self, record: Record) -> Returned[object] | Raised:
        ledger = Ledger(record)
        try:
            return ledger.of(Returned(self.tale.handle(self, record, ledger)))
        except Exception as error:  # noqa: BLE001 - as the runtimes do.
            return ledger.of(Raised(error))


def points_of(act: Callable[[Doom], None]) -> int:
    doom = Doom()
    act(doom)
    return doom.points


def name(*parts: object) -> str:
    return "-".join(map(str, ("key-of-a-tale", *parts)))


def check(tale: Tale, where: str) -> None:
    found, done = tale.stored, tale.books.done
    assert found is not None, where
    assert found.state is State.COMPLETED, f"{where}: {found}"
    assert tale.ran_while_undoing == 0, where
    assert max(done.values(), default=0) <= 1, f"{where}: {done}"
    undone = {what for what in STEPS if done[f"undo {what}"]}
    happened = {what for what in STEPS if done[what]}
    if found.outcome_kind is OutcomeKind.SUCCEEDED:
        assert (happened, undone) == (set(STEPS), set()), f"{where}: {done}"
    else:
        assert found.outcome_kind is OutcomeKind.REJECTED
        assert happened == undone, f"{where}: {done}"


@pytest.mark.parametrize("successor", ["request", "worker"])
@pytest.mark.parametrize("refuses", [None, "charge", "settle"])
def test_dying_anywhere_leaves_all_done_or_all_undone_each_once(
    refuses: str | None, successor: str, backend: BlockingBackend
) -> None:
    """G1, G3, F005, F009: whoever comes next, a client or a worker."""
    points = points_of(lambda doom: Tale(backend, name(refuses, successor, "counting"), refuses).ask(doom))
    assert points >= 20

    for point in range(points):
        tale = Tale(backend, name(refuses, successor, point), refuses)
        doom = Doom(point)
        with pytest.raises(Crash):
            tale.ask(doom)

        tale.clock.pass_seconds(PAST_THE_LEASE_SECONDS)
        if successor == "worker":
            tale.recover()
        tale.ask()

        check(tale, f"refused {refuses}, died {doom.where}")


@pytest.mark.parametrize("refuses", [None, "settle"])
def test_worker_that_dies_anywhere_is_followed_by_another(refuses: str | None, backend: BlockingBackend) -> None:
    """F009: the first owner dies after the charge, then the worker dies at each of its points."""

    def half_done(key: str) -> Tale:
        tale = Tale(backend, key, refuses)
        with pytest.raises(Crash):
            tale.ask(Doom(dies_at))
        tale.clock.pass_seconds(PAST_THE_LEASE_SECONDS)
        return tale

    counting = Doom()
    Tale(backend, name(refuses, "whole"), refuses).ask(counting)
    dies_at = counting.points // 2
    points = points_of(half_done(name(refuses, "half")).recover)
    assert points >= 10

    for point in range(points):
        tale = half_done(name(refuses, "half", point))
        doom = Doom(point)
        with pytest.raises(Crash):
            tale.recover(doom)

        tale.clock.pass_seconds(10 * PAST_THE_LEASE_SECONDS)
        tale.recover()

        check(tale, f"refused {refuses}, worker died {doom.where}")
