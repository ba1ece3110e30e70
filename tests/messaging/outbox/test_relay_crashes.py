"""A relay that dies before or after any ask, of its flow or of the store's: nothing is lost, the order stays (F106).

The ledger is independent of the store. What it got twice has the same id, and only where the mark was missing.
"""

from typing import Any

from nebis.flow import Ask, Flow, drive
from nebis.flows.relay import Relayed, RelayPolicy, relay_once
from nebis.ports.asks import Elapsed
from nebis.ports.messages import Confirmed, Message, PublishResult, Refused, Unknown
from nebis.ports.outbox import MarkMessages, MessageState, PublishMessages, ResetPublishers, TakeMessages
from tests.flows.crashing import Crash, Doom, doomed
from tests.messaging.outbox.benches import LEASE_US, Bench, Ledger, message


class MortalRelay:
    """Performs the asks of a relay on a real store, at a clock that is moved by hand, and may die on the way."""

    def __init__(self, bench: Bench, ledger: Ledger, name: str, doom: Doom | None = None) -> None:
        self._bench = bench
        self._ledger = ledger
        self._name = name
        self.doom = doom or Doom()

    def run(self) -> None:
        flow = doomed(relay_once(RelayPolicy()), self.doom)
        try:
            ask = next(flow)
            while True:
                ask = flow.send(self._perform(ask))
        except StopIteration:
            return

    def _perform(self, ask: Ask[Any]) -> Any:
        bench = self._bench
        match ask:
            case TakeMessages():
                flow: Any = bench.outbox.take(self._name, limit=ask.limit, lease_us=LEASE_US, now=bench.now)
                return bench.run(doomed(flow, self.doom))
            case MarkMessages():
                return bench.run(doomed(bench.outbox.mark(self._name, ask.marks, now=bench.now), self.doom))
            case PublishMessages():
                return [self._published(each) for each in ask.messages]
            case ResetPublishers():
                self._ledger.resets += 1
            case Elapsed():
                return 0.0
        return None

    def _published(self, each: Message) -> PublishResult:
        result = self._ledger.answer(each)
        if not isinstance(result, Refused):  # What is unknown has arrived: the worst case.
            self._ledger.delivered.append(each)
        return result


def answering() -> Ledger:
    """A broker that refuses one message at first, and hides what became of another."""
    seen: set[str] = set()

    def answer(each: Message) -> PublishResult:
        is_first = each.id not in seen
        seen.add(each.id)
        if is_first and each.id.endswith("refused"):
            return Refused(reason="busy")
        return Unknown(reason="silence") if is_first and each.id.endswith("hidden") else Confirmed()

    return Ledger(answer)


def staged(number: int) -> list[Message]:
    names = [("a", "k"), ("b", "k"), ("c-hidden", "l"), ("d", "l"), ("e-refused", "m"), ("f", "m"), ("g", None)]
    return [message(f"{number}-{name}", key and f"{number}-{key}") for name, key in names]


def test_whenever_it_dies_another_relay_delivers_the_rest_in_order(bench: Bench) -> None:
    deaths: list[str] = []
    for number in range(1000):
        messages = staged(number)
        bench.stage(*messages)
        ledger = answering()
        relay = MortalRelay(bench, ledger, f"dying {number}", Doom(at=number))
        try:
            relay.run()
            has_died = False
        except Crash:
            has_died = True
            deaths.append(relay.doom.where)
        bench.pass_seconds(400)
        for _ in range(4):
            MortalRelay(bench, ledger, "successor").run()
            bench.pass_seconds(400)

        assert {each.id for each in ledger.delivered} == {each.id for each in messages}, deaths[-1:]
        for key in ("k", "l", "m"):
            wanted = [each.id for each in messages if each.ordering_key == f"{number}-{key}"]
            assert ledger.first_times(f"{number}-{key}") == wanted, deaths[-1:]
        states = {name: state for name, state in bench.states().items() if name.startswith(f"{number}-")}
        assert set(states.values()) == {MessageState.PUBLISHED}
        repeated = len(ledger.ids) - len(set(ledger.ids))
        # Beside the hidden one, only what was published and not yet marked: at most one wave.
        assert repeated <= 1 + (len(messages) if has_died else 0)
        if not has_died:
            break

    assert {"before PublishMessages", "after PublishMessages", "before MarkMessages", "after mark"} <= set(deaths)
    assert len(deaths) > 20


def test_a_stopped_relay_that_wakes_up_late_publishes_nothing_out_of_order(bench: Bench) -> None:
    """It was stopped between two messages of a key; its successor went on to the end of that key."""
    bench.stage(message("k1", "k"), message("k2", "k"), message("k3", "k"))
    ledger = Ledger()
    sleeper = relay_once(RelayPolicy())
    hands = MortalRelay(bench, ledger, "sleeper")
    ask = next(sleeper)
    while not isinstance(ask, MarkMessages):
        ask = sleeper.send(hands._perform(ask))
    bench.pass_seconds(31)
    MortalRelay(bench, ledger, "successor").run()

    def wake() -> Flow[Relayed]:
        """Go on from the ask at which it was stopped."""
        answer = yield ask
        try:
            while True:
                answer = yield sleeper.send(answer)
        except StopIteration as ended:
            relayed: Relayed = ended.value
            return relayed

    relayed = drive(wake(), hands._perform)

    assert ledger.ids == ["k1", "k1", "k2", "k3"]
    assert (relayed.lost, relayed.published) == (3, 0)
    assert set(bench.states().values()) == {MessageState.PUBLISHED}
