"""`nebis resolve` and `nebis recover`: what a person decides about a record. Each is written down, refused or not."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from nebis.cli.advice import WORKER
from nebis.cli.desk import Desk
from nebis.cli.phrases import visible
from nebis.cli.result import outcome_of, result_of
from nebis.cli.showing import record_id_of
from nebis.cli.store import JsonOption, SchemaOption, StoreOption, locate, ready
from nebis.core.answers import Refusal
from nebis.core.record import EffectVerdict, Record, State
from nebis.core.verbs import AbsenceProof, CallAgain, DidNotHappen, EffectKnown, Ended, Verdict

IdArgument = Annotated[str, typer.Argument(metavar="ID", help="The operation id.")]
ReasonOption = Annotated[
    str, typer.Option("--reason", metavar="TEXT", show_default=False, help="Why; kept with your name and the time.")
]
HappenedOption = Annotated[
    Path | None, typer.Option("--happened", metavar="FILE", help="It happened; FILE is the result as JSON (-: stdin).")
]
DidNotHappenOption = Annotated[bool, typer.Option("--did-not-happen", help="It did not happen, and cannot any more.")]
RetryOption = Annotated[bool, typer.Option("--retry", help="It may go on: calling again makes nothing twice.")]
OwnerIsDeadOption = Annotated[
    bool, typer.Option("--owner-is-dead", help="You know that its process is dead and its call can no longer land.")
]
FinalOption = Annotated[
    bool, typer.Option("--final", help="FILE is the answer of the whole operation, although an effect is open.")
]
StatusOption = Annotated[
    int, typer.Option("--status", min=200, max=399, help="Of an endpoint: the HTTP status of the answer.")
]
AppOption = Annotated[
    str | None, typer.Option("--app", metavar="MODULE:NAME", help="Check FILE against the type that is declared there.")
]
FenceOption = Annotated[
    int | None, typer.Option("--fence", metavar="N", help="As `nebis show` said; refused if it changed since.")
]
EffectOption = Annotated[
    str | None, typer.Option("--effect", metavar="NAME", help="The open one, as `nebis show` said; as with --fence.")
]


def resolve(
    target: IdArgument,
    *,
    reason: ReasonOption,
    happened: HappenedOption = None,
    did_not_happen: DidNotHappenOption = False,
    retry: RetryOption = False,
    owner_is_dead: OwnerIsDeadOption = False,
    final: FinalOption = False,
    status: StatusOption = 200,
    app: AppOption = None,
    fence: FenceOption = None,
    effect: EffectOption = None,
    store: StoreOption = None,
    schema: SchemaOption = None,
    json: JsonOption = False,
) -> None:
    """Lead a record out of doubt, in your name. Exit status 1: it was refused, and nothing changed."""
    if (happened is not None) + did_not_happen + retry != 1:
        raise typer.BadParameter("say one of --happened FILE, --did-not-happen and --retry")
    if (owner_is_dead and not did_not_happen) or (final and happened is None):
        raise typer.BadParameter("--owner-is-dead goes with --did-not-happen, and --final with --happened")
    given = None if happened is None else _read(happened)
    asked = {
        "--happened": given is not None,
        "--final": final,
        "--did-not-happen": did_not_happen,
        "--owner-is-dead": owner_is_dead,
        "--retry": retry,
    }
    what = " ".join(["resolve", *(word for word, is_said in asked.items() if is_said)])
    place = locate(store, schema)
    record_id = record_id_of(target)
    with ready(place) as (records, sessions):
        desk = Desk(records, sessions, place, what=what, reason=reason, is_json=json)
        record = desk.find(record_id, fence)
        if given is not None:
            verdict = _happened(desk, record, given, final=final, status=status, app=app)
        elif did_not_happen:
            verdict = _did_not_happen(desk, record, owner_is_dead=owner_is_dead)
        else:
            verdict = CallAgain()
        desk.resolve(record, verdict, effect)


def recover(
    target: IdArgument,
    *,
    reason: ReasonOption = "to decide about it",
    store: StoreOption = None,
    schema: SchemaOption = None,
    json: JsonOption = False,
) -> None:
    """Put a record in doubt whose owner is gone and that nobody may run again; of others, say who goes on with them."""
    place = locate(store, schema)
    record_id = record_id_of(target)
    with ready(place) as (records, sessions):
        desk = Desk(records, sessions, place, what="recover", reason=reason, is_json=json)
        record = desk.find(record_id)
        now = desk.now()
        if record.state is State.IN_PROGRESS and record.has_lapsed(now) and record.may_resume(now):
            # There is no handler here to run it with, and taking it over would only use up one of its tries.
            who = "its client's next request goes on with it"
            by_worker = "" if record.command is None else f", and so does a worker: {WORKER}"
            desk.tell(f"nothing was done: {who}{by_worker}", is_done=False)
        else:
            desk.put_in_doubt(record)


def _happened(desk: Desk, record: Record, given: bytes, *, final: bool, status: int, app: str | None) -> Verdict:
    opened = record.open_effect
    if opened is not None and not final:
        return EffectKnown(verdict=EffectVerdict.HAPPENED, result=result_of(given, record, opened, app))
    if record.is_undoing:
        desk.refuse(Refusal.UNDOING, record)
    return Ended(outcome=outcome_of(given, record, status, app))


def _did_not_happen(desk: Desk, record: Record, *, owner_is_dead: bool) -> Verdict:
    if not owner_is_dead:
        return DidNotHappen(proof=None)
    # An intent makes the lease outlast its call, and nothing prolongs it any more once the record is in doubt.
    if record.state is State.IN_DOUBT and not record.has_lapsed(desk.now()):
        desk.refuse(Refusal.LEASE_LIVE, record)
    return DidNotHappen(proof=AbsenceProof.OWNER_DEAD)


def _read(path: Path) -> bytes:
    try:
        return sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
    except OSError as error:
        raise typer.BadParameter(f"{visible(str(path))} cannot be read: {error.strerror}") from None
