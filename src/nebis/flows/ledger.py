"""What one attempt knows of its effects: what earlier attempts left, and what it did itself."""

from __future__ import annotations

from dataclasses import replace

from nebis.core.record import UNDO_PREFIX, Effect, EffectVerdict, Record, name_of_call
from nebis.errors import MisuseError
from nebis.ports.asks import Raised, Returned

CALLS_LIMIT = 20
"""Calls of one effect in one attempt. Each leaves a row behind, and who fails that often should come back later."""


class Ledger:
    """The effects of one attempt, in memory, by the names that the handler asks for them; the store holds the truth."""

    __slots__ = ("_asked", "_called", "_known", "_never_left", "_open", "_started")

    def __init__(self, record: Record) -> None:
        self._known = {
            effect.purpose: effect for effect in record.effects if effect.verdict is not EffectVerdict.DID_NOT_HAPPEN
        }
        self._never_left: dict[str, int] = {}
        self._asked: set[str] = set()
        self._started: set[str] = set()
        self._called: set[str] = set()
        self._open: str | None = None

    def start(self, name: str) -> Effect | None:
        """Begin an effect and return what is known of it; refuse a second one beside it, or a name used twice."""
        if self._open is not None:
            raise MisuseError(f"The effect {self._open!r} is still open; await it before you start {name!r}.")
        if name in self._asked:
            raise MisuseError(f"The effect {name!r} was asked for twice in one attempt; give each call its own name.")
        self._open = name
        self._started.add(name)
        return self._known.get(name)

    def calls(self, effect: Effect) -> None:
        """Remember that this very attempt calls the effect."""
        self._called.add(effect.purpose)
        self.keep(effect)

    def has_called(self, name: str) -> bool:
        """Tell whether this very attempt called the effect before, so that its own call may still land."""
        return name in self._called

    def keep(self, effect: Effect) -> None:
        """Remember what the store confirmed."""
        self._known[effect.purpose] = effect

    def never_left(self, name: str) -> None:
        """Forget a call that did not happen: an attempt that goes another way misses nothing, and may ask again."""
        self._known.pop(name)
        self._called.discard(name)
        self._never_left[name] = self._never_left.get(name, 0) + 1

    def stored_name(self, name: str) -> str:
        """Return the name under which the next call of an effect is stored, or refuse one call too many."""
        known = self._known.get(name)
        if known is not None:
            return known.name
        failed = self._never_left.get(name, 0)
        if failed >= CALLS_LIMIT:
            raise MisuseError(
                f"The effect {name!r} failed {CALLS_LIMIT} times in one attempt; let the exception end the attempt, "
                "the next one goes on."
            )
        return name_of_call(name, failed + 1)

    def end(self, *, is_known: bool) -> None:
        """End the effect; one whose outcome is not known may be asked for again."""
        if is_known and self._open is not None:
            self._asked.add(self._open)
        self._open = None

    def never_asked(self) -> str | None:
        """Return a recorded effect that this attempt did not ask for: its code is not that of the first attempt."""
        recorded = (name for name in self._known if not name.startswith(UNDO_PREFIX))
        return next((name for name in recorded if name not in self._started), None)

    def misses(self, name: str) -> bool:
        """Tell whether a recorded effect should have been asked for before this one, which is new.

        Code that runs the same way asks in the same order; what comes out of turn may be the old effect, renamed.
        """
        return name not in self._known and not name.startswith(UNDO_PREFIX) and self.never_asked() is not None

    def of(self, end: Returned[object] | Raised) -> Returned[object] | Raised:
        """Say, with how a handler ended, what its attempt knows of the effects."""
        if not self._known:
            return end
        return replace(end, never_asked=self.never_asked(), effects=tuple(self._known.values()))

    def has_outstanding(self, name: str) -> bool:
        """Tell whether an earlier call of this effect may still land."""
        effect = self._known.get(name)
        return effect is not None and effect.is_open
