"""`nebis secret`: which secrets records were made with, and the end of one that none needs any more."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Annotated

import typer

from nebis.cli.output import complain, say, say_json, show_help
from nebis.cli.resolving import ReasonOption
from nebis.cli.signature import signed_by_this_person
from nebis.cli.store import JsonOption, SchemaOption, StoreOption, locate, ready
from nebis.core.secret import Keyring, Secret, number_of
from nebis.ports.store import SecretState

app = typer.Typer(help="List the secrets in use, or retire one.")


@app.callback(invoke_without_command=True)
def secret(context: typer.Context) -> None:
    """List the secrets that records were made with, or retire one that none needs any more."""
    if context.invoked_subcommand is None:
        show_help(context)


@app.command("list")
def list_(*, store: StoreOption = None, schema: SchemaOption = None, json: JsonOption = False) -> None:
    """List secrets by number, with how many records need each. No secret is ever shown."""
    with ready(locate(store, schema)) as (records, sessions):
        known = sessions.run(records.secrets(None))
        numbers = sorted(number_of(check_value) for check_value in known.check_values)
        left = {number: sessions.run(records.made_with(number)) for number in numbers}
    told = dict(_told(known))
    if json:
        rows = [{"number": each, "records": left[each], "where": told[each]} for each in numbers]
        say_json({"secrets": rows})
    elif not numbers:
        complain("no secret was ever used in this store")
    else:
        for number in numbers:
            say(f"{number:>7}  {left[number]} records  {told[number]}")


@app.command()
def retire(
    number: Annotated[int, typer.Argument(metavar="NUMBER", help="As `nebis secret list` says.")],
    *,
    reason: ReasonOption,
    store: StoreOption = None,
    schema: SchemaOption = None,
    json: JsonOption = False,
) -> None:
    """Forget a secret that no record needs, so that processes start without it. Exit status 1 if one still does."""
    with ready(locate(store, schema)) as (records, sessions):
        signed = signed_by_this_person(what=f"secret retire {number}", reason=reason)
        known = sessions.run(records.secrets(None))
        found = [check_value for check_value in known.check_values if number_of(check_value) == number]
        if not found:
            raise typer.BadParameter("no secret has this number; nebis secret list shows those in use")
        refusal = _refusal(known, found[0])
        left = 0 if refusal is not None else sessions.run(records.retire_secret(found[0], number))
        if left:
            refusal = f"{left} records were made with it; wait until they are forgotten"
        sessions.run(records.audit(signed, "done" if refusal is None else "refused"))
    if json:
        say_json({"done": refusal is None, "records": left, "text": refusal})
    elif refusal is None:
        say(f"{number} is retired: take it out of NEBIS_SECRET wherever it is still listed")
    else:
        complain(f"refused, and nothing changed: {refusal}")
    if refusal is not None:
        raise typer.Exit(1)


def _refusal(known: SecretState, check_value: bytes) -> str | None:
    if len(known.check_values) == 1:
        return "it is the only one; start every process with a new one first (NEBIS_SECRET=new,old)"
    listed = _listed()
    if listed and listed[0] == check_value:
        return "NEBIS_SECRET lists it first, so it is what new records are made with"
    return None


def _told(known: SecretState) -> Iterator[tuple[int, str]]:
    own = None if known.generated is None else Secret(known.generated).check_value()
    listed = _listed()
    for check_value in known.check_values:
        if listed and check_value == listed[0]:
            words = "new records are made with it, as NEBIS_SECRET lists it first"
        elif check_value in listed:
            words = "listed in NEBIS_SECRET"
        elif check_value == own:
            words = "the store keeps it"
        else:
            words = "not in NEBIS_SECRET here"
        yield number_of(check_value), words


def _listed() -> list[bytes]:
    text = os.environ.get("NEBIS_SECRET", "")
    return [secret.check_value() for secret in Keyring.parse(text)] if text else []
