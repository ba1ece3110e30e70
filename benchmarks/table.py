"""The results as Markdown."""

from collections.abc import Iterable, Iterator
from typing import Any

_CASES = {
    "cycle": "Cycles: claim a new key, do nothing, complete with 300 bytes",
    "single_tx": "Cycles in one transaction",
    "replay": "Replays: the same key again",
    "http_new": "Over HTTP, new keys",
    "http_replay": "Over HTTP, replays",
}
WRONG = ("ran ", "cannot replay", "replayed something else")
"""How the findings of a contender's check begin."""
_REACHED: dict[bool | None, str] = {None: "not measured", True: "reached", False: "**not reached**"}


def wrong_answers(result: dict[str, Any]) -> dict[tuple[str, str], str]:
    """Return, by system and store, in a few words what its check found wrong, for a place beside its figures."""
    found: dict[tuple[str, str], str] = {}
    for name, notes in result["notes"].items():
        system, _, store = name.partition("@")
        told = [note.partition(" (")[0] for note in notes if note.startswith(WRONG)]
        if told:
            found[system, store] = "; ".join(told)
    return found


def section(result: dict[str, Any]) -> str:
    """Render what the documentation shows: how it was measured, and what was reached."""
    return "\n".join([_how(result), *_floors(result["floors"])]).replace("\n## Floors and goals\n", "")


def placed(page: str, text: str) -> str:
    """Return a page of the documentation with its results replaced."""
    before, begin, rest = page.partition("<!-- results -->\n")
    _, end, after = rest.partition("<!-- end of results -->")
    if not end:
        raise ValueError("the page has lost the two comments between which results are written")
    return f"{before}{begin}{text}\n{end}{after}"


def markdown(result: dict[str, Any]) -> str:
    """Render a result for people."""
    return "\n".join(_lines(result)) + "\n"


def _lines(result: dict[str, Any]) -> Iterator[str]:
    is_full = result["machine"]["sizes"]["name"] == "full"
    yield from ("# Results of the last full run" if is_full else "# Results of a quick run", "", _how(result))
    yield from _floors(result["floors"])
    for case, title in _CASES.items():
        rows = [row for row in result["rows"] if row["case"] == case and row["ops_per_second"] is not None]
        if rows:
            wrong = wrong_answers(result)
            yield from ("", f"## {title}", "")
            yield from _http(rows, wrong) if case.startswith("http") else _throughput(rows, wrong)
        if case == "cycle":
            yield from _absent(result)
    yield from _others(result)
    if result["notes"]:
        yield from ("", "## Notes", "")
        yield from (f"- **{name}**: {'; '.join(notes)}" for name, notes in sorted(result["notes"].items()))


def _how(result: dict[str, Any]) -> str:
    machine, sizes = result["machine"], result["machine"]["sizes"]
    reduced = f" Smaller than in a whole run: {', '.join(sizes['reduced'])}." if sizes["reduced"] else ""
    compiled = " with the compiled part of Nebis" if machine.get("compiled") else ""
    stolen = f"{machine['stolen']:.0%} of their time taken by other guests of the host, " if "stolen" in machine else ""
    return (
        f"Commit {result['commit']}; {machine['cores']} cores, load {machine['load_before'][0]} before the run, "
        f"{stolen}Python {machine['python']}{compiled}, SQLite {machine['sqlite']}. "
        f"{sizes['rounds']} interleaved rounds of {sizes['seconds']} s each: medians, "
        "with the smallest and largest round in parentheses. "
        f"Ratios are taken round by round; absolute figures hold for that machine only.{reduced}"
    )


def _floors(floors: list[dict[str, Any]]) -> Iterator[str]:
    yield from ("", "## Floors and goals", "", "| case | measured | floor | | goal | |", "|---|---|---|---|---|---|")
    for line in floors:
        sign = "≤" if line["is_upper_bound"] else "≥"
        yield (
            f"| {line['what']} | {_ranged(line['measured'], (line['low'], line['high']))} "
            f"| {sign} {line['floor']:g} | {_REACHED[line['floor_reached']]} "
            f"| {sign} {line['goal']:g} | {_REACHED[line['goal_reached']]} |"
        )


def _absent(result: dict[str, Any]) -> Iterator[str]:
    for row in result["rows"]:
        if row["case"] == "cycle" and row["ops_per_second"] is None:
            reason = "; ".join(result["notes"].get(f"{row['system']}@{row['store']}", ()))
            yield f"| {row['system']} | {row['store']} | - | {reason} | - | - | - |"


def _throughput(rows: list[dict[str, Any]], wrong: dict[tuple[str, str], str]) -> Iterator[str]:
    yield "| system | store | callers | per second | p50 ms | p99 ms | x naive |"
    yield "|---|---|---|---|---|---|---|"
    for row in _ordered(rows):
        yield f"{_common(row, wrong)} | {_ranged(row['ratio_to_naive'], row['ratio_range'])} |"


def _http(rows: list[dict[str, Any]], wrong: dict[tuple[str, str], str]) -> Iterator[str]:
    yield "| system | store | callers | per second | p50 ms | p99 ms | share of bare | bare against bare |"
    yield "|---|---|---|---|---|---|---|---|"
    for row in _ordered(rows):
        low, high = row["bare_range"] or (None, None)
        yield f"{_common(row, wrong)} | {_number(row['share_of_bare'])} | {_number(low)}-{_number(high)} |"


def _others(result: dict[str, Any]) -> Iterator[str]:
    rows = [row for row in result["rows"] if row["case"] not in _CASES and row["p50_ms"] is not None]
    if rows:
        yield from ("", "## One caller at a time, and upkeep", "")
        yield from ("| case | store | callers | p50 ms | p99 ms |", "|---|---|---|---|---|")
        for row in rows:
            figures = f"{row['concurrency'] or '-'} | {_number(row['p50_ms'])} | {_number(row['p99_ms'])}"
            yield f"| {row['case']} | {row['store']} | {figures} |"
    if result["figures"]:
        yield from ("", "| figure | value |", "|---|---|")
        yield from (f"| {name.replace('_', ' ')} | {_number(value)} |" for name, value in result["figures"].items())


def _ordered(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: (row["concurrency"], -row["ops_per_second"]))


def _common(row: dict[str, Any], wrong: dict[tuple[str, str], str]) -> str:
    mark = wrong.get((row["system"], row["store"]))
    system = f"{row['system']} (**{mark}**)" if mark else row["system"]
    return (
        f"| {system} | {row['store']} | {row['concurrency']} | {row['ops_per_second']:,.0f} "
        f"| {_number(row['p50_ms'])} | {_number(row['p99_ms'])}"
    )


def _ranged(value: float | None, bounds: Iterable[float | None] | None) -> str:
    low, high = bounds or (None, None)
    return _number(value) if low is None else f"{_number(value)} ({_number(low)}-{_number(high)})"


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
