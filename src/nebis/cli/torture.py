"""`nebis torture`: what an API makes of retries, races, cuts and odd requests, whatever it is written in."""

from __future__ import annotations

import asyncio
import json as json_
import sys
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Group as Pile
from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from nebis.cli.output import is_watched, say, say_json, show
from nebis.cli.phrases import visible
from nebis.errors import ConfigError
from nebis.testing.torture import Check, Result, Run, Verdict, chosen, read_operation, run
from nebis.testing.torture.page import as_page, summary
from nebis.testing.torture.reports import as_json, as_junit

_WORDS: Final = {Verdict.PASSED: "ok", Verdict.FAILED: "FAIL", Verdict.SKIPPED: "n/a"}
_STYLES: Final = {Verdict.PASSED: "green", Verdict.FAILED: "bold red", Verdict.SKIPPED: "yellow"}

_STDOUT: Final = Path("-")

UrlArgument = Annotated[
    str | None, typer.Argument(metavar="URL", help="Where the API is, such as http://127.0.0.1:8000.")
]
OperationOption = Annotated[
    Path | None, typer.Option("--op", metavar="FILE.toml", help="What to call, and how to count what it did.")
]
OnlyOption = Annotated[list[str] | None, typer.Option("--only", metavar="CHECK", help="Run this check; repeatable.")]
GroupOption = Annotated[list[str] | None, typer.Option("--group", metavar="GROUP", help="Run this group; repeatable.")]


def torture(
    url: UrlArgument = None,
    *,
    op: OperationOption = None,
    only: OnlyOption = None,
    group: GroupOption = None,
    list_: Annotated[bool, typer.Option("--list", help="Show the checks and run none.")] = False,
    json: Annotated[Path | None, typer.Option(metavar="FILE", help="Write JSON; - is stdout.")] = None,
    junit: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a JUnit report.")] = None,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a page that needs nothing else.")] = None,
) -> None:
    """Retry, race, cut and confuse one operation of an API; exit status 1 if a promise does not hold.

    The operation is called some hundred times for real: use an API that nobody pays for.
    """
    checks = chosen(only or (), group or ())
    if list_:
        _list(checks)
        return
    if url is None or op is None:
        raise ConfigError(["name the API and the operation: nebis torture URL --op FILE.toml"])
    done = asyncio.run(run(read_operation(op), url, checks, watch=_Progress(len(checks))))
    if json is not None and json != _STDOUT:
        _write(json, f"{json_.dumps(as_json(done), indent=2)}\n")
    if junit is not None:
        _write(junit, as_junit(done))
    if html is not None:
        _write(html, as_page(done))
    if json == _STDOUT:
        say_json(as_json(done))
    elif is_watched():
        show(painted(done), is_whole=True)
    else:
        for line in lines(done):
            say(line)
    if not done.has_passed:
        raise typer.Exit(1)


def lines(done: Run) -> list[str]:
    """Return the verdicts as plain text: a line for each check, and for a failure what was seen and how to see it."""
    room = max(len(result.check.id) for result in done.results)
    shown = []
    for result in done.results:
        word = _WORDS[result.verdict].ljust(4)
        shown.append(f"{word}  {result.check.id.ljust(room)}  {result.check.title}")
        if result.detail:
            shown.append(f"      {_seen(result)}")
        if result.reproduce:
            shown.append(f"      {visible(result.reproduce, longest=20_000)}")
    return [*shown, summary(done)]


def painted(done: Run) -> RenderableType:
    """Return the verdicts for a terminal."""
    pictures: list[RenderableType] = []
    for group in dict.fromkeys(result.check.group for result in done.results):
        table = Table.grid(padding=(0, 2))
        for result in done.results:
            if result.check.group is group:
                word = Text(_WORDS[result.verdict], style=_STYLES[result.verdict])
                table.add_row(word, Text(result.check.id.partition(".")[2]), Text(result.check.title))
        pictures += [Text(group.value, style="bold"), Padding(table, (0, 0, 1, 2))]
    for result in done.having(Verdict.SKIPPED):
        pictures.append(Text(f"{result.check.id} does not apply: {_seen(result)}", style="yellow"))
    for result in done.having(Verdict.FAILED):
        pictures += [
            Text(),
            Text(f"{result.check.id} ({result.check.severity.value})", style="bold red"),
            Text(_seen(result)),
            Text(visible(result.reproduce, longest=20_000), style="dim"),
        ]
    style = "bold green" if done.has_passed else "bold red"
    return Pile(*pictures, Text(), Text(summary(done), style=style))


def _seen(result: Result) -> str:
    return visible(result.detail, longest=400)


class _Progress:
    """One line that is written over where a person watches, and a line for each check in a log."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._is_watched = sys.stderr.isatty()

    def __call__(self, number: int, check: Check, result: Result | None) -> None:
        place = f"[{number}/{self._count}] {check.id}"
        if self._is_watched:
            is_last = result is not None and number == self._count
            print("\r\x1b[K" + ("" if is_last else place), end="", file=sys.stderr, flush=True)
        elif result is not None:
            print(f"{place} {result.verdict.value} in {result.seconds:.2f} s", file=sys.stderr, flush=True)


def _list(checks: list[Check]) -> None:
    room = max(len(check.id) for check in checks)
    for check in checks:
        say(f"{check.id.ljust(room)}  {check.severity.value.ljust(8)}  {check.title} ({' '.join(check.faults)})")


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError([f"{path} cannot be written ({error.strerror}); name another file"]) from None
