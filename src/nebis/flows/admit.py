"""Take one delivery of a message in: run its consumer once, or say what the reader does with it instead."""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from nebis.core.answers import Doubtful, Gone, Granted, Reused, Running, Unreadable
from nebis.core.record import OutcomeKind, Record, RecordId, State
from nebis.core.verbs import Release
from nebis.delivery import Done, Later, Parked, ParkReason, Verdict
from nebis.errors import InDoubt, NotYet, Retryable
from nebis.flow import Flow
from nebis.flows.enter import enter
from nebis.flows.execute import begin
from nebis.flows.request import Ending, Failed, Finished, Request, Vanished
from nebis.flows.single import execute_single
from nebis.flows.undo import conclude
from nebis.ports.asks import Apply, Draw, Find, RunHandler, Settled, Tell
from nebis.ports.inbox import AskInbox, Letter, ParkedLetter, Place, Progress
from nebis.ports.observer import GapFound, MessageIgnored, MessageParked
from nebis.ports.store import StoreFailure

LONGEST_LOOK_SECONDS = 2.0
"""Most attempts end long before their lease; whoever comes back a little early is only told again."""
STORE_PAUSE_SECONDS = 1.0
LONGEST_REST_SECONDS = 300.0
"""How long the broker keeps what nobody else can, before it is offered again."""


class AttemptsUsedUp(Retryable):
    """Raised instead of calling a handler that has had all its tries: nothing happened in this one."""

    def __init__(self) -> None:
        super().__init__("its attempts are used up")


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """One message at the door of its consumer."""

    request: Request
    letter: Letter
    """What is kept if it is parked."""
    attempts_limit: int
    is_single: bool = False
    """The handler runs in the transaction that claims."""
    place: Place | None = None
    """Set where offsets count."""
    is_redrive: bool = False
    """It was parked and is sent in again: it gets one try, and its offset is behind the others already."""


def admit(admission: Admission) -> Flow[Verdict]:
    """Run the consumer once for this message, however often it is delivered; never raise for what is wrong with it.

    A message is `Done` only after its outcome was confirmed, and `Parked` only after it is kept.
    """
    try:
        return (yield from _admit(admission))
    except NotYet as error:
        return Later(after_seconds=error.retry_after_seconds, reason=error.code)
    except StoreFailure:
        return Later(after_seconds=STORE_PAUSE_SECONDS, reason="store-unavailable")


def _admit(admission: Admission) -> Flow[Verdict]:
    place = admission.place
    known = yield from _progress(admission)
    if known is not None and place is not None and place.offset <= known.last_offset:
        return (yield from _behind(admission, known))
    verdict = yield from _run(admission)
    if isinstance(verdict, Done) and admission.is_redrive:
        yield from AskInbox(lambda inbox: inbox.unpark(admission.letter.parked_id))
    if not isinstance(verdict, Later):
        yield from _tell_gap(admission, known)
    return verdict


def park(
    letter: Letter,
    reason: ParkReason,
    detail: str = "",
    *,
    place: Place | None = None,
    attempts: int = 0,
    record_id: RecordId | None = None,
) -> Flow[Verdict]:
    """Keep a message that is not run, and go past it in its partition.

    One whose payload is too large to be kept is shown, and stays with the broker.
    """
    parked = ParkedLetter(
        letter=letter,
        reason=reason,
        detail=detail,
        attempts=attempts,
        record_id=record_id,
        # Somebody is at work on a doubt already, with its message; once it ended there is nothing left to decide.
        is_due=reason is ParkReason.IN_DOUBT,
    )
    try:
        yield from AskInbox(lambda inbox: inbox.park(parked))
        yield from Tell(
            MessageParked(operation=letter.consumer, operation_id=str(letter.parked_id), reason=reason.value)
        )
        if letter.payload is None:
            return Later(after_seconds=LONGEST_REST_SECONDS, reason=reason.value)
        yield from _advance(place)
    except StoreFailure:
        return Later(after_seconds=STORE_PAUSE_SECONDS, reason="store-unavailable")
    return Parked(reason=reason, parked_id=str(letter.parked_id))


def _progress(admission: Admission) -> Flow[Progress | None]:
    place = admission.place
    if place is None or admission.is_redrive:
        return None
    return (yield from AskInbox(lambda inbox: inbox.progress(place.consumer, place.partition)))


def _behind(admission: Admission, known: Progress) -> Flow[Verdict]:
    """Ignore what is applied already; what a gap had skipped was not, and running it now would be out of order."""
    letter = admission.letter
    if not (yield from _is_applied(admission, known)):
        return (yield from park(letter, ParkReason.OFFSET_SKIPPED, f"offset {known.last_offset} is applied already"))
    yield from Tell(MessageIgnored(operation=letter.consumer, operation_id=str(letter.parked_id)))
    return Done(is_duplicate=True)


def _is_applied(admission: Admission, known: Progress) -> Flow[bool]:
    """Tell whether an offset at or below the last was ever applied; its record knows, where a gap leaves a doubt."""
    assert admission.place is not None
    if known.gap is None or (known.gaps == 1 and not known.gap[0] <= admission.place.offset <= known.gap[1]):
        return True
    drawn = yield from Draw()
    found = yield from Find(admission.request.claim(drawn.record_id, drawn.nonce).identity)
    return found is not None and found.state in (State.COMPLETED, State.EXPIRED)


def _tell_gap(admission: Admission, known: Progress | None) -> Flow[None]:
    place = admission.place
    if place is None or known is None or place.offset == known.last_offset + 1:
        return
    yield from Tell(
        GapFound(
            operation=place.consumer,
            operation_id=str(admission.letter.parked_id),
            partition=place.partition,
            first=known.last_offset + 1,
            last=place.offset - 1,
        )
    )


def _advance(place: Place | None) -> Flow[None]:
    if place is not None:
        yield from AskInbox(lambda inbox: inbox.advance(place))


def _run(admission: Admission) -> Flow[Verdict]:
    request = admission.request
    try:
        if admission.is_single:
            ending, is_advanced = (yield from execute_single(request)), True
        else:
            ending, is_advanced = yield from _claim_and_run(request)
    except InDoubt as error:
        return (yield from _parked(admission, ParkReason.IN_DOUBT, detail=error.reason))
    if not isinstance(ending, Finished):
        return (yield from _judged(admission, ending))
    if ending.outcome.kind in (OutcomeKind.SUCCEEDED, OutcomeKind.UNSTORABLE):
        if not is_advanced or ending.is_replay:
            yield from _advance(admission.place)
        return Done(is_duplicate=ending.is_replay)
    is_no = ending.outcome.kind is OutcomeKind.REJECTED
    reason = ParkReason.REJECTED if is_no else ParkReason.OUTCOME_UNKNOWN
    return (yield from _parked(admission, reason, record_id=ending.record_id))


def _claim_and_run(request: Request) -> Flow[tuple[Ending, bool]]:
    """Run as `execute` does, and tell whether the handler's own transaction holds the outcome, and the offset."""
    begun = yield from begin(request)
    if not isinstance(begun, Record):
        return begun, False
    end = yield from RunHandler(begun)
    return (yield from conclude(request, begun, end)), isinstance(end, Settled)


def _judged(
    admission: Admission, ending: Failed | Vanished | Running | Reused | Doubtful | Gone | Unreadable
) -> Flow[Verdict]:
    """Say what becomes of a message that was not applied now."""
    policy = admission.request.policy
    match ending:
        case Failed():
            return (yield from _failed(admission, ending))
        case Running():
            left_seconds = max(0.05, ending.lease_left_us / 1_000_000)
            return Later(after_seconds=min(left_seconds, LONGEST_LOOK_SECONDS), reason="in-flight")
        case Vanished():
            return Later(after_seconds=policy.backoff_first.total_seconds(), reason="not-confirmed")
        case Unreadable():
            # Code that knows the version is being deployed, or was rolled back: nobody else may decide.
            return Later(after_seconds=policy.backoff_longest.total_seconds(), reason="unreadable")
        case Reused():
            return (yield from _parked(admission, ParkReason.ID_REUSED, record=ending.record))
        case Doubtful() if admission.is_redrive:
            # It is parked for that very reason, and goes on once the doubt ended.
            return Later(after_seconds=policy.backoff_longest.total_seconds(), reason=ParkReason.IN_DOUBT)
        case Doubtful():
            detail = ending.record.doubt_reason or ""
            return (yield from _parked(admission, ParkReason.IN_DOUBT, record=ending.record, detail=detail))
        case Gone():
            if _was_applied(admission.request, ending.record):
                yield from _advance(admission.place)
                return Done(is_duplicate=True)
            return (yield from _parked(admission, ParkReason.AFTER_RETENTION, record=ending.record))
        case _:
            assert_never(ending)


def _was_applied(request: Request, tombstone: Record) -> bool:
    """Tell whether a tombstone proves that this very message was applied (F113)."""
    fingerprints = dict(request.claim(tombstone.record_id, tombstone.nonce).fingerprints)
    is_same = fingerprints.get(tombstone.fingerprint_version) == tombstone.fingerprint
    return is_same and tombstone.outcome_kind in (OutcomeKind.SUCCEEDED, OutcomeKind.UNSTORABLE)


def _failed(admission: Admission, ending: Failed) -> Flow[Verdict]:
    """Try again later, or give up on a message that has had all its tries (F108)."""
    record, told = ending.record, type(ending.error).__name__
    if ending.doubt_reason is not None:
        return (yield from _parked(admission, ParkReason.IN_DOUBT, record=record, detail=ending.doubt_reason))
    attempts = record.attempts
    if admission.is_single and not isinstance(ending.error, AttemptsUsedUp):
        attempts = yield from _count_attempt(admission.request, attempts)
    if admission.is_redrive or attempts >= admission.attempts_limit:
        # Only the type: what an exception says may be somebody's payload (SEC24).
        parked = _parked(admission, ParkReason.ATTEMPTS_USED_UP, record=record, detail=told, attempts=attempts)
        return (yield from parked)
    policy = admission.request.policy
    after = min(policy.backoff_first * 2 ** min(attempts - 1, 40), policy.backoff_longest)
    return Later(after_seconds=after.total_seconds(), reason=told)


def _count_attempt(request: Request, attempts: int) -> Flow[int]:
    """Write down an attempt of which its transaction left nothing: a claim that is given back at once."""
    answer = yield from enter(request)
    if not isinstance(answer, Granted):
        return attempts
    yield from Apply(Release(ownership=answer.record.ownership, nothing_happened=True))
    return answer.record.attempts


def _parked(
    admission: Admission,
    reason: ParkReason,
    *,
    record: Record | None = None,
    record_id: RecordId | None = None,
    detail: str = "",
    attempts: int | None = None,
) -> Flow[Verdict]:
    known = 0 if record is None else record.attempts
    return (
        yield from park(
            admission.letter,
            reason,
            detail,
            place=None if admission.is_redrive else admission.place,
            attempts=known if attempts is None else attempts,
            record_id=record_id if record is None else record.record_id,
        )
    )
