"""Lead a record out of doubt: by what a downstream says, or at its deadline. Absence alone never runs it again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from nebis.core.answers import Kept
from nebis.core.record import Effect, EffectVerdict, Outcome, OutcomeKind, Record
from nebis.core.rejection import encode_rejection
from nebis.core.verbs import AbsenceProof, DidNotHappen, EffectKnown, Ended, Resolve, Verdict
from nebis.effects import Query
from nebis.errors import OutcomeUnknown
from nebis.flow import Flow
from nebis.flows.persist import send_unowned
from nebis.policy import Policy, microseconds
from nebis.ports.asks import CallEffect, Draw, Raised, Tell
from nebis.ports.observer import DoubtEnded, DoubtExpired


class Reconciled(StrEnum):
    """What became of a record in doubt."""

    GOES_ON = "goes_on"
    """Evidence was found; whoever takes it over next goes on."""
    EXPIRED = "expired"
    """Its deadline passed, and it is closed as unknown."""
    STILL_IN_DOUBT = "still_in_doubt"
    MOVED_ON = "moved_on"
    """Somebody else led it out of doubt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inquiry:
    """A way to ask what became of one effect."""

    query: Query
    encode: Callable[[Any], bytes]
    """Renders a found result as the effect itself would have stored it."""


def reconcile(record: Record, policy: Policy, inquiry: Inquiry | None, now: int) -> Flow[Reconciled]:
    """Ask the downstream where the operation says how; close the record as unknown once its deadline has passed.

    `now` is the store's clock, read before the downstream is asked.
    """
    opened = record.open_effect
    if inquiry is not None and opened is not None:
        verdict = yield from _ask(record, policy, inquiry, opened, now)
        if verdict is not None:
            return (yield from _resolve(record, policy, opened, verdict))
    if record.doubt_since is None or now < record.doubt_since + microseconds(policy.doubt_deadline):
        return Reconciled.STILL_IN_DOUBT
    return (yield from _expire(record, policy))


def _ask(
    record: Record, policy: Policy, inquiry: Inquiry, opened: Effect, now: int
) -> Flow[EffectKnown | DidNotHappen | None]:
    """Ask by the key that was stored with the intent; never by anything else that a row says (SEC32)."""
    query = inquiry.query
    timeout_seconds = policy.effect_timeout.total_seconds()
    found = yield from CallEffect(lambda effect: query.find(effect.derived_key), opened, timeout_seconds)
    if isinstance(found, Raised):
        raise found.error
    if found.value is not None:
        return EffectKnown(verdict=EffectVerdict.HAPPENED, result=inquiry.encode(found.value))
    # Nothing is there now, which proves nothing: the first call may still be on its way (F065).
    if query.void is not None:
        void = query.void
        voided = yield from CallEffect(lambda effect: void(effect.derived_key), opened, timeout_seconds)
        if isinstance(voided, Raised):
            raise voided.error
        if voided.value is not False:
            return DidNotHappen(proof=AbsenceProof.VOIDED)
    if query.settled_after is None or record.doubt_since is None:
        return None
    has_settled = now >= record.doubt_since + microseconds(query.settled_after)
    return DidNotHappen(proof=AbsenceProof.SETTLED) if has_settled else None


def _resolve(record: Record, policy: Policy, opened: Effect, verdict: EffectKnown | DidNotHappen) -> Flow[Reconciled]:
    if not (yield from _settled(record, policy, verdict)):
        return Reconciled.MOVED_ON
    said = verdict.verdict if isinstance(verdict, EffectKnown) else EffectVerdict.DID_NOT_HAPPEN
    yield from Tell(
        DoubtEnded(operation=record.operation, operation_id=str(record.record_id), effect=opened.purpose, verdict=said)
    )
    return Reconciled.GOES_ON


def _expire(record: Record, policy: Policy) -> Flow[Reconciled]:
    """Close a record that nobody could prove anything about; its callers are told so for good."""
    unknown = OutcomeUnknown(record.operation, str(record.record_id))
    outcome = Outcome(kind=OutcomeKind.UNKNOWN, body=encode_rejection(unknown))
    if not (yield from _settled(record, policy, Ended(outcome=outcome))):
        return Reconciled.MOVED_ON
    yield from Tell(
        DoubtExpired(operation=record.operation, operation_id=str(record.record_id), reason=record.doubt_reason or "")
    )
    return Reconciled.EXPIRED


def _settled(record: Record, policy: Policy, verdict: Verdict) -> Flow[bool]:
    """Write the verdict, as the record was seen; False if it moved on meanwhile."""
    drawn = yield from Draw()
    verb = Resolve(
        identity=record.identity,
        record_id=record.record_id,
        fence_seen=record.fence,
        nonce=drawn.nonce,
        verdict=verdict,
        retention=policy.kept,
        effect_seen=record.open_effect_name,
    )
    answer = yield from send_unowned(verb, policy.confirm_seconds)
    return isinstance(answer, Kept)
