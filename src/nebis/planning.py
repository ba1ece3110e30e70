"""Turn a call that a handler asks for into the plan of an effect: its key, its digest, its stored form."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import lru_cache
from hashlib import sha256
from typing import Any

from nebis.answering import decode_rejection
from nebis.core.canonical import canonical
from nebis.core.codec import Codec, annotations_of, codec_for
from nebis.core.envelope import seal, unseal
from nebis.core.plain import plain
from nebis.core.record import UNDO_PREFIX, Effect, EffectClass, Record
from nebis.declaration import encode_rejection
from nebis.effects import Fenced, Recall, Unrecoverable, class_of, window_us
from nebis.errors import MisuseError, Rejected, ResultUnstorable
from nebis.flows.effect import EffectPlan
from nebis.flows.request import Request

LONGEST_EFFECT_NAME = 100
KEY_PARAMETER = "idempotency_key"
FENCE_PARAMETER = "fence"


class PlannedEffect:
    """An effect that is ready to run, with the codec that its result goes through."""

    __slots__ = ("_codec", "_limit_bytes", "plan")

    def __init__(self, plan: EffectPlan, codec: Codec[Any], limit_bytes: int) -> None:
        self.plan = plan
        self._codec = codec
        self._limit_bytes = limit_bytes

    def decode(self, stored: bytes) -> Any:
        """Return the result as the handler gets it, on the first attempt as on every other."""
        return self._codec.decode(unseal(stored, limit_bytes=self._limit_bytes))


def plan_effect(
    request: Request,
    record: Record,
    name: str,
    call: Callable[..., Any],
    arguments: tuple[tuple[Any, ...], Mapping[str, Any]],
    *,
    recall: Recall,
    returns: object | None,
) -> PlannedEffect:
    """Plan one effect, or raise `MisuseError` for what no attempt could ever run."""
    require_name(name)
    codec = _codec(call, returns)
    limit_bytes = request.policy.result_limit_bytes
    positional, named = arguments
    passes = _passed(call, recall)

    def calls(effect: Effect) -> Any:
        marks = {KEY_PARAMETER: effect.derived_key, FENCE_PARAMETER: record.fence}
        return call(*positional, **named, **{mark: marks[mark] for mark in passes})

    plan = EffectPlan(
        name=name,
        effect_class=class_of(recall),
        derived_key=request.derive_key(record.record_id, name),
        digest=digest_of(positional, named),
        recall_us=window_us(recall),
        call=calls,
        encode=lambda value: _sealed(codec, value, limit_bytes),
        encode_rejection=encode_rejection,
        decode_rejection=lambda stored: _rejection(stored, limit_bytes),
    )
    return PlannedEffect(plan, codec, limit_bytes)


def plan_step(
    request: Request,
    name: str,
    call: Callable[..., Any],
    connection: Callable[[], Any],
    arguments: tuple[tuple[Any, ...], Mapping[str, Any]],
    *,
    returns: object | None,
) -> PlannedEffect:
    """Plan one local step: a function of the transaction's connection and plain arguments."""
    require_name(name)
    codec = _codec(call, returns)
    limit_bytes = request.policy.result_limit_bytes
    positional, named = arguments
    plan = EffectPlan(
        name=name,
        effect_class=EffectClass.TRANSACTIONAL,
        derived_key="",
        digest=digest_of(positional, named),
        recall_us=None,
        call=lambda _: call(connection(), *positional, **named),
        encode=lambda value: _sealed(codec, value, limit_bytes),
        encode_rejection=encode_rejection,
        decode_rejection=lambda stored: _rejection(stored, limit_bytes),
    )
    return PlannedEffect(plan, codec, limit_bytes)


def _sealed(codec: Codec[Any], value: Any, limit_bytes: int) -> bytes:
    body = codec.encode(value)
    if len(body) > limit_bytes:
        raise ResultUnstorable(f"it has {len(body)} bytes, {limit_bytes} are allowed")
    return seal(body)


def digest_of(positional: tuple[Any, ...], named: Mapping[str, Any]) -> bytes:
    """Digest the arguments of a call: a resume with others is a change of code, not the same effect."""
    return sha256(canonical(plain([list(positional), dict(named)]))).digest()


def require_name(name: str) -> None:
    """Refuse a name that could not be told from an undo, or would not fit."""
    if not 1 <= len(name) <= LONGEST_EFFECT_NAME or not name.isprintable() or name.startswith(UNDO_PREFIX):
        raise MisuseError(
            f"The name of an effect has 1 to {LONGEST_EFFECT_NAME} visible characters "
            f"and does not begin with {UNDO_PREFIX!r}."
        )


@lru_cache(maxsize=1024)
def _codec(call: Callable[..., Any], returns: object | None) -> Codec[Any]:
    annotation = returns if returns is not None else annotations_of(call).get("return", inspect.Parameter.empty)
    return codec_for(annotation, where=f"effect {getattr(call, '__qualname__', type(call).__name__)}")


@lru_cache(maxsize=1024)
def _passed(call: Callable[..., Any], recall: Recall) -> tuple[str, ...]:
    """Return which marks the call takes, and refuse one that cannot pass on what its class rests on."""
    parameters = inspect.signature(call).parameters.values()
    takes_any = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters)
    named = {parameter.name for parameter in parameters}
    passes = tuple(mark for mark in (KEY_PARAMETER, FENCE_PARAMETER) if mark in named or takes_any)
    needed = FENCE_PARAMETER if isinstance(recall, Fenced) else KEY_PARAMETER
    if needed not in passes and not isinstance(recall, Unrecoverable):
        raise MisuseError(
            f"{getattr(call, '__qualname__', type(call).__name__)} must take {needed}= and hand it to the downstream; "
            f"{type(recall).__name__} rests on it."
        )
    return passes


def _rejection(stored: bytes, limit_bytes: int) -> Rejected:
    told = decode_rejection(unseal(stored, limit_bytes=limit_bytes))
    return Rejected(told["reason"], detail=told["detail"])
