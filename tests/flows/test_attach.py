"""Naming the resource of a running attempt."""

import pytest

from nebis import ClaimLost, NotConfirmed
from nebis.core.answers import Kept, Refusal, Refused
from nebis.core.record import Resource, Retention
from nebis.core.verbs import Attach
from nebis.flows.attach import attach_resource, extend_retention
from nebis.ports.asks import KeepTrying
from nebis.ports.observer import OwnershipLost
from nebis.ports.store import IndefiniteFailure
from tests.flows.scripted import ScriptedWorld
from tests.flows.specimens import owned, quick

REQUEST = quick()
RECORD = owned(REQUEST)
INVOICE = Resource(type="invoice", id="in_1")


def test_resource_is_written_by_its_owner() -> None:
    world = ScriptedWorld(Kept())

    world.run(attach_resource(RECORD, REQUEST.policy, INVOICE))

    assert world.verbs == [Attach(ownership=RECORD.ownership, resource=INVOICE)]


def test_retention_is_extended_by_its_owner() -> None:
    world = ScriptedWorld(Kept())

    world.run(extend_retention(RECORD, REQUEST.policy, 5_000_000))

    retention = Retention(outcome_us=5_000_000, metadata_us=REQUEST.policy.kept.metadata_us)
    assert world.verbs == [Attach(ownership=RECORD.ownership, retention=retention)]


def test_fenced_attempt_learns_it_from_its_next_call() -> None:
    world = ScriptedWorld(Refused(reason=Refusal.FENCED, found=RECORD))

    with pytest.raises(ClaimLost):
        world.run(attach_resource(RECORD, REQUEST.policy, INVOICE))

    assert world.told == [
        OwnershipLost(operation="pay", operation_id=str(RECORD.record_id), reason=Refusal.FENCED),
    ]


def test_resource_that_is_not_confirmed_is_kept_trying() -> None:
    world = ScriptedWorld(IndefiniteFailure("no answer"))

    with pytest.raises(NotConfirmed):
        world.run(attach_resource(RECORD, REQUEST.policy, INVOICE))

    assert [type(ask.verb) for ask in world.of(KeepTrying)] == [Attach]
