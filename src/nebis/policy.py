"""How an operation behaves when things go wrong. Every default says why it is that value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import lru_cache

from nebis.core.record import EffectsMode, Retention
from nebis.core.verbs import ExpiredPolicy
from nebis.velocity import Limit, Quota

Local = EffectsMode.LOCAL
Declared = EffectsMode.DECLARED
Opaque = EffectsMode.OPAQUE


def seconds(number: float) -> timedelta:
    """Return a span of that many seconds."""
    return timedelta(seconds=number)


def minutes(number: float) -> timedelta:
    """Return a span of that many minutes."""
    return timedelta(minutes=number)


def hours(number: float) -> timedelta:
    """Return a span of that many hours."""
    return timedelta(hours=number)


def days(number: float) -> timedelta:
    """Return a span of that many days."""
    return timedelta(days=number)


@lru_cache(maxsize=1024)
def microseconds(span: timedelta) -> int:
    """Return a span as whole microseconds, the unit of every store."""
    return span // timedelta(microseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reject:
    """Tell a twin of a running attempt to come back: it holds no thread, no socket and no memory meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Let a twin wait for the running attempt and answer with its outcome."""

    longest: timedelta = field(default=timedelta(seconds=2))
    # Most operations end within two seconds; a client's own timeout is rarely below five.


WAIT_BOUND = timedelta(seconds=30)
"""A waiter holds a connection of its client; beyond this, proxies and load balancers give up first."""

GRACE = timedelta(seconds=5)
"""How long `close` waits for running attempts: half of the ten seconds that most supervisors wait before they kill."""

EFFECTS_HELP = (
    "say what the operation does outside its record: "
    "effects=Local (all writes go through attempt.transaction; an exception means that nothing happened), "
    "effects=Declared (everything outside goes through the attempt), or "
    "effects=Opaque (nothing is known; a crash or an exception is in doubt, never run again)"
)

_SHORTEST = timedelta(milliseconds=1)
_LONGEST = timedelta(days=3650)
_RENEWALS_PER_LEASE = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Everything about an operation that is a choice rather than a law."""

    effects: EffectsMode

    lease: timedelta = timedelta(seconds=30)
    # Three missed renewals at the default cadence. Shorter ones call a long garbage collection dead, longer ones make
    # the client of a crashed server wait; safety holds with any value.
    renewal: timedelta = timedelta(seconds=10)
    # A third of the lease: two renewals may be lost before anybody takes over.
    effect_timeout: timedelta = timedelta(seconds=20)
    # Below the lease, so that a call that hangs ends before a successor may start (F066).

    single_transaction: bool = False
    # One commit instead of two, but twins block at the unique index until it ends: for short, purely local work only.

    in_flight: Reject | Wait = Reject()
    # Rejecting costs nothing and is what the HTTP draft names; waiting is for callers that cannot retry by themselves.
    waiters_limit: int = 32
    # Per key and process: a stampede of twins must not hold every thread of a server (SEC36).

    retention: timedelta = timedelta(hours=24)
    # The window that most payment APIs publish; it must outlast the slowest client's last retry.
    metadata_retention: timedelta = timedelta(days=30)
    # Long enough for a monthly reconciliation to ask what became of a key; holds no body.
    when_expired: ExpiredPolicy = ExpiredPolicy.RUN_AGAIN
    # A key whose window is over is a new request, as published; refusing is for operations that must never repeat.

    doubt_deadline: timedelta = timedelta(hours=72)
    # A fault of Friday night survives the weekend and can still be resolved by people on Monday.
    recoveries_limit: int = 10
    # With the back-off below about twenty minutes of trying: what fails for longer needs a person, not a loop.
    backoff_first: timedelta = timedelta(seconds=1)
    backoff_longest: timedelta = timedelta(minutes=5)

    shortest_key: int = 1
    # The grammar allows one character; ask for 16 where clients are strangers, so that guessing is hopeless (SEC06).

    issued_keys: bool = False
    # Any key that the grammar allows begins a record. True takes only those that this service issued itself, which
    # nobody can guess, share or keep for later; it costs clients a request more.

    velocity: Sequence[Limit] = ()
    # What is too fast is known to the application alone; without a limit nothing is counted or asked of the store.
    quota: Quota | None = None
    # What a tenant may hold of the store; each costs one more statement, so that nobody pays who does not ask for it.

    confirm: timedelta = timedelta(seconds=10)
    # How long a caller is kept while the store does not confirm; afterwards the process goes on trying without it.

    command_limit_bytes: int = 1024 * 1024
    result_limit_bytes: int = 4 * 1024 * 1024
    # Both decided before anything is stored: a result that is too large is an honest final error, never a second run.

    lease_us: int = field(init=False, repr=False, compare=False)
    """The lease in the store's unit; this and the next ones are worked out once, as every request asks for them."""
    kept: Retention = field(init=False, repr=False, compare=False)
    """Both retentions in the store's unit."""
    renewal_seconds: float = field(init=False, repr=False, compare=False)
    """The renewal in the unit of clocks."""
    confirm_seconds: float = field(init=False, repr=False, compare=False)
    """The patience with the store in the unit of clocks."""

    def __post_init__(self) -> None:
        kept = Retention(outcome_us=microseconds(self.retention), metadata_us=microseconds(self.metadata_retention))
        object.__setattr__(self, "lease_us", microseconds(self.lease))
        object.__setattr__(self, "kept", kept)
        object.__setattr__(self, "renewal_seconds", self.renewal.total_seconds())
        object.__setattr__(self, "confirm_seconds", self.confirm.total_seconds())

    def faults(self) -> list[str]:
        """Return every reason why this policy cannot work, each with what to change."""
        found = [
            f"{name} must be between 1 ms and ten years, not {span}; choose a positive span"
            for name, span in self._spans().items()
            if not _SHORTEST <= span <= _LONGEST
        ]
        if self.lease < _RENEWALS_PER_LEASE * self.renewal:
            found.append(
                f"lease ({self.lease}) must be at least three renewals ({self.renewal} each); "
                "raise the lease or renew more often"
            )
        if self.effect_timeout >= self.lease:
            found.append(
                f"effect_timeout ({self.effect_timeout}) must be below the lease ({self.lease}); "
                "lower it or raise the lease"
            )
        if self.single_transaction and self.effects is not EffectsMode.LOCAL:
            found.append("single_transaction needs effects=Local: anything else could happen and be rolled back here")
        if isinstance(self.in_flight, Wait) and not timedelta(0) < self.in_flight.longest <= WAIT_BOUND:
            found.append(f"Wait(longest=...) must be above zero and at most {WAIT_BOUND}, not {self.in_flight.longest}")
        if self.retention < self.lease * self.recoveries_limit:
            found.append(
                f"retention ({self.retention}) must be at least lease x recoveries_limit "
                f"({self.lease * self.recoveries_limit}), or an answer could expire while it is still being recovered"
            )
        found.extend(fault for limit in self.velocity for fault in limit.faults())
        found.extend([] if self.quota is None else self.quota.faults())
        if self.single_transaction and self.quota is not None and self.quota.in_flight is not None:
            found.append("Quota(in_flight=...) is not for single_transaction: what is not committed yet is not counted")
        found.extend(
            f"{name} must be at least 1, not {number}" for name, number in self._numbers().items() if number < 1
        )
        return found

    def _spans(self) -> Mapping[str, timedelta]:
        return {
            "lease": self.lease,
            "renewal": self.renewal,
            "effect_timeout": self.effect_timeout,
            "retention": self.retention,
            "metadata_retention": self.metadata_retention,
            "doubt_deadline": self.doubt_deadline,
            "backoff_first": self.backoff_first,
            "backoff_longest": self.backoff_longest,
            "confirm": self.confirm,
        }

    def _numbers(self) -> Mapping[str, int]:
        return {
            "shortest_key": self.shortest_key,
            "waiters_limit": self.waiters_limit,
            "recoveries_limit": self.recoveries_limit,
            "command_limit_bytes": self.command_limit_bytes,
            "result_limit_bytes": self.result_limit_bytes,
        }
