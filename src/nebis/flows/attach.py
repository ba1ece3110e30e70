"""Write something beside the outcome while an attempt runs."""

from __future__ import annotations

from nebis.core.answers import Refused
from nebis.core.record import Record, Resource, Retention
from nebis.core.verbs import Attach
from nebis.errors import ClaimLost
from nebis.flow import Flow
from nebis.flows.persist import send_owned
from nebis.policy import Policy
from nebis.ports.asks import Tell
from nebis.ports.observer import OwnershipLost


def attach_resource(record: Record, policy: Policy, resource: Resource) -> Flow[None]:
    """Name what the operation works on, so that people see it while it runs and long after; or raise `ClaimLost`."""
    yield from _attach(record, policy, Attach(ownership=record.ownership, resource=resource))


def extend_retention(record: Record, policy: Policy, outcome_us: int) -> Flow[None]:
    """Keep the outcome for at least that long from now; never shortens what was promised. Raises `ClaimLost`."""
    retention = Retention(outcome_us=outcome_us, metadata_us=policy.kept.metadata_us)
    yield from _attach(record, policy, Attach(ownership=record.ownership, retention=retention))


def _attach(record: Record, policy: Policy, verb: Attach) -> Flow[None]:
    answer = yield from send_owned(verb, policy.confirm_seconds)
    if isinstance(answer, Refused):
        yield from Tell(
            OwnershipLost(operation=record.operation, operation_id=str(record.record_id), reason=answer.reason)
        )
        raise ClaimLost(record.operation, answer.reason)
