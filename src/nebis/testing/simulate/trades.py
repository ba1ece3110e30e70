"""The operations of the simulated service: one of every kind, on the real flows, with handlers that are flows too."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from functools import lru_cache
from typing import Any, cast

from nebis.core.fingerprint import FingerprintRule, FingerprintVersions
from nebis.core.record import EffectsMode, Record
from nebis.core.secret import Keyring, Secret, Secrets
from nebis.declaration import Declaration, PolicyOptions, declare
from nebis.effects import Fenced, Query, Queryable, Recall, Sticky, SuccessOnly, Undo, Unrecoverable
from nebis.flow import Ask, Flow
from nebis.flows.effect import run_effect
from nebis.flows.guarded import begin_guarded, commit_guarded, leave_guarded
from nebis.flows.ledger import Ledger
from nebis.flows.request import Request
from nebis.flows.settle import rendered
from nebis.flows.step import run_step
from nebis.planning import plan_effect, plan_step
from nebis.policy import Declared, Local, Opaque, Wait
from nebis.ports.asks import Raised, Returned, Settled
from nebis.ports.messages import Message
from nebis.testing.simulate.bank import Look, Memory, Order
from nebis.testing.simulate.faults import LEASE_SECONDS, Trouble

SECRETS = Secrets(identity=Secret(bytes(32)), keyring=Keyring.of(bytes(range(32))))
NEWEST_CODE = 2
AGEING_SECONDS = 70
"""How long an answer is kept in runs where answers age: longer than any message is under way."""
DOUBT_SECONDS = 45.0

_LONG = timedelta(days=1)
_UNDO = "undo:"


class Trade(StrEnum):
    """What an operation does outside its record."""

    STICKY = "sticky"
    SUCCESS_ONLY = "success-only"
    FENCED = "fenced"
    QUERYABLE = "queryable"
    FOUND_ONLY = "found-only"
    UNRECOVERABLE = "unrecoverable"
    OPAQUE = "opaque"
    UNDONE = "undone"
    MIXED = "mixed"
    STEP = "step"
    GUARDED = "guarded"
    SINGLE = "single"


TELLING = frozenset({Trade.GUARDED, Trade.SINGLE})
"""Those that commit rows of their own, and can stage messages with them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What may differ between two declarations of one operation."""

    code: int
    """The version of the code; a newer one knows the fingerprints of the older."""
    ages: bool
    """Answers are kept for a short time only."""
    waits: bool
    """Twins wait for the running attempt."""


@dataclass(frozen=True, slots=True)
class Mood(Ask[None]):
    """Give the handler a chance to fail by itself, in one of these ways; raises what it fails with."""

    suits: frozenset[Trouble]


@dataclass(frozen=True, slots=True)
class Deal(Ask[Returned[Any] | Raised]):
    """Call the bank without saying so to anybody."""

    order: Order


@dataclass(frozen=True, slots=True)
class WriteRow(Ask[None]):
    """Write a row in the open transaction of the turn."""

    order: Order


@dataclass(frozen=True, slots=True, kw_only=True)
class Errand:
    """One turn of a handler."""

    request: Request
    record: Record
    ledger: Ledger
    command: str
    code: int
    run: int
    """A number that no other turn has."""
    persists: bool
    """Whether it asks again after a call without an answer."""
    messages: tuple[Message, ...] = ()
    """What is staged by a handler that commits rows of its own."""

    @property
    def life(self) -> str:
        return str(self.record.record_id)

    @property
    def receipt(self) -> str:
        """Return an answer that no other turn gives."""
        return f"{self.record.tenant}|{self.command}|{self.life}|{self.run}"


def charge(memory: str, life: str, step: str, note: str | None = None, *, idempotency_key: str, fence: int = 0) -> str:
    """Describe a call; whoever performs asks carries it to the bank, now, late or never."""
    del note
    return cast("str", Order(memory=Memory(memory), life=life, step=step, key=idempotency_key, fence=fence))


def refund(result: str, *, idempotency_key: str) -> str:
    """Describe the undoing of a charge."""
    life, step, _ = result.split()
    return cast("str", Order(memory=Memory.STICKY, life=life, step=_UNDO + step, key=idempotency_key))


def erase(_connection: object, result: str) -> str:
    """Describe the undoing of a row, by another one."""
    life, step, _ = result.split()
    return cast("str", Order(memory=Memory.NOTHING, life=life, step=_UNDO + step))


def find(key: str) -> str | None:
    """Describe a question about a key."""
    return cast("str", Look(key, burns=False))


def void(key: str) -> bool:
    """Describe the burning of a key."""
    return cast("bool", Look(key, burns=True))


def insert(_connection: object, life: str, step: str) -> str:
    """Describe a row of the application's."""
    return cast("str", Order(memory=Memory.NOTHING, life=life, step=step))


_ANY_TIME = frozenset({Trouble.RAISE, Trouble.DOUBT})
_BEFORE_ANYTHING = _ANY_TIME | {Trouble.GIVE_UP, Trouble.WITHDRAW, Trouble.REJECT}
_LATER = _ANY_TIME | {Trouble.GIVE_UP}

_EFFECTS: Mapping[Trade, tuple[tuple[str, Memory, Recall], ...]] = {
    Trade.STICKY: (("charge", Memory.STICKY, Sticky(_LONG)),),
    Trade.SUCCESS_ONLY: (("charge", Memory.SUCCESS_ONLY, SuccessOnly(_LONG)),),
    Trade.FENCED: (("charge", Memory.FENCED, Fenced()),),
    Trade.QUERYABLE: (("charge", Memory.QUERYABLE, Queryable()),),
    Trade.FOUND_ONLY: (("charge", Memory.QUERYABLE, Queryable()),),
    Trade.UNRECOVERABLE: (("charge", Memory.NOTHING, Unrecoverable()),),
    Trade.UNDONE: (("reserve", Memory.STICKY, Sticky(_LONG)), ("charge", Memory.STICKY, Sticky(_LONG))),
    Trade.MIXED: (("reserve", Memory.SUCCESS_ONLY, SuccessOnly(_LONG)), ("charge", Memory.QUERYABLE, Queryable())),
    Trade.STEP: (("charge", Memory.STICKY, Sticky(_LONG)),),
}
_REFUND = Undo(call=refund, recall=Sticky(_LONG))
_UNDOS: Mapping[Trade, Mapping[str, Undo]] = {
    Trade.UNDONE: {"reserve": _REFUND, "charge": _REFUND},
    Trade.MIXED: {"reserve": _REFUND},
    Trade.STEP: {"row": Undo(call=erase, recall=None)},
}
_QUERIES = {
    Trade.QUERYABLE: {"charge": Query(find=find, void=void)},
    Trade.MIXED: {"charge": Query(find=find, void=void)},
    Trade.FOUND_ONLY: {"charge": Query(find=find)},
}


def steps_of(trade: Trade) -> tuple[str, ...]:
    """Return all that an operation of this kind does."""
    if trade is Trade.STEP:
        return ("row", "charge")
    return tuple(name for name, _, _ in _EFFECTS.get(trade, (("charge", None, None),)))


def undo_of(step: str) -> str:
    """Return how the books call the undoing of a step."""
    return _UNDO + step


def effects_of(trade: Trade) -> EffectsMode:
    """Return what an operation of this kind declares about its effects."""
    return {Trade.OPAQUE: Opaque, Trade.GUARDED: Local, Trade.SINGLE: Local}.get(trade, Declared)


def fingerprints_of(terms: Terms) -> FingerprintVersions:
    """Return the rules by which one version of the code compares commands."""
    older, newer = FingerprintRule(version=1), FingerprintRule(version=NEWEST_CODE)
    return FingerprintVersions(older) if terms.code == 1 else FingerprintVersions(newer, (older,))


def options_of(terms: Terms) -> PolicyOptions:
    """Return what every operation and every endpoint chooses alike."""
    options: PolicyOptions = {
        "lease": timedelta(seconds=LEASE_SECONDS),
        "renewal": timedelta(seconds=LEASE_SECONDS / 3),
        "effect_timeout": timedelta(seconds=LEASE_SECONDS / 2),
        "confirm": timedelta(seconds=LEASE_SECONDS / 2),
        "doubt_deadline": timedelta(seconds=DOUBT_SECONDS),
        "recoveries_limit": 4,
        "backoff_longest": timedelta(seconds=4),
    }
    if terms.ages:
        options["retention"] = options["metadata_retention"] = timedelta(seconds=AGEING_SECONDS)
    if terms.waits:
        options["in_flight"] = Wait()
    return options


@lru_cache(maxsize=512)
def declaration(trade: Trade, terms: Terms) -> Declaration[str, str]:
    """Declare the operation as one version of the code does."""

    def handle(command: str) -> str:
        raise AssertionError(f"never called with {len(command)} characters: the simulation brings its own handlers")

    return declare(
        trade.value,
        handle,
        is_async=False,
        effects=effects_of(trade),
        fingerprint=fingerprints_of(terms),
        undo=_UNDOS.get(trade, {}),
        queries=_QUERIES.get(trade, {}),
        options={**options_of(terms), "single_transaction": trade is Trade.SINGLE},
    )


@lru_cache(maxsize=4096)
def request_of(trade: Trade, terms: Terms, tenant: str, key: str, command: str) -> Request:
    """Make a request; it is a value, so that every run may use the same one."""
    return declaration(trade, terms).call(SECRETS, key=key, tenant=tenant, command=command)


def handle(trade: Trade, errand: Errand) -> Flow[object]:
    """Return what the handler does in this turn."""
    return _HANDLERS.get(trade, _by_effects)(trade, errand)


def _by_effects(trade: Trade, errand: Errand) -> Flow[object]:
    yield from Mood(_BEFORE_ANYTHING)
    if trade is Trade.STEP:
        yield from _local_step(errand)
        yield from Mood(_LATER)
    for name, memory, recall in _EFFECTS[trade]:
        # The newer code passes one more argument along, which a record that was begun by the older must not hide.
        extra = ("noted",) if errand.code == NEWEST_CODE and errand.command.endswith("changed") else ()
        arguments = ((memory.value, errand.life, name, *extra), dict[str, Any]())
        planned = plan_effect(errand.request, errand.record, name, charge, arguments, recall=recall, returns=None)
        for is_last in _tries(errand):
            try:
                yield from run_effect(errand.record, errand.request.policy, errand.ledger, planned.plan)
                break
            except OSError:
                if is_last:
                    raise
        yield from Mood(_LATER)
    return errand.receipt


def _tries(errand: Errand) -> Iterator[bool]:
    if errand.persists:
        yield False
    yield True


def _local_step(errand: Errand) -> Flow[None]:
    planned = plan_step(errand.request, errand.record, "row", insert, ((errand.life, "row"), {}), returns=None)
    yield from run_step(errand.record, errand.request.policy, errand.ledger, planned.plan)


def _opaquely(_trade: Trade, errand: Errand) -> Flow[object]:
    yield from Mood(_BEFORE_ANYTHING)
    end = yield from Deal(Order(memory=Memory.NOTHING, life=errand.life, step="charge"))
    if isinstance(end, Raised):
        raise end.error
    yield from Mood(_ANY_TIME)
    return errand.receipt


def _guarded(_trade: Trade, errand: Errand) -> Flow[object]:
    record, policy = errand.record, errand.request.policy
    yield from Mood(_BEFORE_ANYTHING)
    yield from begin_guarded(record, policy)
    try:
        yield from WriteRow(Order(memory=Memory.NOTHING, life=errand.life, step="charge"))
        yield from Mood(_LATER - {Trouble.DOUBT} | {Trouble.REJECT})
    except Exception:
        yield from leave_guarded(record, policy)
        raise
    outcome = rendered(errand.request, errand.receipt)
    yield from commit_guarded(record, policy, outcome, errand.messages)
    return Settled(outcome)


def _inside(_trade: Trade, errand: Errand) -> Flow[object]:
    yield from Mood(_BEFORE_ANYTHING)
    yield from WriteRow(Order(memory=Memory.NOTHING, life=errand.life, step="charge"))
    yield from Mood(_LATER - {Trouble.DOUBT} | {Trouble.REJECT})
    if errand.messages:
        return Settled(rendered(errand.request, errand.receipt), errand.messages)
    return errand.receipt


_HANDLERS: Mapping[Trade, Callable[[Trade, Errand], Flow[object]]] = {
    Trade.OPAQUE: _opaquely,
    Trade.GUARDED: _guarded,
    Trade.SINGLE: _inside,
}
