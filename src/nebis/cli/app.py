"""The command tree; each command lives in a module of its own and is added here."""

from importlib import metadata

import typer

app = typer.Typer(name="nebis", no_args_is_help=True, add_completion=False)


@app.callback()
def nebis() -> None:
    """Operate Nebis: idempotent operations and their records."""


@app.command()
def version() -> None:
    """Print the installed version."""
    typer.echo(f"nebis {metadata.version('nebis')}")
