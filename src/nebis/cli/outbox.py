"""`nebis outbox`: messages that wait to be published, and what a person decides about them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from hashlib import sha256
from typing import Annotated, Final
from uuid import UUID

import typer

from nebis.cli.output import complain, say, say_json, show_help
from nebis.cli.phrases import instant, span, timestamp, visible
from nebis.cli.resolving import ReasonOption
from nebis.cli.signature import signed_by_this_person
from nebis.cli.store import JsonOption, SchemaOption, StoreOption, locate, ready
from nebis.core.record import RecordId
from nebis.ports.history import AuditLine
from nebis.ports.outbox import Entry, EntryQuery, MessageState, outbox_of

app = typer.Typer(help="Look at messages that wait to be published, retry one that is parked, or discard it.")

MessageArgument = Annotated[str, typer.Argument(metavar="ID", help="The message's id, as `nebis outbox list` says.")]
_COLUMNS: Final = ("id", "state", "topic", "key", "attempts", "age", "next", "error")
_WORDS: Final = {
    MessageState.PENDING: "pending",
    MessageState.PARKED: "parked",
    MessageState.PUBLISHED: "published",
    MessageState.DISCARDED: "discarded",
}
_WAITING: Final = (MessageState.PENDING, MessageState.PARKED)
_NOT_NOW: Final = (
    "nothing changed: there is no such message, a relay is publishing it right now, or it has ended; "
    "look at it: nebis outbox show"
)


@app.callback(invoke_without_command=True)
def outbox(context: typer.Context) -> None:
    """Look at messages that wait to be published, retry one that is parked, or discard it."""
    if context.invoked_subcommand is None:
        show_help(context)


@app.command("list")
def list_(
    *,
    state: Annotated[
        list[str] | None,
        typer.Option("--state", metavar="STATE", help="pending, parked, published or discarded; else what waits."),
    ] = None,
    topic: Annotated[str | None, typer.Option("--topic", metavar="NAME", help="Only of this topic.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="At most so many.")] = 50,
    store: StoreOption = None,
    schema: SchemaOption = None,
    json: JsonOption = False,
) -> None:
    """List messages in the order of staging. Payloads are never shown here."""
    states = tuple(state_of(each) for each in state) if state else _WAITING
    with ready(locate(store, schema)) as (records, sessions):
        now = sessions.run(records.clock())
        query = EntryQuery(states=states, topic=topic, limit=limit + 1)
        found = sessions.run(outbox_of(records).entries(query))
    page = found[:limit]
    if json:
        say_json({"messages": [as_json(entry) for entry in page], "has_more": len(found) > limit})
        return
    if not page:
        complain("no message is like that")
    for line in lines(page, now):
        say(line)
    if len(found) > limit:
        complain(f"there are more than {limit}; narrow the search or raise --limit")


@app.command("show")
def show_(
    target: MessageArgument,
    *,
    payload: Annotated[
        bool,
        typer.Option("--payload", help="Print the payload and nothing else; it may hold what others must not see."),
    ] = False,
    store: StoreOption = None,
    schema: SchemaOption = None,
    json: JsonOption = False,
) -> None:
    """Show a message: where it goes, what was tried, and what people did about it."""
    with ready(locate(store, schema)) as (records, sessions):
        now = sessions.run(records.clock())
        entry = sessions.run(outbox_of(records).find(target))
        audits = sessions.run(records.audits_of(audit_id(target)))
    if entry is None:
        complain("there is no such message, or no longer")
    if payload and entry is not None:
        sys.stdout.buffer.write(entry.message.payload)
    elif json and entry is not None:
        say_json({**as_json(entry), "audit": [_audit_json(line) for line in audits]})
    else:
        for line in [*([] if entry is None else portrait(entry, now)), *map(_audited, audits)]:
            say(line)
    if entry is None:
        raise typer.Exit(1)


@app.command()
def retry(
    target: MessageArgument,
    *,
    reason: ReasonOption,
    store: StoreOption = None,
    schema: SchemaOption = None,
    json: JsonOption = False,
) -> None:
    """Have a message published again at once, with all its attempts, in your name. Exit status 1: it was refused."""
    _decide(target, MessageState.PENDING, reason, store, schema, is_json=json)


@app.command()
def discard(
    target: MessageArgument,
    *,
    reason: ReasonOption,
    store: StoreOption = None,
    schema: SchemaOption = None,
    json: JsonOption = False,
) -> None:
    """Never publish a message, in your name; what waits behind it under its key goes on. Exit status 1: refused."""
    _decide(target, MessageState.DISCARDED, reason, store, schema, is_json=json)


def _decide(
    target: str, state: MessageState, reason: str, store: str | None, schema: str | None, *, is_json: bool
) -> None:
    word = "retry" if state is MessageState.PENDING else "discard"
    signed = signed_by_this_person(what=f"outbox {word}", reason=reason, record_id=audit_id(target))
    with ready(locate(store, schema)) as (records, sessions):
        entry = sessions.run(outbox_of(records).decide(target, state, signed))
    done = "it is published by the next relay" if state is MessageState.PENDING else "it will not be published"
    text = _NOT_NOW if entry is None else f"{visible(target)} is {_WORDS[state]}: {done}"
    if is_json:
        say_json({"done": entry is not None, "text": text})
    elif entry is None:
        complain(text)
    else:
        say(text)
    if entry is None:
        raise typer.Exit(1)


def audit_id(message_id: str) -> RecordId:
    """Return the id under which the audit keeps what people did to a message, which has no record of its own."""
    return RecordId(UUID(bytes=sha256(b"nebis/outbox/1" + message_id.encode()).digest()[:16], version=5))


def state_of(text: str) -> MessageState:
    """Read a state as people write it, or raise a usage error."""
    for state, word in _WORDS.items():
        if text.strip().lower() == word:
            return state
    known = ", ".join(_WORDS.values())
    raise typer.BadParameter(f"there is no state {visible(text, longest=40)!r}; use one of {known}")


def lines(entries: Sequence[Entry], now: int) -> list[str]:
    """Return the table, with as much room as each column needs."""
    if not entries:
        return []
    rows = [_cells(entry, now) for entry in entries]
    widths = [max(len(row[place]) for row in (_COLUMNS, *rows)) for place in range(len(_COLUMNS))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in (_COLUMNS, *rows)
    ]


def portrait(entry: Entry, now: int) -> list[str]:
    """Return everything about one message but its payload."""
    message = entry.message
    facts = {
        "id": visible(message.id),
        "state": _state(entry, now),
        "topic": visible(message.topic),
        "key": visible(message.ordering_key or "none: it keeps no order"),
        "payload": f"{len(message.payload)} bytes of {visible(message.content_type)}",
        "headers": ", ".join(visible(name) for name, _ in message.headers) or "none",
        "staged": f"{instant(entry.created_at)}, {span(now - entry.created_at)} ago",
        "attempts": str(entry.attempts),
        "error": visible(entry.last_error or "none"),
    }
    width = max(map(len, facts))
    return [f"{name:<{width}}  {fact}" for name, fact in facts.items()]


def as_json(entry: Entry) -> dict[str, object]:
    """Return a message for programs, without its payload."""
    return {
        "id": entry.message.id,
        "state": _WORDS[entry.state],
        "topic": entry.message.topic,
        "ordering_key": entry.message.ordering_key,
        "content_type": entry.message.content_type,
        "header_names": [name for name, _ in entry.message.headers],
        "payload_bytes": len(entry.message.payload),
        "attempts": entry.attempts,
        "taken_by": entry.taken_by,
        "created_at": timestamp(entry.created_at),
        "available_at": timestamp(entry.available_at),
        "ended_at": timestamp(entry.ended_at),
        "last_error": entry.last_error,
    }


def _cells(entry: Entry, now: int) -> tuple[str, ...]:
    wait_us = entry.available_at - now
    return (
        visible(entry.message.id),
        _WORDS[entry.state],
        visible(entry.message.topic),
        visible(entry.message.ordering_key or "-"),
        str(entry.attempts),
        span(now - entry.created_at),
        _next(entry, wait_us),
        visible(entry.last_error or "", longest=60),
    )


def _next(entry: Entry, wait_us: int) -> str:
    if entry.state is not MessageState.PENDING:
        return "-"
    if wait_us <= 0:
        return "due"
    return f"taken for {span(wait_us)}" if entry.taken_by is not None else f"in {span(wait_us)}"


def _state(entry: Entry, now: int) -> str:
    match entry.state:
        case MessageState.PENDING if entry.taken_by is not None and entry.available_at > now:
            return f"pending: {visible(entry.taken_by)} has it for {span(entry.available_at - now)}"
        case MessageState.PENDING:
            return f"pending: {_next(entry, entry.available_at - now)}"
        case MessageState.PARKED:
            return "parked: mend what refuses it, then retry or discard it; it holds back what follows under its key"
        case _:
            return f"{_WORDS[entry.state]} at {instant(entry.ended_at or 0)}"


def _audited(line: AuditLine) -> str:
    who, what, reason = (visible(text) for text in (line.signed.who, line.signed.what, line.signed.reason))
    return f"{instant(line.at)}  {who}: {what}, {line.answer} ({reason})"


def _audit_json(line: AuditLine) -> dict[str, object]:
    return {
        "at": timestamp(line.at),
        "who": line.signed.who,
        "what": line.signed.what,
        "reason": line.signed.reason,
        "answer": line.answer,
    }
