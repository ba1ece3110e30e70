"""`nebis show`: one record with its history, and what can be done about it."""

from __future__ import annotations

import os
import shlex
from typing import Annotated
from uuid import UUID

import typer

from nebis.cli import portrait as picture
from nebis.cli.advice import advice
from nebis.cli.output import complain, is_watched, say, say_json, show
from nebis.cli.portrait import Portrait
from nebis.cli.store import JsonOption, Place, SchemaOption, StoreOption, locate, ready
from nebis.core.identity import PerAccount, PerOperation, PerResourceType, Scope, identity, scope_name
from nebis.core.keygrammar import parse_key
from nebis.core.record import Record, RecordId
from nebis.core.secret import Secret
from nebis.flow import Flow
from nebis.ports.store import BlockingSessions, Store


def show_(
    target: Annotated[str, typer.Argument(metavar="ID | KEY", help="The operation id, or with --tenant the key.")],
    *,
    tenant: Annotated[str | None, typer.Option("--tenant", metavar="NAME", help="Whose key it is.")] = None,
    operation: Annotated[str | None, typer.Option("--operation", metavar="NAME", help="What it was sent to.")] = None,
    resource_type: Annotated[
        str | None, typer.Option("--resource-type", metavar="NAME", help="For keys that are unique per resource type.")
    ] = None,
    store: StoreOption = None,
    schema: SchemaOption = None,
    json: JsonOption = False,
) -> None:
    """Show a record: its attempts, effects, lease and outcome, and what you can do next."""
    place = locate(store, schema)
    is_key = tenant is not None or operation is not None or resource_type is not None
    if is_key and (tenant is None or operation is None):
        raise typer.BadParameter("a key is looked up with both --tenant and --operation")
    with ready(place) as (records, sessions):
        if tenant is not None and operation is not None:
            found = sessions.run(_find_by_key(records, target, tenant, operation, resource_type))
            record_id = None if found is None else found.record_id
        else:
            record_id = record_id_of(target)
        drawn = None if record_id is None else sessions.run(drawing(records, record_id))
        if drawn is None:
            _tell_remains(records, sessions, record_id)
            raise typer.Exit(1)
    tell(drawn, place, is_json=json)


def _tell_remains(store: Store, sessions: BlockingSessions, record_id: RecordId | None) -> None:
    if record_id is None:
        # Nothing of a key is repeated, not even to whoever typed it.
        complain("there is no record of this key")
        return
    complain(f"there is no record {record_id}, or no longer")
    late_results = sessions.run(store.late_results_of(record_id))
    for line in picture.remains(late_results, sessions.run(store.audits_of(record_id))):
        say(line)


def tell(drawn: Portrait, place: Place, *, is_json: bool) -> None:
    """Print a portrait the way that its reader wants it."""
    advised = advice(drawn.record, drawn.now, suffix=suffix_for(place))
    if is_json:
        say_json(picture.as_json(drawn, advised))
    elif is_watched():
        for part in picture.painted(drawn, advised):
            show(part.picture, is_whole=part.is_whole)
    else:
        for line in picture.lines(drawn, advised):
            say(line)


def drawing(store: Store, record_id: RecordId, *, now: int | None = None) -> Flow[Portrait | None]:
    """Read everything that is known about one record."""
    record = yield from store.find_by_id(record_id)
    if record is None:
        return None
    return Portrait(
        record=record,
        now=(yield from store.clock()) if now is None else now,
        attempts=(yield from store.attempts_of(record_id)),
        late_results=(yield from store.late_results_of(record_id)),
        audits=(yield from store.audits_of(record_id)),
    )


def _find_by_key(store: Store, key: str, tenant: str, operation: str, resource_type: str | None) -> Flow[Record | None]:
    known = yield from store.secrets(None)
    if known.generated is None:
        return None
    scopes: list[Scope] = [PerOperation(), PerAccount()] if resource_type is None else [PerResourceType(resource_type)]
    for scope in scopes:
        name = scope_name(scope, operation=operation)
        wanted = identity(Secret(known.generated), tenant=tenant, scope=name, key=parse_key(key))
        found = yield from store.find(wanted)
        if found is not None:
            return found
    return None


def record_id_of(text: str) -> RecordId:
    """Read an operation id, or raise a usage error that does not repeat what may be a key."""
    try:
        return RecordId(UUID(text))
    except ValueError:
        raise typer.BadParameter("that is no operation id; to look up a key add --tenant and --operation") from None


def suffix_for(place: Place) -> str:
    """Return what a copied command needs to find the same store, without anything secret."""
    words: list[str] = []
    if os.environ.get("NEBIS_STORE") != place.url:
        words += ["--store", place.shown]
    if place.options.get("schema") is not None:
        words += ["--schema", str(place.options["schema"])]
    return "".join(f" {shlex.quote(word)}" for word in words)
