"""What an effect is, apart from whether it happens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from nebis.core.record import EffectClass
from nebis.deadline import Deadline
from nebis.errors import Rejected


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectPlan:
    """An effect that is ready to run, as often as it takes to learn its result."""

    name: str
    effect_class: EffectClass
    derived_key: str = field(repr=False)
    digest: bytes
    recall_us: int | None
    call: Callable[[Any], Any]
    """Calls the downstream with the stored effect, whose key counts; a local step gets a connection instead. In the
    asyncio world it may return an awaitable."""
    encode: Callable[[Any], bytes]
    encode_rejection: Callable[[Exception], bytes]
    decode_rejection: Callable[[bytes], Rejected]
    timeout_seconds: float | None = None
    """None for what the policy says."""
    deadline: Deadline | None = None
    """After it the effect does not begin."""
