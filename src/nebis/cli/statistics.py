"""`nebis stats`: how many records stand where, what was counted, and whether anything is stuck."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Final

import typer
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from nebis.cli.output import is_watched, say, say_json, show
from nebis.cli.phrases import STATE_STYLES, STATE_WORDS, span, span_us, visible
from nebis.cli.store import JsonOption, SchemaOption, StoreOption, locate, ready
from nebis.core.record import State
from nebis.ports.outbox import Depth, HasOutbox
from nebis.ports.store import Counts, Tally

_COUNTED: Final = {
    "replays": "retries that got the stored answer",
    "in_flight": "retries told to come back",
    "key_reuses": "keys sent again with another command",
    "expired_retries": "retries that came after the answer was dropped",
    "too_fast": "fresh keys above a limit or a quota",
    "takeovers": "attempts that went on for one that was gone",
    "lost_leases": "attempts that found that another one had taken over",
    "in_doubt": "retries told that nobody knows",
    "doubts": "records that went in doubt",
    "parked": "messages that were parked",
    "ignored": "messages whose offset was applied already",
    "gaps": "gaps between the offsets of messages",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """What a store holds and has seen, at one instant."""

    counts: Counts
    tallies: Mapping[Tally, int]
    stuck_after_us: int
    depth: Depth | None = None
    """Absent where the store has no outbox."""

    @property
    def stuck(self) -> list[State]:
        """Return the states whose oldest record has been in them for too long."""
        ages = {
            State.IN_PROGRESS: self.counts.oldest_in_progress_us,
            State.IN_DOUBT: self.counts.oldest_in_doubt_us,
        }
        return [state for state, age in ages.items() if age is not None and age > self.stuck_after_us]

    @property
    def oldest_message_us(self) -> int | None:
        """Return for how long the oldest message waits that could have been published."""
        if self.depth is None or self.depth.oldest_pending_us is None:
            return None
        return self.depth.now - self.depth.oldest_pending_us

    @property
    def is_outbox_stuck(self) -> bool:
        """Tell whether a message has waited for too long (F114)."""
        return (self.oldest_message_us or 0) > self.stuck_after_us

    @property
    def is_stuck(self) -> bool:
        """Tell whether anything is."""
        return bool(self.stuck) or self.is_outbox_stuck


def stats(
    *,
    stuck_after: Annotated[
        str, typer.Option("--stuck-after", metavar="SPAN", help="What counts as stuck: 90s, 5m, 1h, 2d.")
    ] = "1h",
    store: StoreOption = None,
    schema: SchemaOption = None,
    json: JsonOption = False,
) -> None:
    """Count records, messages and events. Exit status 1 if anything is unsettled or unpublished for over an hour."""
    stuck_after_us = span_us(stuck_after)
    with ready(locate(store, schema)) as (records, sessions):
        statistics = Statistics(
            counts=sessions.run(records.count()),
            tallies=sessions.run(records.tallies()),
            stuck_after_us=stuck_after_us,
            depth=sessions.run(records.outbox.depth()) if isinstance(records, HasOutbox) else None,
        )
    if json:
        say_json(as_json(statistics))
    elif is_watched():
        show(painted(statistics))
    else:
        for line in lines(statistics):
            say(line)
    if statistics.is_stuck:
        raise typer.Exit(1)


def lines(statistics: Statistics) -> list[str]:
    """Return everything as plain text."""
    told: list[str] = []
    for title, rows in _sections(statistics):
        widths = [max(len(row[place]) for row in rows) for place in range(2)]
        told += ["", title]
        told += [f"  {row[0]:<{widths[0]}}  {row[1]:>{widths[1]}}  {row[2]}".rstrip() for row in rows]
    told += ["", *(f"stuck: {line}" for line in _complaints(statistics))]
    return told[1:] if statistics.is_stuck else told[1:-1]


def painted(statistics: Statistics) -> Group:
    """Return everything for a terminal."""
    parts: list[RenderableType] = []
    styles = {STATE_WORDS[state]: style for state, style in STATE_STYLES.items()}
    for title, rows in _sections(statistics):
        grid = Table.grid(padding=(0, 2))
        grid.add_column(no_wrap=True)
        grid.add_column(justify="right", no_wrap=True)
        grid.add_column(overflow="fold")
        for name, number, more in rows:
            grid.add_row(Text(name, style=styles.get(name, "")), Text(number), Text(more, style="dim"))
        parts += [Text(title, style="bold"), Padding(grid, (0, 0, 0, 2)), Text()]
    if statistics.is_stuck:
        parts += [Text(f"stuck: {line}", style="bold red") for line in _complaints(statistics)]
    else:
        parts.append(Text("nothing is stuck", style="bold green"))
    return Group(*parts)


def as_json(statistics: Statistics) -> dict[str, object]:
    """Return everything for programs; the names of counters are stable."""
    counts = statistics.counts
    by_operation: dict[str, dict[str, int]] = {name: {} for name in _COUNTED}
    for tally, number in statistics.tallies.items():
        by_operation.setdefault(tally.name, {})[tally.operation] = number
    return {
        "records": {state.value: number for state, number in counts.by_state.items()},
        "lapsed": counts.lapsed,
        "oldest_in_progress_seconds": _seconds(counts.oldest_in_progress_us),
        "oldest_in_doubt_seconds": _seconds(counts.oldest_in_doubt_us),
        "counters": {
            name: {"total": sum(numbers.values()), "by_operation": numbers} for name, numbers in by_operation.items()
        },
        "outbox": None if statistics.depth is None else _outbox_json(statistics, statistics.depth),
        "stuck": [*(state.value for state in statistics.stuck), *(["outbox"] if statistics.is_outbox_stuck else [])],
    }


def _sections(statistics: Statistics) -> Iterator[tuple[str, list[tuple[str, str, str]]]]:
    counts = statistics.counts
    more = {
        State.IN_PROGRESS: _in_progress(counts),
        State.IN_DOUBT: _oldest(counts.oldest_in_doubt_us),
    }
    yield "records", [(STATE_WORDS[state], f"{counts.by_state[state]}", more.get(state, "")) for state in State]
    if statistics.depth is not None:
        yield (
            "outbox",
            [
                ("pending", f"{statistics.depth.pending}", _oldest(statistics.oldest_message_us)),
                ("parked", f"{statistics.depth.parked}", "nebis outbox list" if statistics.depth.parked else ""),
            ],
        )
    totals: Counter[str] = Counter()
    for tally, number in statistics.tallies.items():
        totals[tally.name] += number
    yield "counted since the store began", [(name, f"{totals[name]}", said) for name, said in _COUNTED.items()]
    rows = [
        (visible(tally.operation), f"{number}", tally.name)
        for tally, number in sorted(statistics.tallies.items(), key=lambda item: (item[0].operation, item[0].name))
        if tally.name in _COUNTED
    ]
    if rows:
        yield "by operation", rows


def _in_progress(counts: Counts) -> str:
    oldest = _oldest(counts.oldest_in_progress_us)
    return f"{oldest}, {counts.lapsed} without an owner" if counts.lapsed else oldest


def _oldest(age_us: int | None) -> str:
    return "" if age_us is None else f"the oldest for {span(age_us)}"


def _complaints(statistics: Statistics) -> Iterator[str]:
    for state in statistics.stuck:
        is_doubt = state is State.IN_DOUBT
        age_us = statistics.counts.oldest_in_doubt_us if is_doubt else statistics.counts.oldest_in_progress_us
        word = state.value.replace("_", "-")
        yield f"{STATE_WORDS[state]} for {span(age_us or 0)}; look at it: nebis list --state {word}"

    if statistics.is_outbox_stuck:
        yield f"a message waits for {span(statistics.oldest_message_us or 0)}; is a relay running? nebis outbox list"


def _outbox_json(statistics: Statistics, depth: Depth) -> dict[str, object]:
    oldest = _seconds(statistics.oldest_message_us)
    return {"pending": depth.pending, "parked": depth.parked, "oldest_pending_seconds": oldest}


def _seconds(us: int | None) -> float | None:
    return None if us is None else us / 1_000_000
