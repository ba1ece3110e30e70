"""Keep what an attempt brings after it lost its record: evidence for people, never an outcome."""

from __future__ import annotations

from nebis.core.answers import Refused
from nebis.core.record import Record, purpose_of
from nebis.core.verbs import Checkpoint, Complete
from nebis.flow import Flow
from nebis.policy import Policy
from nebis.ports.asks import KeepLate, Tell
from nebis.ports.history import LateResult
from nebis.ports.observer import LateResult as CameLate


def keep_late(record: Record, policy: Policy, verb: Complete | Checkpoint, refused: Refused) -> Flow[None]:
    """Keep a result that the store refused, for as long as an outcome, and tell the observers; never fails."""
    late = late_result_of(verb)
    yield from KeepLate(late, policy.kept.outcome_us)
    effect = None if late.effect is None else purpose_of(late.effect)
    yield from Tell(
        CameLate(operation=record.operation, operation_id=str(record.record_id), effect=effect, reason=refused.reason)
    )


def late_result_of(verb: Complete | Checkpoint) -> LateResult:
    """Return what a write would have stored, as the history keeps it."""
    effect, body = (None, verb.outcome.body) if isinstance(verb, Complete) else (verb.name, verb.result)
    return LateResult(record_id=verb.ownership.record_id, fence=verb.ownership.fence, effect=effect, body=body)
