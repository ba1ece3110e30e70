"""Bugs to plant in a child, so that the matrix can be seen to see them."""

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from nebis.core.answers import Kept
from nebis.core.record import EffectClass
from nebis.core.verbs import Complete
from nebis.ports.asks import Apply, CallEffect
from nebis.runtime.blocking import BlockingTurn


def _key_per_attempt() -> None:
    """Call the downstream under a key that a successor does not know (F064)."""
    perform = BlockingTurn.performs[CallEffect]

    def call(turn: Any, ask: CallEffect) -> Any:
        renamed = replace(ask.effect, derived_key=f"{ask.effect.derived_key}-{os.getpid()}")
        return perform(turn, replace(ask, effect=renamed))

    BlockingTurn.performs[CallEffect] = call


def _blind_takeover() -> None:
    """Run again whatever was half done, as most locks with a timeout do (F004)."""
    setattr(EffectClass, "may_be_called_again", True)  # noqa: B010 - a property cannot be assigned to under mypy.


def _answer_unstored() -> None:
    """Answer before the outcome is durable (F006)."""
    perform = BlockingTurn.performs[Apply]

    def apply(turn: Any, ask: Apply) -> Any:
        return Kept() if isinstance(ask.verb, Complete) else perform(turn, ask)

    BlockingTurn.performs[Apply] = apply


SABOTAGES: dict[str, Callable[[], None]] = {
    "key per attempt": _key_per_attempt,
    "blind takeover": _blind_takeover,
    "answer unstored": _answer_unstored,
}
