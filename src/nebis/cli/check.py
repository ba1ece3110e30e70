"""`nebis check`: which routes of an application are protected, how, and which are not; for CI."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterator, Sequence
from typing import Annotated, Final

import typer
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from nebis.aio import AsyncNebis
from nebis.cli.output import is_watched, say, say_json, show, width
from nebis.cli.phrases import visible
from nebis.cli.store import JsonOption
from nebis.cli.target import attribute, explained, imported
from nebis.core.record import EffectsMode
from nebis.errors import ConfigError
from nebis.integrations.report import Listed, Promise, Report
from nebis.integrations.routetable import report_of
from nebis.sync import Nebis

_COLUMNS: Final = ("route", "name", "kind", "effects", "key", "kept for", "after a crash", "resumed by")
_USUAL_NAMES: Final = ("app", "application")
_EFFECTS_STYLES: Final = {EffectsMode.LOCAL: "green", EffectsMode.DECLARED: "cyan", EffectsMode.OPAQUE: "yellow"}
_STYLES: Final = {"note": "cyan", "warn": "yellow", "fail": "bold red"}

TargetArgument = Annotated[
    str,
    typer.Argument(
        metavar="MODULE:APP",
        help="The application, package.module:app; a function that makes it; or the settings of a Django project.",
    ),
]
AllowOption = Annotated[
    list[str] | None,
    typer.Option(
        "--allow", metavar="ROUTE", help="A route that needs no key, such as 'POST /login' or 'POST /hooks/*'."
    ),
]


def check(
    target: TargetArgument,
    *,
    allow: AllowOption = None,
    strict: Annotated[bool, typer.Option("--strict", help="Let a warning fail too.")] = False,
    json: JsonOption = False,
) -> None:
    """Report on the routes of an application; exit status 1 if a POST or PATCH route is not protected.

    The application is imported, and neither started nor called. No store is needed.
    """
    report = report_of(application(target)).allowing(allow or ())
    has_passed = not (report.unprotected or report.faults or (strict and report.warnings))
    if json:
        say_json({"application": target, "passed": has_passed, **report.as_json()})
    elif is_watched():
        show(painted(report, width()))
    else:
        for line in lines(report):
            say(line)
    if not has_passed:
        raise typer.Exit(1)


def application(target: str) -> object:
    """Import the application that is named; raise `ConfigError` if there is none."""
    module_name, _, path = target.partition(":")
    if not module_name:
        raise ConfigError([f"name the application as package.module:app, not {visible(target, longest=80)!r}"])
    module = imported(module_name)
    if not path and hasattr(module, "ROOT_URLCONF"):
        return _django(module_name)
    path = path or next((name for name in _USUAL_NAMES if hasattr(module, name)), "")
    if not path:
        raise ConfigError([f"{module_name} has neither an app nor an application; name it: {module_name}:name"])
    found = attribute(module, path)
    if isinstance(found, Nebis | AsyncNebis):
        raise ConfigError([f"{target} is a Nebis; name the web application that it protects"])
    return _made(target, found)


def _django(settings: str) -> object:
    os.environ["DJANGO_SETTINGS_MODULE"] = settings
    try:
        return imported("django.core.wsgi").get_wsgi_application()
    except ConfigError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever a project raises when it is set up.
        raise ConfigError([explained(settings, error)]) from None


def _made(target: str, found: object) -> object:
    """Call a function that makes an application; one that is an application takes something."""
    if not inspect.isfunction(found) or inspect.signature(found).parameters:
        return found
    try:
        return found()
    except Exception as error:  # noqa: BLE001 - whatever an application raises when it is made.
        raise ConfigError([explained(target, error)]) from None


def lines(report: Report) -> list[str]:
    """Return the report as plain text, with as much room as each column needs."""
    rows = [_COLUMNS, *(_cells(one, what) for one, what in report.protected)]
    widths = [max(len(row[place]) for row in rows) for place in range(len(_COLUMNS))]
    table = ["  ".join(cell.ljust(room) for cell, room in zip(row, widths, strict=True)).rstrip() for row in rows]
    remarks = [f"{status}  {text}" for status, text in _remarks(report)]
    return [*(table if len(rows) > 1 else ()), *remarks, verdict(report)]


def painted(report: Report, room: int) -> RenderableType:
    """Return the report for a terminal, with two lines for each route where a table does not fit."""
    is_wide = all(len(line) <= room for line in lines(report)[: len(report.protected) + 1])
    pictures: list[RenderableType] = []
    if report.protected:
        pictures = [_table(report), Text()] if is_wide else [*map(_in_two_lines, report.protected), Text()]
    for status, text in _remarks(report):
        remark = Table.grid(padding=(0, 2))
        remark.add_row(Text(status, style=_STYLES[status]), Text(text))
        pictures.append(remark)
    is_well = not (report.unprotected or report.faults)
    return Group(*pictures, Text(verdict(report), style="bold green" if is_well else "bold red"))


def verdict(report: Report) -> str:
    """Say it in one line."""
    counted = f"{_count(len(report.protected), 'route')} protected, {len(report.unprotected)} not"
    return f"{counted}, {_count(len(report.faults), 'fault')}" if report.faults else counted


def _remarks(report: Report) -> Iterator[tuple[str, str]]:
    for one, reason in report.allowed:
        yield "note", visible(f"{one.shown} is not protected: {reason}")
    for text in report.unseen:
        yield "note", visible(text)
    for text in report.warnings:
        yield "warn", visible(text, longest=400)
    for text in report.faults:
        yield "fail", visible(text, longest=400)
    for one in report.unprotected:
        yield "fail", visible(f"{one.shown} is not protected, so that a retry runs it again ({one.endpoint})")


def _table(report: Report) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for name in _COLUMNS:
        table.add_column(name, no_wrap=True)
    for one, what in report.protected:
        styles = {"effects": _EFFECTS_STYLES[what.effects], "key": "yellow" if what.key == "optional" else ""}
        cells: Sequence[str] = _cells(one, what)
        table.add_row(*(Text(cell, style=styles.get(name, "")) for name, cell in zip(_COLUMNS, cells, strict=True)))
    return table


def _in_two_lines(entry: tuple[Listed, Promise]) -> Group:
    one, what = entry
    cells = dict(zip(_COLUMNS, _cells(one, what), strict=True))
    first = Text("  ").join([Text(cells["route"]), Text(cells["effects"], style=_EFFECTS_STYLES[what.effects])])
    second = (
        f"{cells['kind']} {cells['name']}, key {cells['key']}, kept for {cells['kept for']}; "
        f"after a crash {cells['after a crash']}; resumed by {cells['resumed by']}"
    )
    return Group(first, Padding(Text(second, style="dim"), (0, 0, 0, 2)))


def _cells(one: Listed, what: Promise) -> tuple[str, ...]:
    return (
        visible(one.shown),
        visible(what.name),
        "operation" if what.is_bound else "endpoint",
        what.effects.value,
        visible(what.key),
        what.window,
        what.crash,
        what.resumer,
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
