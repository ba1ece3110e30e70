"""What an honest engine does next, read from what it knows of its effects.

A view is one character per step: `.` not begun, `o` open, `H` happened, `R` rejected, `N` a call that never left.
After `turn_back` a `<` follows, and then one character per undo, newest step first.
"""

from __future__ import annotations

from typing import NamedTuple

from nebis.core.record import UNDO_PREFIX, EffectClass, EffectsMode, EffectVerdict, Record
from nebis.testing.modelcheck.configurations import Configuration


class Deed(NamedTuple):
    """The next thing to ask of the store, and about which step."""

    verb: str
    about: str = ""


VERDICT_LETTERS = {
    EffectVerdict.HAPPENED: "H",
    EffectVerdict.REJECTED: "R",
    EffectVerdict.DID_NOT_HAPPEN: "N",
}


class Plan:
    """The steps of one operation and their undos."""

    def __init__(self, configuration: Configuration) -> None:
        self.mode = configuration.mode
        self.steps = tuple(str(number) for number in range(len(configuration.classes)))
        self.undos: tuple[str, ...] = ()
        self.classes = dict(zip(self.steps, configuration.classes, strict=True))
        if configuration.undo is not None:
            # The last step is the one whose rejection turns the operation back, so it needs no undo.
            self.undos = tuple(f"u{step}" for step in reversed(self.steps[:-1]))
            self.classes |= dict.fromkeys(self.undos, configuration.undo)

    def effect_name(self, step: str) -> str:
        """Return the name of a step's effect in the record."""
        return f"{UNDO_PREFIX}effect{step[1:]}" if step.startswith("u") else f"effect{step}"

    def effect_class(self, step: str) -> EffectClass:
        """Return how a step can be recovered."""
        return self.classes[step]

    def view_of(self, record: Record) -> str:
        """Return what a new owner knows from the record that it was granted."""
        if self.mode is EffectsMode.LOCAL:
            return ""
        if self.mode is EffectsMode.OPAQUE:
            return "o"
        forward = "".join(self._letter(record, step) for step in self.steps)
        if not record.is_undoing:
            return forward
        return forward + "<" + "".join(self._letter(record, undo) for undo in self.undos)

    def _letter(self, record: Record, step: str) -> str:
        effect = record.effect(self.effect_name(step))
        if effect is None:
            return "."
        return "o" if effect.verdict is None else VERDICT_LETTERS[effect.verdict]

    def open_step(self, view: str) -> str:
        """Return the step of which nobody knows yet."""
        position = view.index("o")
        return self.steps[position] if position < len(self.steps) else self.undos[position - len(self.steps) - 1]

    def opened(self, view: str, step: str) -> str:
        """Return the view after the intent of a step was kept."""
        return self._written(view, step, "o")

    def ended(self, view: str, step: str, letter: str) -> str:
        """Return the view after a step's end was kept."""
        return self._written(view, step, letter)

    def _written(self, view: str, step: str, letter: str) -> str:
        undo = step.startswith("u")
        position = len(self.steps) + 1 + self.undos.index(step) if undo else self.steps.index(step)
        return view[:position] + letter + view[position + 1 :]

    def turned_back(self, view: str) -> str:
        """Return the view after `turn_back` was kept."""
        return view + "<" + "." * len(self.undos)

    def is_clean(self, view: str) -> bool:
        """Tell whether nothing can have happened, as far as the attempt knows."""
        return not view.strip(".N")

    def next_deed(self, view: str) -> Deed:
        """Return what to do next: one effect after the other, then the outcome; undo what a rejection left behind."""
        if self.mode is not EffectsMode.DECLARED:
            return Deed("complete", "R" if view == "R" else "S")
        if "N" in view:
            # Only a successor may intend the same effect again.
            return Deed("stop")
        forward, turned, backward = view.partition("<")
        if turned:
            return self._next_undo(forward, backward)
        for step, letter in zip(self.steps, forward, strict=True):
            if letter in ".o":
                is_local = self.effect_class(step) is EffectClass.TRANSACTIONAL
                return Deed("local" if is_local else "intend", step)
            if letter == "R":
                return Deed("turn_back") if self._undoable(forward) else Deed("complete", "R")
        return Deed("complete", "S")

    def _undoable(self, forward: str) -> list[str]:
        return [undo for undo in self.undos if forward[int(undo[1:])] == "H"]

    def _next_undo(self, forward: str, backward: str) -> Deed:
        wanted = self._undoable(forward)
        for undo, letter in zip(self.undos, backward, strict=True):
            if undo in wanted and letter in ".o":
                is_local = self.effect_class(undo) is EffectClass.TRANSACTIONAL
                return Deed("local" if is_local else "intend", undo)
            if undo in wanted and letter == "R":
                return Deed("doubt")
        return Deed("complete", "R")
