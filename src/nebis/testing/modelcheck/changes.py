"""Small changes of a situation that every kind of move shares."""

from __future__ import annotations

from collections.abc import Iterator

from nebis.testing.modelcheck.world import Ack, Attempt, Cost, Entry, Message, Move, Situation, Told, Turn


def instead(situation: Situation, attempt: Attempt, other: Attempt) -> Situation:
    """Let an attempt go on."""
    records, attempts, sent, bank, acks, past = situation
    attempts = tuple([other if one is attempt else one for one in attempts])
    return Situation(records, attempts, sent, bank, acks, past)


def without(situation: Situation, attempt: Attempt) -> Situation:
    """Let an attempt end."""
    records, attempts, sent, bank, acks, past = situation
    attempts = tuple([one for one in attempts if one is not attempt])
    return Situation(records, attempts, sent, bank, acks, past)


def joined(situation: Situation, attempt: Attempt) -> Situation:
    """Let an attempt begin."""
    records, attempts, sent, bank, acks, past = situation
    return Situation(records, (*attempts, attempt), sent, bank, acks, past)


def sending(situation: Situation, message: Message) -> Situation:
    """Put a message on its way; a second copy of one that is on its way adds nothing."""
    records, attempts, sent, bank, acks, past = situation
    if message in sent:
        return situation
    return Situation(records, attempts, (*sent, message), bank, acks, past)


def received(situation: Situation, message: Message) -> Situation:
    """Take a message off its way."""
    records, attempts, sent, bank, acks, past = situation
    sent = tuple([one for one in sent if one is not message])
    return Situation(records, attempts, sent, bank, acks, past)


def acknowledged(situation: Situation, ack: Ack) -> Situation:
    """Let an answer leave the process."""
    records, attempts, sent, bank, acks, past = situation
    if ack in acks:
        return situation
    return Situation(records, attempts, sent, bank, (*acks, ack), past)


def with_bank(situation: Situation, bank: tuple[Entry, ...]) -> Situation:
    """Let the bank's ledger change."""
    records, attempts, sent, _, acks, past = situation
    return Situation(records, attempts, sent, bank, acks, past)


def unanswered(turn: Turn, attempt: Attempt, message: Message) -> Iterator[Move]:
    """Send without hearing anything: the sender waits and sends it again, or dies; the message may land at any time."""
    is_late, is_crash = turn.affords(Cost.LATE), turn.affords(Cost.CRASH)
    if not (is_late or is_crash) or message in turn.situation.sent:
        return
    underway = sending(turn.situation, message)
    if is_late:
        yield Move(Cost.LATE, Told(attempt.name, message.verb, message.about, "no answer"), underway)
    if is_crash:
        told = Told(attempt.name, message.verb, message.about, "no answer, and it dies")
        yield Move(Cost.CRASH, told, without(underway, attempt))


def claim_of(attempt: Attempt) -> Message:
    """Return the claim that an attempt sends, the same one however often."""
    return Message("claim", attempt.tenant, attempt.name, attempt.name, 0, command=attempt.command)


def said_by(attempt: Attempt, verb: str, about: str = "") -> Message:
    """Return what an owner sends, with its proof of ownership."""
    return Message(verb, attempt.tenant, attempt.name, attempt.life, attempt.fence, about)


def ownership_of(attempt: Attempt) -> tuple[int, int, int]:
    """Return the proof that an attempt shows."""
    return attempt.life, attempt.fence, attempt.name
