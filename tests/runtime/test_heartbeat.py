"""The thread that keeps claims alive."""

import logging
from collections.abc import Callable, Iterator, Sequence

import pytest

from nebis import Opaque
from nebis.core.answers import Kept, Refusal
from nebis.core.record import Nonce, Outcome, OutcomeKind, Record, State
from nebis.core.verbs import Complete, Release, Renew, Suspend, Verb, identity_of
from nebis.ports.store import BlockingSessions, IndefiniteFailure
from nebis.runtime import heartbeat as module
from nebis.runtime.heartbeat import Heartbeat, Watch
from nebis.testing.conformance.specimens import intend
from tests.flows.specimens import LEASE_US, NOW, declaration, request_of
from tests.runtime.observed import PATIENCE_SECONDS, MovedClock, ObservedStore, lost, renews

SOON_SECONDS = 0.01


class Beating:
    """A heartbeat on a store whose clock is moved by hand."""

    def __init__(self) -> None:
        self.clock = MovedClock(NOW)
        self.store = ObservedStore(self.clock)
        self.woken: list[Verb] = []
        self.connections = 0
        self.heartbeat = Heartbeat(self.store, self.connect, self.woken.append)

    def connect(self) -> BlockingSessions:
        self.connections += 1
        return self.store.sessions()

    def claim(self, key: str, *, opaque: bool = False) -> Record:
        return self.store.claimed(request_of(declaration(Opaque) if opaque else None, key=f"{key}-0123456789abcdef"))

    def watch(self, record: Record, renewal_seconds: float = SOON_SECONDS) -> Watch:
        return self.heartbeat.watch(record, LEASE_US, renewal_seconds)

    def pass_a_lease(self) -> None:
        self.clock.now += LEASE_US + 1


@pytest.fixture
def beating(monkeypatch: pytest.MonkeyPatch) -> Iterator[Beating]:
    monkeypatch.setattr(module, "RETRY_SECONDS", SOON_SECONDS)
    made = Beating()
    yield made
    made.heartbeat.close()


def complete(record: Record) -> Complete:
    outcome = Outcome(kind=OutcomeKind.SUCCEEDED, body=b"late but true")
    return Complete(ownership=record.ownership, outcome=outcome, retention=declaration().policy.kept)


def test_idle_process_has_neither_thread_nor_connection(beating: Beating) -> None:
    assert beating.connections == 0
    assert beating.heartbeat._thread is None


def test_all_claims_are_renewed_in_one_batch_on_one_connection(beating: Beating) -> None:
    first, second = beating.claim("first"), beating.claim("second")
    beating.clock.now += LEASE_US // 2
    beating.watch(first)
    beating.watch(second)

    beating.store.wait_for(renews(first.identity, second.identity), times=2)

    for record in (first, second):
        assert beating.store.stored(record.identity).lease_until == beating.clock.now + LEASE_US
    assert beating.connections == 1


def test_watch_that_is_due_earlier_is_not_kept_waiting_by_a_later_one(beating: Beating) -> None:
    late, soon = beating.claim("late"), beating.claim("soon")
    beating.watch(late, renewal_seconds=PATIENCE_SECONDS * 10)
    beating.watch(soon)

    beating.store.wait_for(renews(soon.identity))

    assert not any(renews(late.identity)(batch) for batch in beating.store.batches)


def test_lapsed_claim_that_nobody_took_is_renewed(beating: Beating) -> None:
    record = beating.claim("paused")
    beating.pass_a_lease()
    watch = beating.watch(record)

    beating.store.wait_for(renews(record.identity))

    assert not watch.is_lost
    assert beating.store.stored(record.identity).lease_until == beating.clock.now + LEASE_US


def test_claim_that_was_taken_over_is_lost_and_not_renewed_again(beating: Beating) -> None:
    """F056: a zombie's renewal neither revives it nor prolongs its successor."""
    record = beating.claim("taken")
    beating.pass_a_lease()
    successor = beating.claim("taken")
    other = beating.claim("other")
    watch = beating.watch(record)
    beating.watch(other)

    assert lost(watch).wait(PATIENCE_SECONDS)

    assert watch.lost_reason is Refusal.FENCED
    assert beating.store.stored(record.identity) == successor
    beating.store.wait_for(lambda batch: renews(other.identity)(batch) and not renews(record.identity)(batch), times=3)


def test_news_of_a_lost_claim_reach_those_who_ask_late(beating: Beating) -> None:
    watch = beating.watch(beating.claim("lost"))
    watch.lose(Refusal.FENCED)

    assert lost(watch).is_set()


def test_claim_in_doubt_is_not_lost(beating: Beating) -> None:
    """F049: its owner may still hold the truth and complete."""
    record = beating.claim("doubted", opaque=True)
    beating.pass_a_lease()
    drawn = record.record_id
    beating.store.applied(
        request_of(declaration(Opaque), key="doubted-0123456789abcdef").claim(drawn, Nonce(b"x" * 16))
    )
    assert beating.store.stored(record.identity).state is State.IN_DOUBT
    watch = beating.watch(record)

    beating.store.wait_for(renews(record.identity), times=3)

    assert not watch.is_lost


@pytest.mark.parametrize("fault", [IndefiniteFailure("no answer"), ZeroDivisionError("a bug of ours")])
def test_renewal_that_failed_is_not_a_loss(beating: Beating, fault: Exception) -> None:
    """F016: unknown is not lost, and the thread outlives any fault."""
    record = beating.claim("unlucky")
    beating.store.faults = [fault] * 3
    watch = beating.watch(record)

    beating.store.wait_for(renews(record.identity), times=5)

    assert not watch.is_lost
    assert beating.store.faults == []


def test_record_that_somebody_holds_locked_stops_no_other_renewal(beating: Beating) -> None:
    held, free = beating.claim("held"), beating.claim("free")
    beating.store.locked = {held.identity}
    beating.clock.now += 1
    watch = beating.watch(held)
    beating.watch(free)

    beating.store.wait_for(renews(held.identity, free.identity), times=3)

    assert beating.store.stored(free.identity).lease_until == beating.clock.now + LEASE_US
    assert not watch.is_lost
    beating.store.locked = set()
    beating.store.wait_for(renews(held.identity), times=2)
    assert beating.store.stored(held.identity).lease_until == beating.clock.now + LEASE_US


def test_attempt_and_its_successor_may_live_in_one_process(beating: Beating) -> None:
    """A batch has an identity once; without that rule both would spoil every renewal of the process."""
    zombie = beating.claim("same")
    beating.pass_a_lease()
    successor = beating.claim("same")
    bystander = beating.claim("bystander")
    beating.clock.now += 1
    lives, dies = beating.watch(successor), beating.watch(zombie)
    beating.watch(bystander)

    assert lost(dies).wait(PATIENCE_SECONDS)
    beating.store.wait_for(renews(successor.identity, bystander.identity), times=2)

    assert not lives.is_lost
    assert beating.store.stored(successor.identity).lease_until == beating.clock.now + LEASE_US
    for batch in beating.store.batches:
        assert len({identity_of(verb) for verb in batch}) == len(batch)


def test_forgotten_claim_is_renewed_no_longer(beating: Beating) -> None:
    ended, other = beating.claim("ended"), beating.claim("other")
    watch = beating.watch(ended)
    beating.store.wait_for(renews(ended.identity))
    beating.heartbeat.forget(watch)
    beating.watch(other)

    beating.store.wait_for(renews(other.identity), times=3)

    assert not any(renews(ended.identity)(batch) for batch in beating.store.batches[-2:])


def ends(record: Record) -> Callable[[Sequence[Verb]], bool]:
    return lambda batch: any(not isinstance(verb, Renew) and identity_of(verb) == record.identity for verb in batch)


def test_write_that_nobody_waits_for_lands_later(beating: Beating) -> None:
    """I11: its caller was told "not confirmed"; the same key finds the outcome."""
    record = beating.claim("late")
    verb = complete(record)
    beating.store.faults = [IndefiniteFailure("down")] * 3
    beating.heartbeat.keep_trying(verb)

    while not beating.woken:
        beating.store.wait_for(ends(record))

    assert beating.store.stored(record.identity).outcome == b"late but true"
    assert beating.woken == [verb]


def test_write_that_never_lands_does_not_stop_the_others(beating: Beating) -> None:
    """F060."""
    poison, good = beating.claim("poison"), beating.claim("good")
    beating.store.fault_of = lambda verbs: IndefiniteFailure("poison") if ends(poison)(verbs) else None
    beating.heartbeat.keep_trying(complete(poison))
    beating.heartbeat.keep_trying(complete(good))

    while not beating.woken:
        beating.store.wait_for(lambda _: True)

    assert beating.store.stored(good.identity).state is State.COMPLETED
    assert beating.store.stored(poison.identity).state is State.IN_PROGRESS


def test_write_behind_a_lock_is_sent_again(beating: Beating) -> None:
    record = beating.claim("locked")
    beating.store.locked = {record.identity}
    beating.heartbeat.keep_trying(complete(record))
    beating.store.wait_for(ends(record), times=2)

    beating.store.locked = set()
    while not beating.woken:
        beating.store.wait_for(ends(record))

    assert beating.store.stored(record.identity).state is State.COMPLETED


@pytest.mark.parametrize("is_confirmed", [True, False])
def test_suspension_that_a_renewal_overtakes_is_sent_again(beating: Beating, is_confirmed: bool) -> None:
    """F078: otherwise whoever comes next would wait for a lease of which nobody makes use."""
    record = beating.claim("suspended")
    beating.store.applied(intend(record.ownership))
    suspend = Suspend(ownership=record.ownership)

    def before_the_renewal(verbs: Sequence[Verb]) -> Exception | None:
        if not isinstance(verbs[0], Renew) or watch.suspension is not None:
            return None
        beating.store.applied(watch.sends(suspend))
        beating.clock.now += 1
        if is_confirmed:
            return None
        beating.store.applied(verbs[0])
        return IndefiniteFailure("landed all the same")

    beating.store.fault_of = before_the_renewal
    watch = beating.watch(record)
    while not beating.woken:
        beating.store.wait_for(ends(record))
    beating.heartbeat.forget(watch)

    assert beating.woken[0] is suspend
    assert any(renews(record.identity)(batch) for batch in beating.store.batches)
    beating.heartbeat.close()
    assert beating.store.stored(record.identity).lease_until <= beating.clock.now


def test_later_write_to_the_same_record_is_not_dropped_with_the_earlier_one(beating: Beating) -> None:
    record = beating.claim("twice")
    release, again = Release(ownership=record.ownership), Release(ownership=record.ownership)

    def during_the_first(verbs: Sequence[Verb]) -> None:
        if verbs[0] is release:
            beating.heartbeat.keep_trying(again)

    beating.store.fault_of = during_the_first
    beating.heartbeat.keep_trying(release)

    while len(beating.woken) < 2:
        beating.store.wait_for(ends(record))

    assert beating.woken[0] is release
    assert beating.woken[1] is again


def test_unconfirmed_writes_are_told_to_the_log_without_what_they_hold(
    beating: Beating, caplog: pytest.LogCaptureFixture
) -> None:
    """SEC24."""
    caplog.set_level(logging.DEBUG)
    record = beating.claim("quiet")
    beating.store.faults = [IndefiniteFailure("the server went away")] * 2
    beating.heartbeat.keep_trying(complete(record))

    while not beating.woken:
        beating.store.wait_for(ends(record))

    assert "the server went away" in caplog.text
    assert "late but true" not in caplog.text
    assert record.key not in caplog.text


def test_closed_heartbeat_renews_nothing_more(beating: Beating) -> None:
    record = beating.claim("closing")
    beating.watch(record)
    beating.store.wait_for(renews(record.identity))

    beating.heartbeat.close()
    batches = len(beating.store.batches)
    beating.watch(record)

    assert beating.heartbeat._thread is not None
    assert not beating.heartbeat._thread.is_alive()
    assert len(beating.store.batches) == batches
    assert beating.store.applied(Renew(ownership=record.ownership, lease_us=LEASE_US)) == Kept()
