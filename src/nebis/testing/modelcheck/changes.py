"""Small changes of a situation that every kind of move shares."""

from __future__ import annotations

from collections.abc import Iterator

from nebis.testing.modelcheck.world import Ack, Attempt, Cost, Message, Move, Situation, Told


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


def sending(situation: Situation, message: Message) -> Situation:
    """Put a message on its way; a second copy of one that is on its way adds nothing."""
    if message in situation.sent:
        return situation
    return situation._replace(sent=(*situation.sent, message))


def received(situation: Situation, message: Message) -> Situation:
    """Take a message off its way."""
    return situation._replace(sent=tuple(one for one in situation.sent if one != message))


def acknowledged(situation: Situation, ack: Ack) -> Situation:
    """Let an answer leave the process."""
    return situation if ack in situation.acks else situation._replace(acks=(*situation.acks, ack))


def unanswered(situation: Situation, attempt: Attempt, message: Message) -> Iterator[Move]:
    """Send without hearing anything: the sender waits and sends it again, or dies; the message may land at any time."""
    if message in situation.sent:
        return
    underway = sending(situation, message)
    yield Move(Cost.LATE, Told(attempt.name, message.verb, "no answer"), underway)
    yield Move(Cost.CRASH, Told(attempt.name, f"{message.verb} and dies"), without(underway, attempt))


def claim_of(attempt: Attempt) -> Message:
    """Return the claim that an attempt sends, the same one however often."""
    return Message("claim", attempt.tenant, attempt.name, attempt.name, 0, command=attempt.command)


def ownership_of(attempt: Attempt) -> tuple[int, int, int]:
    """Return the proof that an attempt shows."""
    return attempt.life, attempt.fence, attempt.name
