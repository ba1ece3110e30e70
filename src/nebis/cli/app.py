"""The command tree, and what becomes of errors: one line each, and an exit status that scripts can rely on."""

from __future__ import annotations

import traceback
from importlib import metadata
from pathlib import Path
from typing import Final

import typer

from nebis.cli import output
from nebis.cli.check import check
from nebis.cli.doctor import doctor
from nebis.cli.inbox import app as inbox
from nebis.cli.listing import list_
from nebis.cli.migrate import app as migrate
from nebis.cli.outbox import app as outbox
from nebis.cli.relay import relay
from nebis.cli.resolving import recover, resolve
from nebis.cli.secret import app as secret
from nebis.cli.showing import show_
from nebis.cli.statistics import stats
from nebis.cli.torture import torture
from nebis.cli.worker import worker
from nebis.core.native import compiled
from nebis.errors import ConfigError, NebisError, SchemaMismatch, StoreUnavailable
from nebis.ports.store import IndefiniteFailure, StoreFailure

FINDING: Final = 1
"""The command did its work and found something wrong."""
UNABLE: Final = 2
"""The command could not do its work: wrong usage, wrong configuration, or no store to be reached."""

# Typer brings a copy of click in newer versions and shares it in older ones; either way this is its base of all
# complaints about a command line.
_UsageError: type[Exception] = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")

app = typer.Typer(name="nebis", add_completion=False, pretty_exceptions_enable=False)
app.command("list")(list_)
app.command("show")(show_)
app.command()(resolve)
app.command()(recover)
app.command()(stats)
app.command()(doctor)
app.command()(check)
app.add_typer(migrate, name="migrate")
app.add_typer(inbox, name="inbox")
app.add_typer(outbox, name="outbox")
app.add_typer(secret, name="secret")
app.command()(worker)
app.command()(relay)
app.command()(torture)


@app.callback(invoke_without_command=True)
def nebis(context: typer.Context) -> None:
    """Operate Nebis: idempotent operations and their records."""
    if context.invoked_subcommand is None:
        output.show_help(context)


@app.command()
def version() -> None:
    """Print the installed version, and whether what every request computes is compiled."""
    output.say(f"nebis {metadata.version('nebis')} ({'plain Python' if compiled is None else 'compiled'})")


def run() -> int:
    """Run the command line and return the exit status: 0, 1 for a finding, 2 where nothing could be done."""
    try:
        status = app(standalone_mode=False)
        return status if isinstance(status, int) else 0
    except Exception as error:  # noqa: BLE001 - nobody who runs a command is helped by a traceback.
        line, status = _explained(error)
        output.complain(line)
        return status
    finally:
        output.finish()


def _explained(error: Exception) -> tuple[str, int]:
    match error:
        case ConfigError():
            return "; ".join(error.faults), UNABLE
        case SchemaMismatch():
            return str(error), FINDING
        case StoreUnavailable() | StoreFailure():
            return _unanswered(error), UNABLE
        case NebisError():
            return str(error), UNABLE
        case _ if isinstance(error, _UsageError):
            message = getattr(error, "format_message", error.__str__)()
            return f"{message} (nebis --help shows what there is)", UNABLE
        case _:
            # Its own text is left out: it might quote a URL, and with it a password.
            steps = [f"{Path(step.filename).name}:{step.lineno}" for step in traceback.extract_tb(error.__traceback__)]
            return f"nebis itself failed ({type(error).__name__} at {', '.join(steps[-3:])}); please report it", UNABLE


def _unanswered(error: StoreUnavailable | StoreFailure) -> str:
    if isinstance(error, IndefiniteFailure):
        return f"it is not known whether this was done ({error.detail}); run the command again, which is safe"
    return error.detail
