"""Turn a call that a handler asks for, or an undo that an operation declares, into the plan of an effect."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import lru_cache, partial
from hashlib import sha256
from typing import Any, get_args

from nebis.core.canonical import canonical
from nebis.core.codec import Codec, annotations_of, codec_for
from nebis.core.envelope import seal, unseal
from nebis.core.plain import plain
from nebis.core.record import UNDO_PREFIX, Effect, EffectClass, Record, name_of_voided, purpose_of
from nebis.core.rejection import decode_rejection, encode_rejection
from nebis.deadline import Deadline
from nebis.effects import Fenced, Query, Recall, Undo, Unrecoverable, class_of, window_us
from nebis.errors import ConfigError, MisuseError, ResultUnstorable
from nebis.flows.plan import EffectPlan
from nebis.flows.request import Request

LONGEST_EFFECT_NAME = 100
_SHORTEST_SECONDS = 0.001
"""Many clients take a timeout of zero for none at all."""
KEY_PARAMETER = "idempotency_key"
ORIGINAL_KEY_PARAMETER = "original_key"
FENCE_PARAMETER = "fence"
TIMEOUT_PARAMETER = "timeout_seconds"
DEADLINE_PARAMETER = "deadline"


class PlannedEffect:
    """An effect that is ready to run, with the codec that its result goes through."""

    __slots__ = ("_codec", "_limit_bytes", "plan")

    def __init__(self, plan: EffectPlan, codec: Codec[Any], limit_bytes: int) -> None:
        self.plan = plan
        self._codec = codec
        self._limit_bytes = limit_bytes

    def decode(self, stored: bytes) -> Any:
        """Return the result as the handler gets it, on the first attempt as on every other."""
        return self._codec.decode_result(unseal(stored, limit_bytes=self._limit_bytes))


def plan_effect(
    request: Request,
    record: Record,
    name: str,
    call: Callable[..., Any],
    arguments: tuple[tuple[Any, ...], Mapping[str, Any]],
    *,
    recall: Recall,
    returns: object | None,
    timeout: timedelta | None = None,
) -> PlannedEffect:
    """Plan one effect, or raise `MisuseError` for what no attempt could ever run."""
    require_name(name)
    codec = _codec(call, returns)
    positional, named = arguments
    passes = passed(call, recall)
    span = request.policy.effect_timeout if timeout is None else timeout
    if span <= timedelta(0):
        raise MisuseError(f"The timeout of the effect {name!r} must be above zero, not {span}.")

    def calls(effect: Effect) -> Any:
        marks = {
            KEY_PARAMETER: effect.derived_key,
            FENCE_PARAMETER: record.fence,
            TIMEOUT_PARAMETER: _bounded_seconds(span, request.deadline),
            DEADLINE_PARAMETER: request.deadline,
        }
        return call(*positional, **{mark: marks[mark] for mark in passes if mark in marks}, **named)

    plan = _plan(
        request,
        record,
        name,
        codec,
        effect_class=class_of(recall),
        digest=digest_of(positional, named),
        recall_us=window_us(recall),
        call=calls,
        timeout_seconds=span.total_seconds(),
        deadline=request.deadline,
    )
    return PlannedEffect(plan, codec, request.policy.result_limit_bytes)


def _bounded_seconds(span: timedelta, deadline: Deadline | None) -> float:
    """Return how long the downstream may take, as a client that takes a timeout should have it: never nothing."""
    if deadline is None:
        return span.total_seconds()
    return max(_SHORTEST_SECONDS, min(span, deadline.left).total_seconds())


def plan_step(
    request: Request,
    record: Record,
    name: str,
    call: Callable[..., Any],
    arguments: tuple[tuple[Any, ...], Mapping[str, Any]],
    *,
    returns: object | None,
) -> PlannedEffect:
    """Plan one local step: a function of the transaction's connection and plain arguments."""
    require_name(name)
    codec = _codec(call, returns)
    positional, named = arguments
    plan = _plan(
        request,
        record,
        name,
        codec,
        effect_class=EffectClass.TRANSACTIONAL,
        digest=digest_of(positional, named),
        recall_us=None,
        call=lambda connection: call(connection, *positional, **named),
        deadline=request.deadline,
    )
    return PlannedEffect(plan, codec, request.policy.result_limit_bytes)


def plan_undo(request: Request, record: Record, effect: Effect, undo: Undo) -> EffectPlan:
    """Plan how to undo an effect that happened; raise `RecordCorrupt` if its result no longer fits the undo."""
    assert effect.result is not None
    call, recall = undo.call, undo.recall
    result = undone_codec(undo).decode_result(unseal(effect.result, limit_bytes=request.policy.result_limit_bytes))
    passes = passed(call, recall)

    def marks(own_key: str) -> dict[str, Any]:
        known = {
            KEY_PARAMETER: own_key,
            ORIGINAL_KEY_PARAMETER: effect.derived_key,
            FENCE_PARAMETER: record.fence,
            TIMEOUT_PARAMETER: request.policy.effect_timeout.total_seconds(),
            # What was begun is undone to its end, whoever still waits.
            DEADLINE_PARAMETER: None,
        }
        return {mark: known[mark] for mark in passes}

    return _plan(
        request,
        record,
        UNDO_PREFIX + effect.purpose,
        _codec(call, None),
        effect_class=EffectClass.TRANSACTIONAL if recall is None else class_of(recall),
        digest=sha256(effect.result).digest(),
        recall_us=None if recall is None else window_us(recall),
        call=(
            (lambda connection: call(connection, result, **marks("")))
            if recall is None
            else (lambda undoing: call(result, **marks(undoing.derived_key)))
        ),
    )


def _plan(request: Request, record: Record, name: str, codec: Codec[Any], **parts: Any) -> EffectPlan:
    limit_bytes = request.policy.result_limit_bytes
    is_local = parts["effect_class"] is EffectClass.TRANSACTIONAL
    return EffectPlan(
        name=name,
        derived_key="" if is_local else request.derive_key(record.record_id, _unburnt(record, name)),
        encode=lambda value: sealed(codec, value, limit_bytes),
        encode_rejection=encode_rejection,
        decode_rejection=lambda stored: decode_rejection(unseal(stored, limit_bytes=limit_bytes)),
        **parts,
    )


def _unburnt(record: Record, name: str) -> str:
    """Return what the key of an effect is derived from: its name, and how many of its keys were burnt downstream."""
    voided = record.voided(name)
    return name_of_voided(name, voided) if voided else name


def sealed(codec: Codec[Any], value: Any, limit_bytes: int) -> bytes:
    """Render the result of an effect as it is stored, or raise `ResultUnstorable`."""
    body = codec.encode(value)
    if len(body) > limit_bytes:
        raise ResultUnstorable(f"it has {len(body)} bytes, {limit_bytes} are allowed")
    return seal(body)


def digest_of(positional: tuple[Any, ...], named: Mapping[str, Any]) -> bytes:
    """Digest the arguments of a call: a resume with others is a change of code, not the same effect."""
    return sha256(canonical(plain([list(positional), dict(named)]))).digest()


def require_name(name: str) -> None:
    """Refuse a name that could not be told from an undo or from another call, or would not fit."""
    is_ours = name.startswith(UNDO_PREFIX) or purpose_of(name) != name
    if not 1 <= len(name) <= LONGEST_EFFECT_NAME or not name.isprintable() or is_ours:
        raise MisuseError(
            f"The name of an effect has 1 to {LONGEST_EFFECT_NAME} visible characters, "
            f"does not begin with {UNDO_PREFIX!r} and does not end like '(call 2)' or '(voided 1)'."
        )


def undone_codec(undo: Undo) -> Codec[Any]:
    """Return how an undo reads the result of its effect: as its own parameter is annotated."""
    position = 1 if undo.recall is None else 0
    parameters = list(inspect.signature(undo.call).parameters)
    if len(parameters) <= position:
        raise ConfigError([f"undo {_name(undo.call)} must take the result of what it undoes; add a parameter"])
    return _codec_of(undo.call, parameters[position])


def found_codec(query: Query) -> Codec[Any]:
    """Return how the result that a query finds is stored: as its function is annotated."""
    return _codec_of(query.find, "return")


def faults_of_remedies(undos: Mapping[str, Undo], queries: Mapping[str, Query], *, is_async: bool) -> list[str]:
    """Return what is wrong with the undos and queries of an operation."""
    faults: list[str] = []
    for name, undo in undos.items():
        call, recall = undo.call, undo.recall
        for check in (partial(undone_codec, undo), partial(_codec, call, None), partial(passed, call, recall)):
            faults.extend(_faults_of(f"undo of {name!r}", check))
    for name, query in queries.items():
        faults.extend(_faults_of(f"query of {name!r}", partial(found_codec, query)))
    functions = [undo.call for undo in undos.values()]
    functions += [call for query in queries.values() for call in (query.find, query.void) if call is not None]
    if not is_async:
        faults.extend(
            f"{_name(function)} is a coroutine function; declare the operation on AsyncNebis"
            for function in functions
            if inspect.iscoroutinefunction(function)
        )
    return faults


def _faults_of(where: str, check: Callable[[], object]) -> list[str]:
    try:
        check()
    except ConfigError as error:
        return [f"{where}: {fault}" for fault in error.faults]
    except MisuseError as error:
        return [f"{where}: {error}"]
    return []


@lru_cache(maxsize=1024)
def _codec(call: Callable[..., Any], returns: object | None) -> Codec[Any]:
    if returns is None:
        return _codec_of(call, "return")
    return codec_for(returns, where=f"effect {_name(call)}")


@lru_cache(maxsize=1024)
def _codec_of(call: Callable[..., Any], place: str) -> Codec[Any]:
    annotation = annotations_of(call).get(place, inspect.Parameter.empty)
    return codec_for(annotation, where=f"effect {_name(call)}" if place == "return" else f"{_name(call)} {place}")


@lru_cache(maxsize=1024)
def passed(call: Callable[..., Any], recall: Recall | None) -> tuple[str, ...]:
    """Return which marks the call takes, and refuse one that cannot pass on what its class rests on."""
    parameters = inspect.signature(call).parameters.values()
    takes_any = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters)
    named = {parameter.name for parameter in parameters}
    # Of those that it does not name, only the key: a client that takes anything knows what to do with that one.
    passes = tuple(mark for mark in _MARKS if mark in named or (takes_any and mark in _EXPECTED))
    if DEADLINE_PARAMETER in passes and not _is_deadline(annotations_of(call).get(DEADLINE_PARAMETER)):
        # A deadline of the business, such as the day on which an invoice is due.
        passes = tuple(mark for mark in passes if mark != DEADLINE_PARAMETER)
    needed = FENCE_PARAMETER if isinstance(recall, Fenced) else KEY_PARAMETER
    if needed not in passes and recall is not None and not isinstance(recall, Unrecoverable):
        raise MisuseError(
            f"{_name(call)} must take {needed}= and hand it to the downstream; {type(recall).__name__} rests on it."
        )
    return passes


def _is_deadline(annotation: object) -> bool:
    return Deadline in (annotation, *get_args(annotation))


_MARKS = (KEY_PARAMETER, ORIGINAL_KEY_PARAMETER, FENCE_PARAMETER, TIMEOUT_PARAMETER, DEADLINE_PARAMETER)
_EXPECTED = (KEY_PARAMETER, FENCE_PARAMETER)


def _name(call: Callable[..., Any]) -> str:
    return getattr(call, "__qualname__", type(call).__name__)
