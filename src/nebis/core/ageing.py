"""How records end: nothing in progress or in doubt is ever touched here (I9)."""

from __future__ import annotations

from nebis.core.answers import OwnerAnswer, Refusal
from nebis.core.owning import KEPT
from nebis.core.record import Record, State
from nebis.core.step import Edge, Step, changed, refusal_of_state, refuse


def expire(record: Record | None, now: int) -> Step[OwnerAnswer]:
    """Turn an outcome past its window into a tombstone; fingerprint, times, resource and kind stay."""
    if record is None:
        return refuse(None, Refusal.ABSENT)
    if record.state is not State.COMPLETED:
        return refuse(record, refusal_of_state(record))
    if now < record.expires_at:
        return refuse(record, Refusal.NOT_DUE)
    tombstone = changed(record, state=State.EXPIRED, outcome=None, command=None, effects=())
    return Step(record=tombstone, answer=KEPT, edge=Edge.EXPIRED)


def purge(record: Record | None, now: int) -> Step[OwnerAnswer]:
    """Remove an available record past its window: nothing ever happened under it."""
    if record is None:
        return refuse(None, Refusal.ABSENT)
    if record.state is not State.AVAILABLE:
        return refuse(record, refusal_of_state(record))
    if now < record.expires_at:
        return refuse(record, Refusal.NOT_DUE)
    return Step(record=None, answer=KEPT, edge=Edge.PURGED)


def forget(record: Record | None, now: int) -> Step[OwnerAnswer]:
    """Remove a tombstone past its metadata's time; the key is new after it."""
    if record is None:
        return refuse(None, Refusal.ABSENT)
    if record.state is not State.EXPIRED:
        return refuse(record, refusal_of_state(record))
    if now < record.forget_at:
        return refuse(record, Refusal.NOT_DUE)
    return Step(record=None, answer=KEPT, edge=Edge.FORGOTTEN)


def aged_by(record: Record, now: int) -> Record | None:
    """Return what is left of a record that has aged as far as it may by now: a sweep does all of it at once."""
    left: Record | None = record
    for age in (expire, purge, forget):
        left = age(left, now).record
    return left
