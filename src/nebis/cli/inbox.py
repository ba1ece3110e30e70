"""`nebis inbox`: messages that consumers keep aside, and what a person decides about them."""

from __future__ import annotations

import asyncio
import sys
from typing import Annotated, Final
from uuid import UUID

import typer

from nebis.aio import AsyncNebis
from nebis.cli.letters import as_json, lines, portrait, progress_lines
from nebis.cli.output import complain, say, say_json, show_help
from nebis.cli.resolving import ReasonOption
from nebis.cli.showing import suffix_for
from nebis.cli.signature import signed_by_this_person
from nebis.cli.store import JsonOption, SchemaOption, StoreOption, locate, ready
from nebis.cli.worker import load
from nebis.core.record import RecordId
from nebis.delivery import Done, Later, Parked, Verdict
from nebis.errors import ConfigError
from nebis.ports.inbox import ParkDecision
from nebis.sync import Nebis

app = typer.Typer(help="Look at parked messages, send one in again, or drop it.")

LetterArgument = Annotated[str, typer.Argument(metavar="ID", help="As `nebis inbox list` says.")]
ConsumerOption = Annotated[str | None, typer.Option("--consumer", metavar="NAME", help="Only of this consumer.")]
AppOption = Annotated[
    str | None,
    typer.Option(
        "--app", metavar="MODULE:NAME", help="Run its handler here and now, instead of leaving it to a worker."
    ),
]
_ABSENT: Final = "there is no parked message {}, or no longer"


@app.callback(invoke_without_command=True)
def inbox(context: typer.Context) -> None:
    """Look at messages that consumers could not apply, send one in again, or drop it."""
    if context.invoked_subcommand is None:
        show_help(context)


@app.command("list")
def list_(
    *,
    consumer: ConsumerOption = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="At most so many.")] = 50,
    store: StoreOption = None,
    schema: SchemaOption = None,
    json: JsonOption = False,
) -> None:
    """List parked messages, the oldest first, and how far consumers are that go by offsets."""
    with ready(locate(store, schema)) as (records, sessions):
        now = sessions.run(records.clock())
        found = sessions.run(records.list_parked(consumer=consumer, limit=limit + 1))
        progresses = sessions.run(records.progresses(consumer))
    page = found[:limit]
    if json:
        parked = [as_json(each, now) for each in page]
        offsets = [
            {
                "consumer": each.consumer,
                "partition": each.partition,
                "last_offset": each.last_offset,
                "gaps": each.gaps,
                "latest_gap": each.gap,
            }
            for each in progresses
        ]
        say_json({"parked": parked, "has_more": len(found) > limit, "offsets": offsets})
        return
    if not page:
        complain("no message is parked")
    for line in [*lines(page, now), *progress_lines(progresses)]:
        say(line)
    if len(found) > limit:
        complain(f"there are more than {limit}; narrow the search or raise --limit")


@app.command("show")
def show_(
    target: LetterArgument,
    *,
    payload: Annotated[
        bool,
        typer.Option("--payload", help="Print the payload and nothing else; it may hold what others must not see."),
    ] = False,
    store: StoreOption = None,
    schema: SchemaOption = None,
    json: JsonOption = False,
) -> None:
    """Show a parked message: where it came from, why it is here, and what was done about it."""
    place, parked_id = locate(store, schema), parked_id_of(target)
    with ready(place) as (records, sessions):
        now = sessions.run(records.clock())
        found = sessions.run(records.find_parked(parked_id))
        audits = sessions.run(records.audits_of(RecordId(parked_id)))
    if found is None:
        complain(_ABSENT.format(parked_id))
        for line in portrait(None, audits, now):
            say(line)
        raise typer.Exit(1)
    if payload:
        if found.letter.payload is None:
            complain("its payload was too large to be kept; the broker still has it")
            raise typer.Exit(1)
        sys.stdout.buffer.write(found.letter.payload)
    elif json:
        say_json(as_json(found, now, audits))
    else:
        for line in portrait(found, audits, now, suffix=suffix_for(place)):
            say(line)


@app.command()
def retry(
    target: LetterArgument,
    *,
    reason: ReasonOption,
    app: AppOption = None,
    store: StoreOption = None,
    schema: SchemaOption = None,
    json: JsonOption = False,
) -> None:
    """Send a parked message in again, in your name: by a worker, or with --app at once.

    Exit status 1: it is not there, or with --app it is still not applied.
    """
    parked_id = parked_id_of(target)
    nebis = None if app is None else load(app)
    with ready(locate(store, schema)) as (records, sessions):
        signed = signed_by_this_person(what="inbox retry", reason=reason, record_id=RecordId(parked_id))
        found = sessions.run(records.find_parked(parked_id))
        if nebis is not None and found is not None and found.letter.consumer not in nebis.consumers:
            raise ConfigError([f"{app} declares no consumer {found.letter.consumer!r}; name the one that does"])
        is_there = sessions.run(records.decide_parked(parked_id, ParkDecision.RETRY, signed))
    if not is_there or found is None:
        _tell(f"{_ABSENT.format(parked_id)}; nothing changed", is_done=False, is_json=json)
        raise typer.Exit(1)
    if nebis is None:
        _tell(f"{parked_id} is sent in again by the next worker of {found.letter.consumer}", is_done=True, is_json=json)
        return
    verdict = _redriven(nebis, found.letter.consumer, parked_id)
    _tell(_words(verdict, parked_id), is_done=isinstance(verdict, Done), is_json=json)
    if not isinstance(verdict, Done):
        raise typer.Exit(1)


@app.command()
def discard(
    target: LetterArgument,
    *,
    reason: ReasonOption,
    store: StoreOption = None,
    schema: SchemaOption = None,
    json: JsonOption = False,
) -> None:
    """Drop a parked message and its payload for good, in your name. Exit status 1: it is not there."""
    parked_id = parked_id_of(target)
    with ready(locate(store, schema)) as (records, sessions):
        signed = signed_by_this_person(what="inbox discard", reason=reason, record_id=RecordId(parked_id))
        is_there = sessions.run(records.decide_parked(parked_id, ParkDecision.DISCARD, signed))
    text = f"{parked_id} is dropped" if is_there else f"{_ABSENT.format(parked_id)}; nothing changed"
    _tell(text, is_done=is_there, is_json=json)
    if not is_there:
        raise typer.Exit(1)


def parked_id_of(text: str) -> UUID:
    """Read the id of a parked message, or raise a usage error."""
    try:
        return UUID(text)
    except ValueError:
        raise typer.BadParameter("that is no id of a parked message; `nebis inbox list` shows them") from None


def _redriven(nebis: Nebis | AsyncNebis, consumer: str, parked_id: UUID) -> Verdict | None:
    if isinstance(nebis, AsyncNebis):
        return asyncio.run(_redriven_on_loop(nebis, consumer, parked_id))
    with nebis:
        verdict: Verdict | None = nebis.consumers[consumer].redrive(parked_id)
        return verdict


async def _redriven_on_loop(nebis: AsyncNebis, consumer: str, parked_id: UUID) -> Verdict | None:
    async with nebis:
        verdict: Verdict | None = await nebis.consumers[consumer].redrive(parked_id)
        return verdict


def _words(verdict: Verdict | None, parked_id: UUID) -> str:
    match verdict:
        case Done(is_duplicate=True):
            return f"{parked_id} was applied already; it is no longer parked"
        case Done():
            return f"{parked_id} is applied"
        case Parked():
            return f"{parked_id} stays parked: {verdict.reason.value}"
        case Later():
            return f"{parked_id} is not applied yet ({verdict.reason}); a worker sends it in again"
        case None:
            return _ABSENT.format(parked_id)


def _tell(text: str, *, is_done: bool, is_json: bool) -> None:
    if is_json:
        say_json({"done": is_done, "text": text})
    elif is_done:
        say(text)
    else:
        complain(text)
