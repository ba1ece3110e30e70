"""The simulation of relays and consumers: mistakes are seen in what the consumer's ledger says."""

from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from nebis.consuming.intake import Intake
from nebis.delivery import Done
from nebis.flow import Flow
from nebis.flows import relay
from nebis.flows.guarded import commit_guarded
from nebis.flows.relay import RelayPolicy
from nebis.ports.messages import PublishResult
from nebis.ports.outbox import Entry, Mark, MessageState
from nebis.testing.simulate import Rule, simulate
from nebis.testing.simulate.outbox import SimulatedOutbox
from nebis.testing.simulate.scenario import MAIL_EVERY

MAIL_SEEDS = range(1, 150 * MAIL_EVERY, MAIL_EVERY)


def confirmed_unheard(patch: pytest.MonkeyPatch) -> None:
    """Take every message for published, whatever the broker said."""

    def marked(entry: Entry, _result: PublishResult, _policy: RelayPolicy) -> Mark:
        return relay._mark(entry, MessageState.PUBLISHED)

    patch.setattr(relay, "_marked", marked)


def all_at_once(patch: pytest.MonkeyPatch) -> None:
    """Publish what follows before it is known what became of the first."""
    patch.setattr(relay, "_waves", lambda taken: iter([list(taken)]))


def never_halted(patch: pytest.MonkeyPatch) -> None:
    """Take what follows a message that somebody else has."""

    def firsts(outbox: SimulatedOutbox) -> list[Entry]:
        return [outbox.entries[sequence] for sequence in sorted(outbox.entries)]

    patch.setattr(SimulatedOutbox, "_firsts", firsts)


def without_inbox(patch: pytest.MonkeyPatch) -> None:
    """Take each delivery for a message of its own."""
    numbers = count()
    patch.setattr(Intake, "_key", lambda *_: f"delivery-{next(numbers)}")


def without_messages(patch: pytest.MonkeyPatch) -> None:
    """Commit an outcome and forget what was staged with it."""

    def forgetful(record: Any, policy: Any, outcome: Any, _messages: Any = ()) -> Flow[None]:
        return (yield from commit_guarded(record, policy, outcome))

    patch.setattr("nebis.testing.simulate.trades.commit_guarded", forgetful)


def failed_is_done(patch: pytest.MonkeyPatch) -> None:
    """Acknowledge a message whose handler failed."""

    def done(*_: object) -> Flow[Done]:
        yield from ()
        return Done(is_duplicate=False)

    patch.setattr("nebis.flows.admit._failed", done)


@pytest.mark.parametrize(
    ("plant", "rules"),
    [
        (confirmed_unheard, {Rule.MESSAGE_LOST}),
        (all_at_once, {Rule.MESSAGE_ORDER}),
        (never_halted, {Rule.MESSAGE_ORDER}),
        (without_inbox, {Rule.MESSAGE_TWICE}),
        (without_messages, {Rule.MESSAGES_AND_OUTCOME}),
        (failed_is_done, {Rule.MESSAGE_LOST}),
    ],
)
def test_planted_mistake_with_messages_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], rules: set[Rule], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)

    for seed in MAIL_SEEDS:
        if rules & {violation.rule for violation in simulate(seed).violations}:
            return
    pytest.fail("150 seeds did not show it")


def test_messages_reach_the_ledger() -> None:
    runs = [simulate(seed) for seed in MAIL_SEEDS[:20]]

    assert not [violation for run in runs for violation in run.violations]
    assert sum(run.messages for run in runs) > 40
    assert not simulate(0).messages
