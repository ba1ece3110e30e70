"""What engine flows ask of a runtime: verbs on one record, a handler's turn, a pause, a random draw.

Those that every request asks are not frozen, which makes them at a third of the price; nobody changes an ask.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from nebis.core.answers import Answer, ClaimAnswer, Granted, Locked
from nebis.core.marks import Marks
from nebis.core.quick import maker
from nebis.core.record import Effect, Nonce, Outcome, OutcomeKind, Record, RecordId
from nebis.core.verbs import Claim, Verb
from nebis.flow import Ask
from nebis.ports.history import LateResult
from nebis.ports.messages import Message
from nebis.ports.observer import Completed, Event, claimed

T = TypeVar("T")


@dataclass(slots=True)
class Apply(Ask[Answer | Locked]):
    """Apply a verb to its record. The runtime may gather equal verbs of many callers into one commit."""

    verb: Verb


make_apply: Final = maker(Apply)


@dataclass(frozen=True, slots=True)
class Find(Ask[Record | None]):
    """Read a record as it stands."""

    identity: bytes


@dataclass(slots=True)
class Drawn:
    """The random marks of one attempt."""

    record_id: RecordId
    nonce: Nonce


@dataclass(frozen=True, slots=True)
class Draw(Ask[Drawn]):
    """Draw a record id and a nonce that nobody else has."""


@dataclass(slots=True)
class MakeClaim(Ask[Claim]):
    """Draw the marks of an attempt and make its claim from them.

    A request that comes from inside the very attempt that it would wait for is refused (F067).
    """

    make: Marks


make_make_claim: Final = maker(MakeClaim)


@dataclass(frozen=True, slots=True)
class Pause(Ask[None]):
    """Let about that much time pass; the runtime adds jitter so that twins do not come back together."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Elapsed(Ask[float]):
    """Read a clock that only grows, in seconds. It bounds waiting, never safety."""


@dataclass(frozen=True, slots=True)
class AwaitChange(Ask[bool]):
    """Wait until somebody says that the record moved, or for at most that long. False: too many wait already."""

    identity: bytes
    seconds: float
    waiters_limit: int


@dataclass(slots=True)
class Returned(Generic[T]):
    """A handler that returned."""

    value: T
    never_asked: str | None = None
    """An effect of an earlier attempt that this one did not ask for: its code must have changed."""
    effects: tuple[Effect, ...] = ()
    """All that is known of the record's effects when the handler ends."""


make_returned: Final = maker(Returned)


@dataclass(frozen=True, slots=True)
class Raised:
    """A handler that raised."""

    error: Exception
    never_asked: str | None = None
    effects: tuple[Effect, ...] = ()


@dataclass(frozen=True, slots=True)
class Settled:
    """A handler whose own transaction stored the outcome: there is nothing left to write."""

    outcome: Outcome
    messages: tuple[Message, ...] = ()
    """What is still to be staged with the outcome, where the transaction ends later."""


@dataclass(slots=True)
class RunHandler(Ask["Returned[object] | Raised | Settled"]):
    """Give the handler its turn, as the owner of this record."""

    record: Record


make_run_handler: Final = maker(RunHandler)


@dataclass(frozen=True, slots=True)
class TransactionBegin(Ask[None]):
    """Start the transaction of this turn."""


@dataclass(frozen=True, slots=True)
class TransactionHold(Ask[Record | Locked | None]):
    """Lock a record inside the transaction of this turn."""

    identity: bytes


@dataclass(slots=True)
class TransactionApply(Ask[Answer | Locked]):
    """Apply a verb inside the transaction of this turn."""

    verb: Verb


@dataclass(slots=True)
class TransactionSettle(Ask[Answer | Locked | None]):
    """Apply the last verb inside the transaction of this turn, and stage messages if it is kept.

    None says that somebody ended the transaction behind our back: then nothing is applied.
    """

    verb: Verb
    messages: tuple[Message, ...] = ()


@dataclass(frozen=True, slots=True)
class TransactionIsSame(Ask[bool]):
    """Ask whether nobody ended the transaction of this turn behind our back."""


@dataclass(frozen=True, slots=True)
class TransactionCommit(Ask[None]):
    """Commit the transaction of this turn; whoever is cancelled meanwhile is only detached."""


@dataclass(frozen=True, slots=True)
class TransactionRollback(Ask[None]):
    """Undo the transaction of this turn."""


@dataclass(frozen=True, slots=True)
class Barrier(Ask[Record | Locked | None]):
    """Read a record on another connection, once no earlier transaction can still change it."""

    identity: bytes


@dataclass(frozen=True, slots=True)
class KeepTrying(Ask[None]):
    """Go on sending this write after the caller was answered, for as long as the process lives."""

    verb: Verb


@dataclass(frozen=True, slots=True)
class KeepLate(Ask[None]):
    """Keep a result that came too late, for people. Best effort: whatever goes wrong, the caller never hears of it."""

    late: LateResult
    keep_us: int


class Tell(Ask[None]):
    """Tell the observers what happened."""

    __slots__ = ("_event",)

    def __init__(self, event: Event) -> None:
        self._event = event

    @property
    def event(self) -> Event:
        """Return what they are told."""
        return self._event


@dataclass(slots=True)
class TellClaimed(Tell):
    """Tell the observers how a claim was answered. The event is made when it is read: mostly nobody listens."""

    answer: ClaimAnswer

    @property
    def event(self) -> Event:
        """Make what they are told."""
        return claimed(self.answer)


make_tell_claimed: Final = maker(TellClaimed)


@dataclass(slots=True)
class Attend(TellClaimed):
    """Tell the observers that a claim was granted, and renew it from now on, until the flow ends."""

    answer: Granted
    lease_us: int
    renewal_seconds: float


make_attend: Final = maker(Attend)


@dataclass(slots=True)
class TellCompleted(Tell):
    """Tell the observers that an attempt stored its outcome; the event is made when it is read, as above."""

    record: Record
    kind: OutcomeKind

    @property
    def event(self) -> Event:
        """Make what they are told."""
        return Completed(operation=self.record.operation, operation_id=str(self.record.record_id), kind=self.kind)


make_tell_completed: Final = maker(TellCompleted)


@dataclass(frozen=True, slots=True)
class CallEffect(Ask["Returned[Any] | Raised"]):
    """Call a downstream, whose intent is durable; cancelling the caller does not cancel it.

    Where the runtime can, it stops waiting after the timeout; whether the effect happened is then unknown.
    """

    call: Callable[[Any], Any]
    effect: Effect
    timeout_seconds: float | None = None
    is_local: bool = False
    """The call gets the connection of the open transaction instead of the effect."""
