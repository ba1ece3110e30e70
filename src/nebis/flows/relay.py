"""Publishing what was staged: take, publish, then mark. A crash in between publishes again under the same id (F106)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import assert_never

from nebis.flow import Flow
from nebis.policy import microseconds
from nebis.ports.asks import Elapsed
from nebis.ports.messages import Confirmed, PublishResult, Refused, Unknown
from nebis.ports.outbox import Entry, Mark, MarkMessages, MessageState, PublishMessages, ResetPublishers, TakeMessages

LONGEST_ERROR = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayPolicy:
    """Everything about a relay that is a choice rather than a law."""

    batch: int = 100
    # One trip to the store for each hundred messages; a batch must fit well into the lease.
    lease: timedelta = timedelta(seconds=30)
    # How long the messages of a relay that died wait for another. Order and safety do not depend on it.
    publish_timeout: timedelta = timedelta(seconds=10)
    # A third of the lease, so that a broker that hangs is noticed while the messages are still ours.
    attempts_limit: int = 50
    # With the back-off below about three and a half hours: a broker's bad night parks nothing.
    backoff_first: timedelta = timedelta(seconds=1)
    backoff_longest: timedelta = timedelta(minutes=5)
    idle: timedelta = timedelta(seconds=0.5)
    # Between two looks at an empty outbox: what a message waits at most, and one small query.
    retention: timedelta = timedelta(days=7)
    # For people who ask what was sent. An id that is staged again meanwhile is known, and not sent twice.

    def faults(self) -> list[str]:
        """Return every reason why this policy cannot work, each with what to change."""
        spans = {
            "lease": self.lease,
            "publish_timeout": self.publish_timeout,
            "backoff_first": self.backoff_first,
            "backoff_longest": self.backoff_longest,
            "idle": self.idle,
            "retention": self.retention,
        }
        found = [f"{name} must be positive, not {span}" for name, span in spans.items() if span <= timedelta(0)]
        if self.publish_timeout >= self.lease:
            found.append(
                f"publish_timeout ({self.publish_timeout}) must be below the lease ({self.lease}); lower it or raise "
                "the lease"
            )
        numbers = {"batch": self.batch, "attempts_limit": self.attempts_limit}
        found.extend(f"{name} must be at least 1, not {number}" for name, number in numbers.items() if number < 1)
        return found

    def pause_us(self, attempts: int) -> int:
        """Return how long a message is left alone after so many attempts."""
        # The exponent is bounded: the limit of attempts may be anything.
        span = self.backoff_first * 2 ** min(attempts - 1, 30)
        return microseconds(min(span, self.backoff_longest))


@dataclass(slots=True, kw_only=True)
class Relayed:
    """What one round of a relay did."""

    taken: int = 0
    published: int = 0
    postponed: int = 0
    parked: int = 0
    lost: int = 0
    """Of which another relay has become the speaker meanwhile."""

    def __str__(self) -> str:
        words = [f"{self.published} published", f"{self.postponed} postponed", f"{self.parked} parked"]
        return ", ".join([*words, f"{self.lost} lost"] if self.lost else words)


def relay_once(policy: RelayPolicy) -> Flow[Relayed]:
    """Publish one batch of what is due, and mark what became of each message.

    Messages of one ordering key go out one after the other, each only when the one before it is marked: whoever was
    stopped for longer than its lease learns there that another relay has gone on, and stops (F110).
    """
    done = Relayed()
    began = yield from Elapsed()
    taken = yield from TakeMessages(policy.batch, microseconds(policy.lease))
    done.taken = len(taken)
    halted: set[str] = set()
    for wave in _waves(taken):
        is_late = (yield from Elapsed()) - began > policy.lease.total_seconds() / 2
        due: list[Entry] = []
        rest: list[Entry] = []
        for entry in wave:
            (rest if is_late or entry.message.ordering_key in halted else due).append(entry)
        marks = [*(yield from _publish(due, policy)), *map(_let_go, rest)]
        kept = yield from MarkMessages(tuple(marks))
        for entry, mark in zip([*due, *rest], marks, strict=True):
            is_kept = mark.sequence in kept
            _count(done, mark, is_kept=is_kept)
            if entry.message.ordering_key is not None and not (is_kept and mark.state is MessageState.PUBLISHED):
                halted.add(entry.message.ordering_key)
    return done


def _waves(taken: Sequence[Entry]) -> Iterator[list[Entry]]:
    """Part what was taken so that an ordering key is in each part at most once, in order."""
    rest = list(taken)
    while rest:
        seen: set[str] = set()
        wave: list[Entry] = []
        later: list[Entry] = []
        for entry in rest:
            key = entry.message.ordering_key
            (later if key in seen else wave).append(entry)
            if key is not None:
                seen.add(key)
        yield wave
        rest = later


def _publish(entries: Sequence[Entry], policy: RelayPolicy) -> Flow[list[Mark]]:
    if not entries:
        return []
    results = yield from PublishMessages(tuple(entry.message for entry in entries))
    unknown = frozenset(
        entry.message.topic for entry, result in zip(entries, results, strict=True) if isinstance(result, Unknown)
    )
    if unknown:
        yield from ResetPublishers(unknown)
    return [_marked(entry, result, policy) for entry, result in zip(entries, results, strict=True)]


def _marked(entry: Entry, result: PublishResult, policy: RelayPolicy) -> Mark:
    match result:
        case Confirmed():
            return _mark(entry, MessageState.PUBLISHED)
        case Refused():
            is_last = result.is_permanent or entry.attempts >= policy.attempts_limit
        case Unknown():
            is_last = entry.attempts >= policy.attempts_limit
        case _:
            assert_never(result)
    error = "".join(character if character.isprintable() else "?" for character in result.reason[:LONGEST_ERROR])
    if is_last:
        return _mark(entry, MessageState.PARKED, error=error)
    wish_us = microseconds(timedelta(seconds=result.retry_after_seconds or 0))
    return _mark(entry, MessageState.PENDING, pause_us=max(policy.pause_us(entry.attempts), wish_us), error=error)


def _mark(entry: Entry, state: MessageState, *, pause_us: int = 0, error: str | None = None) -> Mark:
    return Mark(
        sequence=entry.sequence,
        fence=entry.fence,
        state=state,
        attempts=entry.attempts,
        pause_us=pause_us,
        error=error,
    )


def _let_go(entry: Entry) -> Mark:
    """Give a message back that was not tried: taking it does not count."""
    return Mark(
        sequence=entry.sequence,
        fence=entry.fence,
        state=MessageState.PENDING,
        attempts=entry.attempts - 1,
        error=entry.last_error,
    )


def _count(done: Relayed, mark: Mark, *, is_kept: bool) -> None:
    if not is_kept:
        done.lost += 1
    elif mark.state is MessageState.PUBLISHED:
        done.published += 1
    elif mark.state is MessageState.PARKED:
        done.parked += 1
    else:
        done.postponed += 1
