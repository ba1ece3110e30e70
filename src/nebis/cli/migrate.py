"""`nebis migrate`: bring the schema up to date while requests go on, print it, or check it."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from nebis.cli.output import complain, say, say_json, show_help
from nebis.cli.store import JsonOption, SchemaOption, StoreOption, locate, opened, require_dialect, surveyed
from nebis.errors import SchemaMismatch, StoreUnavailable
from nebis.ports.store import BlockingSessions, RowLocked
from nebis.stores.sql.dialect import Dialect
from nebis.stores.sql.migrations import apply_next, refuse_unless_complete, survey
from nebis.stores.sql.script import script

_FIRST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 5.0

app = typer.Typer(help="Bring the schema up to date, print it, or check it.")


@app.callback(invoke_without_command=True)
def migrate(context: typer.Context) -> None:
    """Bring the schema up to date while requests go on, print it, or check it."""
    if context.invoked_subcommand is None:
        show_help(context)


@app.command()
def apply(
    *,
    store: StoreOption = None,
    schema: SchemaOption = None,
    wait_seconds: Annotated[
        float, typer.Option("--wait", metavar="SECONDS", min=0, help="How long to try while a table is in use.")
    ] = 60.0,
    json: JsonOption = False,
) -> None:
    """Apply what is missing, one migration after the other.

    Safe while the application runs: a change that cannot have its lock at once steps back and tries again later.
    """
    place = locate(store, schema)
    dialect = require_dialect(place)
    with opened(place) as (_, sessions):
        for migration in sessions.run(survey(dialect)).missing:
            if migration.is_concurrent:
                complain(f"{migration.name} builds an index while requests go on, which may take long")
        applied = _apply_all(sessions, dialect, wait_seconds, is_silent=json)
    if json:
        say_json({"applied": applied})
    elif not applied:
        say("nothing to apply: the schema is up to date")


@app.command("print")
def print_(
    *,
    store: StoreOption = None,
    schema: SchemaOption = None,
    pending: Annotated[
        bool, typer.Option("--pending", help="Only what this database lacks; otherwise it is not even opened.")
    ] = False,
) -> None:
    """Print the SQL, for those who change their databases with a tool of their own."""
    place = locate(store, schema)
    dialect = require_dialect(place)
    if not pending:
        say(script(dialect, dialect.migrations, is_new=True).rstrip("\n"))
        return
    found = surveyed(place)
    if found.missing:
        say(script(dialect, found.missing, is_new=not found.applied).rstrip("\n"))
    else:
        say("-- Nothing is pending.")


@app.command()
def verify(*, store: StoreOption = None, schema: SchemaOption = None, json: JsonOption = False) -> None:
    """Check that this version of nebis can work with the schema: exit status 0 if so, 1 if not."""
    place = locate(store, schema)
    try:
        found = surveyed(place)
        refuse_unless_complete(found)
    except SchemaMismatch as mismatch:
        if not json:
            raise
        say_json({"fits": False, "detail": mismatch.detail})
        raise typer.Exit(1) from None
    if json:
        say_json({"fits": True, "applied": found.applied, "newer": found.newer})
    else:
        say(f"the schema fits: {', '.join(found.applied)}")


def _apply_all(sessions: BlockingSessions, dialect: Dialect, wait_seconds: float, *, is_silent: bool) -> list[str]:
    applied: list[str] = []
    deadline = time.monotonic() + wait_seconds
    pause_seconds = _FIRST_PAUSE_SECONDS
    while True:
        try:
            names = sessions.run(apply_next(dialect, is_attended=True))
        except RowLocked as locked:
            left_seconds = deadline - time.monotonic()
            if left_seconds <= 0:
                raise _in_the_way(dialect, applied, wait_seconds) from locked
            pause_seconds = min(pause_seconds, left_seconds)
            complain(f"a transaction holds what the next migration changes; trying again in {pause_seconds:.1f} s")
            time.sleep(pause_seconds)
            pause_seconds = min(2 * pause_seconds, _LONGEST_PAUSE_SECONDS)
            continue
        if names is None:
            return applied
        applied += names
        if not is_silent:
            for name in names:
                say(f"applied {name}")


def _in_the_way(dialect: Dialect, applied: list[str], wait_seconds: float) -> StoreUnavailable:
    search = (
        "find the transaction that stays open (pg_stat_activity, oldest xact_start) and let it end"
        if dialect.statements.lock_schema is not None
        else "find the program that keeps the file locked and let it end"
    )
    kept = f"{', '.join(applied)} was applied, nothing else" if applied else "nothing was applied"
    return StoreUnavailable(
        f"no lock could be had within {wait_seconds:g} s, and {kept}; {search}, then run this again"
    )
