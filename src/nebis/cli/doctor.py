"""`nebis doctor`: look at a store and say whether the promise holds on it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer
from rich.console import Group
from rich.table import Table
from rich.text import Text

from nebis.cli.findings import Finding, Status, examined
from nebis.cli.output import is_watched, say, say_json, show
from nebis.cli.store import JsonOption, SchemaOption, StoreOption, locate

_STYLES = {Status.OK: "green", Status.NOTE: "cyan", Status.WARN: "yellow", Status.FAIL: "bold red"}


def doctor(
    *,
    store: StoreOption = None,
    schema: SchemaOption = None,
    strict: Annotated[bool, typer.Option("--strict", help="Let a warning fail too.")] = False,
    json: JsonOption = False,
) -> None:
    """Check durability, standbys, schema, secret and clock; exit status 1 if the promise does not hold.

    Nothing is changed. Each line says how one thing stands (ok, note, warn, fail) and what to do about it.
    """
    place = locate(store, schema)
    findings = list(examined(place))
    grave = {Status.FAIL, Status.WARN} if strict else {Status.FAIL}
    is_healthy = not any(finding.status in grave for finding in findings)
    if json:
        lines = [{"status": it.status.value, "check": it.check, "text": it.text} for it in findings]
        say_json({"store": place.shown, "healthy": is_healthy, "findings": lines})
    elif is_watched():
        _paint(place.shown, findings, is_healthy=is_healthy)
    else:
        for finding in findings:
            say(f"{finding.status:<4}  {finding.check:<10}  {finding.text}")
    if not is_healthy:
        raise typer.Exit(1)


def _paint(shown: str, findings: Sequence[Finding], *, is_healthy: bool) -> None:
    lines = Table.grid(padding=(0, 2))
    for column in ("status", "check", "text"):
        lines.add_column(column, no_wrap=column != "text")
    for finding in findings:
        style = _STYLES[finding.status]
        lines.add_row(Text(finding.status, style=style), Text(finding.check, style="bold"), Text(finding.text))
    verdict = Text(_verdict(findings), style="bold green" if is_healthy else "bold red")
    show(Group(Text(shown, style="dim"), Text(), lines, Text(), verdict))


def _verdict(findings: Sequence[Finding]) -> str:
    failures = sum(finding.status is Status.FAIL for finding in findings)
    warnings = sum(finding.status is Status.WARN for finding in findings)
    if not failures and not warnings:
        return "healthy"
    return " and ".join(
        f"{count} {noun}{'s' if count > 1 else ''}"
        for count, noun in ((failures, "failure"), (warnings, "warning"))
        if count
    )
