"""What is promised to clients, and what a broken promise is called."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from nebis.testing.simulate.trades import Trade


class Rule(StrEnum):
    """How a promise can be broken."""

    DOUBLE_EFFECT = "an effect happened twice"
    ACK_OK_NO_EFFECT = "success was told, but an effect did not happen or was undone"
    ACK_ERROR_BUT_EFFECT = "a rejection was told, but an effect happened"
    ACKS_DIFFER = "two different answers were told"
    ACK_NOT_DURABLE = "an answer was told that the store did not hold"
    SUCCESS_FORGOTTEN = "a success was told, and a later call with the same command was told something else"
    OUTCOME_CHANGED = "a stored outcome changed"
    FENCE_FELL = "a fence did not grow"
    EFFECT_VANISHED = "an effect happened, and its life ended without an outcome"
    NEW_LIFE_TOO_SOON = "a key began a new life while its answer was still to be kept"
    OTHER_TENANT = "one tenant was answered with the outcome of another"
    OTHER_COMMAND = "a call was answered with the outcome of another command"
    FALSE_REUSE = "a key was called reused, and nobody ever sent another command under it"
    POISONED = "a record is not at rest although nothing goes wrong any more"
    UNANSWERED = "the last call was not answered although nothing goes wrong any more"
    BROKEN = "the code broke one of its own rules"
    HTTP_STATUS = "an answer over HTTP does not say what happened, or what to do next"
    HTTP_BYTES_DIFFER = "two HTTP clients of one key were told different bytes"
    HTTP_NOT_STORED = "an HTTP client was told bytes that the store does not hold"
    REPLAY_MARK = "a replay is not marked as one, or something else is"
    MESSAGE_INVENTED = "a message was published or applied that no transaction committed"
    MESSAGE_LOST = "a committed message was never applied although nothing goes wrong any more"
    MESSAGE_TWICE = "a message was applied twice"
    MESSAGE_ORDER = "two messages of one ordering key were applied in the wrong order"
    MESSAGES_AND_OUTCOME = "an outcome was committed without its messages, or messages without their outcome"


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call of a client."""

    number: int
    trade: Trade
    tenant: str
    key: str
    command: str
    at: float
    is_last: bool = False
    """It is made when nothing goes wrong any more, so it has to be answered."""

    @property
    def place(self) -> tuple[Trade, str, str]:
        """Return whose key of which operation it is."""
        return (self.trade, self.tenant, self.key)


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken promise."""

    rule: Rule
    detail: str

    def __str__(self) -> str:
        """Tell it in one line."""
        return f"{self.rule.name}: {self.rule.value} ({self.detail})"
