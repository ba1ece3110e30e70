"""What a person can do about a record, for each state it can be in, with the very command to copy."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import assert_never

from nebis.cli.phrases import instant, span, visible
from nebis.core.record import EffectsMode, OutcomeKind, Record, State
from nebis.flows.settle import DOUBT_CODE_CHANGED

WORKER = "nebis worker --app package.module:nebis"
REASON = "--reason 'what you know, and from whom'"


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """Something that can be done, or need not be."""

    text: str
    command: str | None = None


def advice(record: Record, now: int, *, suffix: str = "") -> list[Advice]:
    """Return what can be done next; `suffix` is what each command needs to find the same store."""
    return [
        Advice(text=each.text, command=None if each.command is None else each.command + suffix)
        for each in _advice(record, now)
    ]


def _advice(record: Record, now: int) -> Iterator[Advice]:
    match record.state:
        case State.IN_PROGRESS:
            yield from _in_progress(record, now)
        case State.IN_DOUBT:
            yield from _in_doubt(record, now)
        case State.AVAILABLE:
            yield Advice(
                text="Nothing has happened under this key, and nothing has to be done: "
                "the next request with it runs the operation."
            )
        case State.COMPLETED:
            yield from _completed(record, now)
        case State.EXPIRED:
            yield Advice(
                text="Nothing has to be done. The answer is no longer kept; a retry runs anew or is refused, "
                "as the operation says."
            )
        case _:
            assert_never(record.state)


def _in_progress(record: Record, now: int) -> Iterator[Advice]:
    if not record.has_lapsed(now):
        yield Advice(
            text="Nothing has to be done: an attempt owns it, and retries are told to come back. If its process is "
            f"gone, the lease ends in {span(record.lease_until - now)} and a successor goes on."
        )
    elif not record.may_resume(now):
        yield Advice(
            text="Its owner is gone and may have done something that must not be done twice. "
            "The next request or worker puts it in doubt; to do so now and decide yourself:",
            command=f"nebis recover {record.record_id}",
        )
    elif record.command is None:
        yield Advice(
            text="Its owner is gone. Its request was not stored, so only the client's next request with this key "
            "can go on with it; ask the client to send it again."
        )
    else:
        what = "undoes what is left to undo" if record.is_undoing else "goes on with it"
        yield Advice(
            text=f"Its owner is gone. The next request with this key {what}, and so does a worker:", command=WORKER
        )


def _in_doubt(record: Record, now: int) -> Iterator[Advice]:
    yield Advice(text=_what_to_find_out(record))
    decide = f"nebis resolve {record.record_id}"
    # Under one fence a doubt can end and another begin, so what was open belongs to what was seen.
    seen = "" if record.open_effect is None else f" --effect {shlex.quote(visible(record.open_effect.name))}"
    guarded = f"--fence {record.fence}{seen} {REASON}"
    if not record.is_undoing or record.open_effect is not None:
        yield Advice(text=_if_it_happened(record), command=f"{decide} --happened result.json {guarded}")
        yield Advice(text=_if_it_did_not(record, now), command=f"{decide} --did-not-happen --owner-is-dead {guarded}")
    if record.mode is not EffectsMode.OPAQUE and record.may_resume(now):
        yield Advice(text=_if_it_may_go_on(record), command=f"{decide} --retry {guarded}")
    yield Advice(
        text="Left alone, it stays in doubt until its deadline (72 hours, unless the operation says otherwise); "
        "a worker then closes it as unknown, for good."
    )


def _what_to_find_out(record: Record) -> str:
    opened = record.open_effect
    if opened is not None:
        return (
            f"Find out from the downstream whether {visible(opened.name)!r} happened; it was asked for under the key "
            f"{visible(opened.derived_key)}. That it shows nothing now proves nothing while a call may still land."
        )
    if record.is_undoing:
        return "It was rejected half-way, and undoing it stopped. Find out why before it goes on."
    if record.doubt_reason == DOUBT_CODE_CHANGED:
        return (
            "The code that ran last does not ask for the effects that are recorded. "
            "Deploy code that does, and let it go on; or find out what happened and say so."
        )
    return "Find out what the operation did before it stopped: nobody but its downstreams knows."


def _if_it_happened(record: Record) -> str:
    opened = record.open_effect
    if opened is not None:
        return (
            f"It happened: write the result of {visible(opened.name)!r} as JSON into a file; the operation goes on "
            "after it. (With --final the file is the answer of the whole operation, and nothing goes on.)"
        )
    if record.command is None:
        return "It happened: write the body that callers get as JSON into a file; --status says with which HTTP status."
    return "It happened: write the result of the operation as JSON into a file; callers get it from then on."


def _if_it_did_not(record: Record, now: int) -> str:
    goes_on = any(not effect.is_open for effect in record.effects) or record.is_undoing
    then = "the operation goes on, and asks for it anew" if goes_on else "the next request with this key runs it anew"
    wait = "" if record.has_lapsed(now) else f" Not before {instant(record.lease_until)}: until then its call can land."
    return f"It did not happen, and its process is certainly dead, so that it cannot happen later: {then}.{wait}"


def _if_it_may_go_on(record: Record) -> str:
    opened = record.open_effect
    if opened is not None:
        return (
            f"It does not matter: {visible(opened.name)!r} is {opened.effect_class.value.replace('_', '-')}, so asking "
            "for it again under the same key makes no second one. Let the next request or worker go on."
        )
    return (
        "It may go on from what is recorded, because whatever stopped it is mended: let the next request or worker try."
    )


def _completed(record: Record, now: int) -> Iterator[Advice]:
    if record.outcome_kind is OutcomeKind.UNKNOWN:
        yield Advice(
            text="It was closed without proof, which is final: callers are told that nobody knows. "
            "Settle it with the downstream and the client by hand."
        )
    else:
        left = f"for another {span(record.expires_at - now)}" if now < record.expires_at else "until it is swept"
        yield Advice(text=f"Nothing has to be done, and the answer never changes: every retry gets it {left}.")
