"""`nebis list`: which records there are, one line each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Final

import typer
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from nebis.cli.output import complain, is_watched, say, say_json, show, width
from nebis.cli.phrases import (
    STATE_STYLES,
    STATE_WORDS,
    key_hint,
    lease,
    resource_name,
    span,
    span_us,
    state_of,
    summary,
    visible,
)
from nebis.cli.store import JsonOption, SchemaOption, StoreOption, locate, ready
from nebis.core.record import Record
from nebis.ports.store import Scan

_COLUMNS: Final = ("id", "state", "operation", "tenant", "key", "age", "lease", "attempts", "doubt", "resource")
_OPTIONAL: Final = frozenset({"lease", "doubt", "resource"})
"""Left out where no line has one: ten columns fit few terminals."""


def list_(
    *,
    tenant: Annotated[str | None, typer.Option("--tenant", metavar="NAME", help="Only of this tenant.")] = None,
    operation: Annotated[str | None, typer.Option("--operation", metavar="NAME", help="Only of this one.")] = None,
    state: Annotated[
        list[str] | None,
        typer.Option("--state", metavar="STATE", help="in-progress, available, in-doubt, completed or expired."),
    ] = None,
    older_than: Annotated[
        str | None, typer.Option("--older-than", metavar="SPAN", help="Begun at least this long ago: 90s, 5m, 1h, 2d.")
    ] = None,
    resource: Annotated[
        str | None,
        typer.Option("--resource", metavar="TYPE/ID", help="What the operation works on; ID may be left out."),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="At most so many.")] = 50,
    store: StoreOption = None,
    schema: SchemaOption = None,
    json: JsonOption = False,
) -> None:
    """List records, those whose lease ends first at the top. Keys are never shown in full."""
    resource_type, _, resource_id = (resource or "").partition("/")
    query = Scan(
        states=tuple(state_of(each) for each in state or ()),
        tenant=tenant,
        operation=operation,
        resource_type=resource_type or None,
        resource_id=resource_id or None,
        limit=limit + 1,
    )
    span_of_age = None if older_than is None else span_us(older_than)
    with ready(locate(store, schema)) as (records_store, sessions):
        now = sessions.run(records_store.clock())
        if span_of_age is not None:
            query = replace(query, created_before=now - span_of_age)
        found = sessions.run(records_store.scan(query))
    page = found[:limit]
    if json:
        say_json({"records": [summary(record, now) for record in page], "has_more": len(found) > limit})
    elif not page:
        complain("no record is like that")
    elif is_watched():
        show(painted(page, now, width()))
    else:
        for line in lines(page, now):
            say(line)
    if len(found) > limit and not json:
        complain(f"there are more than {limit}; narrow the search or raise --limit")


def lines(records: Sequence[Record], now: int) -> list[str]:
    """Return the table as plain text, with as much room as each column needs."""
    names, rows = _table(records, now)
    widths = [max(len(row[place]) for row in (names, *rows)) for place in range(len(names))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in (names, *rows)
    ]


def painted(records: Sequence[Record], now: int, width: int) -> RenderableType:
    """Return the table for a terminal, or two lines for each record where it does not fit."""
    names, rows = _table(records, now)
    if max(len(line) for line in lines(records, now)) > width:
        return Group(*(_in_two_lines(record, now) for record in records))
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for name in names:
        table.add_column(name, no_wrap=True)
    for record, row in zip(records, rows, strict=True):
        styles = _styles(record, now)
        table.add_row(*(Text(cell, style=styles.get(name, "")) for name, cell in zip(names, row, strict=True)))
    return table


def _in_two_lines(record: Record, now: int) -> Group:
    cells, styles = _cells(record, now), _styles(record, now)
    first = Text("  ").join(Text(cells[name], style=styles.get(name, "")) for name in ("id", "state", "lease"))
    said = [cells[name] for name in ("operation", "tenant", "key", "doubt", "resource") if cells[name]]
    attempts = "1 attempt" if record.attempts == 1 else f"{record.attempts} attempts"
    second = Text(", ".join([*said, f"{cells['age']} old", attempts]), style="dim")
    return Group(first, Padding(second, (0, 0, 0, 2)))


def _styles(record: Record, now: int) -> dict[str, str]:
    return {"state": STATE_STYLES[record.state], "lease": "yellow" if record.has_lapsed(now) else ""}


def _table(records: Sequence[Record], now: int) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    rows = [_cells(record, now) for record in records]
    names = tuple(name for name in _COLUMNS if name not in _OPTIONAL or any(row[name] for row in rows))
    return names, [tuple(row[name] for name in names) for row in rows]


def _cells(record: Record, now: int) -> dict[str, str]:
    return {
        "id": str(record.record_id),
        "state": STATE_WORDS[record.state],
        "operation": visible(record.operation),
        "tenant": visible(record.tenant),
        "key": key_hint(record.key),
        "age": span(now - record.created_at),
        "lease": lease(record, now),
        "attempts": str(record.attempts),
        "doubt": visible(record.doubt_reason or ""),
        "resource": resource_name(record),
    }
