"""The relay's flow: publish, then mark; what is not confirmed is tried again, parked, or let go."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from nebis.flow import Ask, drive
from nebis.flows.relay import Relayed, RelayPolicy, relay_once
from nebis.ports.asks import Elapsed
from nebis.ports.messages import Confirmed, Message, PublishResult, Refused, Unknown
from nebis.ports.outbox import (
    Entry,
    Mark,
    MarkMessages,
    MessageState,
    PublishMessages,
    ResetPublishers,
    TakeMessages,
)

POLICY = RelayPolicy(attempts_limit=3)


def entry(sequence: int, key: str | None = None, attempts: int = 1, topic: str = "orders") -> Entry:
    return Entry(
        sequence=sequence,
        message=Message(id=f"m{sequence}", topic=topic, payload=b"", ordering_key=key),
        state=MessageState.PENDING,
        attempts=attempts,
        fence=attempts,
        created_at=0,
        available_at=0,
        ended_at=None,
        taken_by="me",
        last_error="the last one",
    )


class Broker:
    """Answers what its script says for each message, and remembers everything that it was asked."""

    def __init__(self, *taken: Entry, says: dict[str, PublishResult] | None = None) -> None:
        self.taken = list(taken)
        self.says = says or {}
        self.asked: list[Ask[Any]] = []
        self.published: list[list[str]] = []
        self.marks: list[Mark] = []
        self.fenced: set[int] = set()
        self.seconds_per_look = 0.0
        self._clock = 0.0

    def run(self, policy: RelayPolicy = POLICY) -> Relayed:
        return drive(relay_once(policy), self._perform)

    def _perform(self, ask: Ask[Any]) -> object:
        self.asked.append(ask)
        match ask:
            case TakeMessages():
                return self.taken
            case PublishMessages():
                self.published.append([each.id for each in ask.messages])
                return [self.says.get(each.id, Confirmed()) for each in ask.messages]
            case MarkMessages():
                self.marks += ask.marks
                return frozenset(mark.sequence for mark in ask.marks) - self.fenced
            case Elapsed():
                self._clock += self.seconds_per_look
                return self._clock
        return None

    def states(self) -> dict[int, MessageState]:
        return {mark.sequence: mark.state for mark in self.marks}


def kinds(asked: Sequence[Ask[Any]]) -> list[type[Ask[Any]]]:
    return [type(ask) for ask in asked if not isinstance(ask, Elapsed)]


def test_an_empty_outbox_is_only_looked_at() -> None:
    broker = Broker()

    assert broker.run() == Relayed()
    assert kinds(broker.asked) == [TakeMessages]


def test_what_is_confirmed_is_marked_afterwards_f106() -> None:
    broker = Broker(entry(1), entry(2))

    relayed = broker.run()

    assert kinds(broker.asked) == [TakeMessages, PublishMessages, MarkMessages]
    assert broker.states() == {1: MessageState.PUBLISHED, 2: MessageState.PUBLISHED}
    assert relayed == Relayed(taken=2, published=2)
    assert str(relayed) == "2 published, 0 postponed, 0 parked"


def test_what_is_unknown_is_tried_again_after_the_publisher_began_anew_f107() -> None:
    broker = Broker(entry(1), entry(2, topic="mails"), says={"m1": Unknown(reason="silence")})

    relayed = broker.run()

    [reset] = [ask for ask in broker.asked if isinstance(ask, ResetPublishers)]
    [postponed] = [mark for mark in broker.marks if mark.sequence == 1]
    assert reset.topics == {"orders"}
    assert (postponed.state, postponed.attempts, postponed.error) == (MessageState.PENDING, 1, "silence")
    assert postponed.pause_us == 1_000_000
    assert relayed == Relayed(taken=2, published=1, postponed=1)


@pytest.mark.parametrize("result", [Refused(reason="busy"), Unknown(reason="silence")])
def test_the_last_attempt_parks_f108(result: PublishResult) -> None:
    broker = Broker(entry(1, attempts=3), entry(2, attempts=2), says={"m1": result, "m2": result})

    relayed = broker.run()

    assert broker.states() == {1: MessageState.PARKED, 2: MessageState.PENDING}
    assert relayed == Relayed(taken=2, postponed=1, parked=1)


def test_what_never_can_be_published_is_parked_at_once() -> None:
    broker = Broker(entry(1), says={"m1": Refused(reason="a\nb" * 400, is_permanent=True)})

    broker.run()

    [mark] = broker.marks
    assert mark.state is MessageState.PARKED
    assert mark.error is not None
    assert mark.error.startswith("a?b")
    assert len(mark.error) == 500


def test_one_key_goes_out_one_after_the_other_each_marked_before_the_next_f110() -> None:
    broker = Broker(entry(1, "k"), entry(2), entry(3, "k"), entry(4, "l"), entry(5, "k"))

    broker.run()

    assert broker.published == [["m1", "m2", "m4"], ["m3"], ["m5"]]
    assert kinds(broker.asked)[1:] == [PublishMessages, MarkMessages] * 3


def test_what_follows_a_failure_under_its_key_is_let_go_untried() -> None:
    broker = Broker(entry(1, "k"), entry(2, "k"), entry(3, "l"), entry(4, "l"), says={"m1": Refused(reason="busy")})

    relayed = broker.run()

    [let_go] = [mark for mark in broker.marks if mark.sequence == 2]
    assert broker.published == [["m1", "m3"], ["m4"]]
    assert (let_go.state, let_go.attempts, let_go.error) == (MessageState.PENDING, 0, "the last one")
    assert relayed == Relayed(taken=4, published=2, postponed=2)


def test_whoever_was_fenced_stops_with_that_key() -> None:
    broker = Broker(entry(1, "k"), entry(2, "k"))
    broker.fenced = {1, 2}

    relayed = broker.run()

    assert broker.published == [["m1"]]
    assert relayed == Relayed(taken=2, lost=2)
    assert str(relayed) == "0 published, 0 postponed, 0 parked, 2 lost"


def test_a_relay_that_is_late_lets_go_of_what_it_has_not_tried() -> None:
    broker = Broker(entry(1, "k"), entry(2, "k"))
    broker.seconds_per_look = 10.0

    relayed = broker.run()

    assert broker.published == [["m1"]]
    assert relayed == Relayed(taken=2, published=1, postponed=1)


def test_pauses_double_up_to_their_bound() -> None:
    policy = RelayPolicy(backoff_longest=timedelta(seconds=5))

    assert [policy.pause_us(attempts) // 1_000_000 for attempts in (1, 2, 3, 4, 1000)] == [1, 2, 4, 5, 5]


def test_a_policy_lists_all_its_faults() -> None:
    assert RelayPolicy().faults() == []
    assert len(RelayPolicy(batch=0, attempts_limit=0, idle=timedelta(0), publish_timeout=timedelta(30)).faults()) == 4
