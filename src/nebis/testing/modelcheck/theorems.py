"""What must hold in every situation: G1, G2, G4 and G5. G3 is a property of the whole search."""

from __future__ import annotations

from enum import StrEnum

from nebis.core.record import State
from nebis.testing.modelcheck.hearing import REFUSED_TO_AN_OWNER
from nebis.testing.modelcheck.plan import Plan
from nebis.testing.modelcheck.table import Table
from nebis.testing.modelcheck.world import Ack, Situation, times_happened


class Violation(StrEnum):
    """How a promise can be broken."""

    DOUBLE_EFFECT = "G1: an effect happened twice"
    DOUBLE_UNDO = "G1: an effect was undone twice"
    ACK_OK_NO_EFFECT = "G1: success was acknowledged, but an effect did not happen or was undone"
    ACK_ERROR_BUT_EFFECT = "G1: a rejection was acknowledged, but an effect happened"
    ACKS_DIFFER = "G2: two different answers were acknowledged"
    ACK_NOT_DURABLE = "G2: an answer was acknowledged that the store does not hold"
    ZOMBIE_ABA = "G2: a life ended with the bytes of another life"
    POISONED = "G3: nothing leads out of this situation by itself"
    EFFECT_VANISHED = "G4: an effect happened, and no record shows it"
    OTHER_TENANT = "G5: one tenant was answered with the bytes of another"
    OTHER_COMMAND = "I5: a client was answered with the outcome of another command"
    OWNER_REFUSED = "an owner that kept all rules was refused"


FAULTS = {
    "tenant": Violation.OTHER_TENANT,
    "command": Violation.OTHER_COMMAND,
    REFUSED_TO_AN_OWNER: Violation.OWNER_REFUSED,
}


class Theorems:
    """The invariants of one world."""

    def __init__(self, plan: Plan, table: Table) -> None:
        self._plan = plan
        self._table = table

    def violation(self, situation: Situation) -> Violation | None:
        """Return the first promise that is broken here."""
        return (
            self._of_effects(situation)
            or next((broken for ack in situation.acks if (broken := self._of_ack(situation, ack))), None)
            or self._of_records(situation)
        )

    def _of_effects(self, situation: Situation) -> Violation | None:
        for entry in situation.bank:
            if times_happened(situation.bank, entry.life, entry.step) > 1:
                return Violation.DOUBLE_UNDO if entry.step.startswith("u") else Violation.DOUBLE_EFFECT
        return None

    def _of_ack(self, situation: Situation, ack: Ack) -> Violation | None:
        if ack.fault:
            return FAULTS[ack.fault]
        if any(other.life == ack.life and other.body != ack.body for other in situation.acks):
            return Violation.ACKS_DIFFER
        if ack.body.life != ack.life:
            return Violation.ZOMBIE_ABA
        if ack.body.kind == "S" and not self._all_happened(situation, ack.life):
            return Violation.ACK_OK_NO_EFFECT
        if ack.body.kind == "R" and self._net_effects(situation, ack.life):
            return Violation.ACK_ERROR_BUT_EFFECT
        for record in situation.records:
            face = self._table.faces[record]
            is_held = face.outcome == ack.body or face.state is State.EXPIRED
            if face.life == ack.life and not is_held:
                return Violation.ACK_NOT_DURABLE
        return None

    def _of_records(self, situation: Situation) -> Violation | None:
        for record in situation.records:
            face = self._table.faces[record]
            if face.outcome is not None and face.outcome.life != face.life:
                return Violation.ZOMBIE_ABA
            if face.state is State.AVAILABLE and self._net_effects(situation, face.life):
                return Violation.EFFECT_VANISHED
        for past in situation.past:
            if past.kind == "" and self._net_effects(situation, past.life):
                return Violation.EFFECT_VANISHED
        return None

    def _all_happened(self, situation: Situation, life: int) -> bool:
        bank = situation.bank
        return all(times_happened(bank, life, step) == 1 for step in self._plan.steps) and not any(
            times_happened(bank, life, undo) for undo in self._plan.undos
        )

    def _net_effects(self, situation: Situation, life: int) -> int:
        bank = situation.bank
        return sum(
            times_happened(bank, life, step) - times_happened(bank, life, f"u{step}") for step in self._plan.steps
        )
