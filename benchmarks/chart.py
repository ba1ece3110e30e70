"""The results as a picture: bars for cycles in process and for requests over HTTP, at 64 callers."""

from collections.abc import Iterator
from html import escape
from typing import Any

from benchmarks.table import wrong_answers

CALLERS = 64
_WIDTH, _LABEL, _BAR, _STEP, _TOP = 810, 300, 360, 22, 58
# The picture is shown on light and on dark pages, so it brings both sets of colours and no background.
_STYLE = """
text { font: 13px system-ui, sans-serif; fill: #24292f; }
.title { font-weight: 600; font-size: 15px; } .quiet { fill: #57606a; font-size: 12px; }
.ours { fill: #0969da; } .naive { fill: #8c959f; } .peer { fill: #d0a36a; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3; } .quiet { fill: #9198a1; }
  .ours { fill: #4493f8; } .naive { fill: #656c76; } .peer { fill: #9e7b4f; }
}
"""


def svg(result: dict[str, Any]) -> str:
    """Draw both charts, the faster system above."""
    cycles = _rows(result, "cycle", "ops_per_second")
    shares = _rows(result, "http_new", "share_of_bare")
    wrong = wrong_answers(result)
    name = f"Throughput of Nebis, naive tables and other libraries at {CALLERS} callers"
    height = _TOP * 2 + _STEP * (len(cycles) + len(shares)) + 24
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{name}">',
        f"<style>{_STYLE}</style>",
        *_chart(cycles, wrong, 0, f"Durable cycles per second, {CALLERS} callers in one process", "{:,.0f}"),
        *_chart(
            shares,
            wrong,
            _TOP + _STEP * len(cycles) + 12,
            f"Throughput of an endpoint with new keys, {CALLERS} callers, share of the bare endpoint",
            "{:.2f}",
        ),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _rows(result: dict[str, Any], case: str, figure: str) -> list[tuple[str, str, float]]:
    found = [
        (row["system"], row["store"], float(row[figure]))
        for row in result["rows"]
        if row["case"] == case and row["concurrency"] == CALLERS and row[figure] is not None and row["store"] != "none"
    ]
    return sorted(found, key=lambda row: -row[2])


def _chart(
    rows: list[tuple[str, str, float]], wrong: dict[tuple[str, str], str], top: int, title: str, style: str
) -> Iterator[str]:
    largest = max((value for _, _, value in rows), default=1.0)
    yield f'<text class="title" x="0" y="{top + 20}">{escape(title)}</text>'
    yield (
        f'<text class="quiet" x="0" y="{top + 40}">Medians of interleaved rounds; Redis syncs once a second, '
        "everything else at every commit.</text>"
    )
    for position, (system, store, value) in enumerate(rows):
        y = top + _TOP + position * _STEP
        kind = "ours" if system.startswith("nebis") else "naive" if system.startswith("naive") else "peer"
        figure = style.format(value) + (f" ({wrong[system, store]})" if (system, store) in wrong else "")
        width = max(1.0, _BAR * value / largest)
        yield f'<text x="{_LABEL - 8}" y="{y + 13}" text-anchor="end">{escape(f"{system}, {store}")}</text>'
        yield f'<rect class="{kind}" x="{_LABEL}" y="{y + 2}" width="{width:.1f}" height="{_STEP - 7}" rx="2"/>'
        yield f'<text class="quiet" x="{_LABEL + width + 6:.1f}" y="{y + 13}">{escape(figure)}</text>'
