"""What a run found, as one page that needs nothing else: no script, no font, no network."""

from __future__ import annotations

from html import escape
from string import Template
from typing import Final

from nebis.testing.torture.check import Result, Verdict
from nebis.testing.torture.runner import Run

_PAGE: Final = Template("""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>$title</title>
<style>
:root { color-scheme: light dark; --ink: #1c2024; --dim: #5d666f; --line: #dfe3e7; --paper: #ffffff; --code: #f3f5f7;
  --passed: #17703a; --failed: #b3261e; --skipped: #6b5900; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ec; --dim: #9aa4ae; --line: #343a41; --paper: #14171a;
  --code: #1f2429; --passed: #62c98a; --failed: #ff8a80; --skipped: #d9c25a; } }
body { margin: 0 auto; max-width: 68rem; padding: 2rem 1rem; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; margin: 0; }
h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
p { margin: .25rem 0; }
.dim { color: var(--dim); }
.passed { color: var(--passed); } .failed { color: var(--failed); } .skipped { color: var(--skipped); }
.verdict { font-weight: 600; white-space: nowrap; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: .4rem .75rem .4rem 0; border-top: 1px solid var(--line); }
th { font-weight: 600; border-top: 0; }
code, pre { font: 13px/1.45 ui-monospace, monospace; }
pre { background: var(--code); padding: .6rem .75rem; margin: .4rem 0 0; overflow-x: auto; white-space: pre-wrap;
  overflow-wrap: anywhere; border-radius: 4px; }
</style>
</head>
<body>
<main>
<h1>$title</h1>
<p class="$verdict verdict">$summary</p>
<p class="dim">$when</p>
$groups
</main>
</body>
</html>
""")


def as_page(run: Run) -> str:
    """Return the run as HTML; whatever came from outside is escaped."""
    groups = dict.fromkeys(result.check.group for result in run.results)
    return _PAGE.substitute(
        title=escape(f"{run.operation} at {run.target}"),
        verdict="passed" if run.has_passed else "failed",
        summary=escape(summary(run)),
        when=escape(f"Begun {run.started_at}, took {run.seconds:.1f} s."),
        groups="\n".join(
            _group(group.value, [result for result in run.results if result.check.group is group]) for group in groups
        ),
    )


def summary(run: Run) -> str:
    """Say it in one line."""
    counted = {verdict: len(run.having(verdict)) for verdict in Verdict}
    passed, failed, skipped = counted[Verdict.PASSED], counted[Verdict.FAILED], counted[Verdict.SKIPPED]
    return f"{passed} passed, {failed} failed, {skipped} not applicable"


def _group(name: str, results: list[Result]) -> str:
    rows = "\n".join(_row(result) for result in results)
    head = '<tr><th scope="col">Verdict</th><th scope="col">Check</th><th scope="col">Faults</th></tr>'
    return (
        f"<h2>{escape(name.capitalize())}</h2>\n"
        f'<div class="scroll"><table>\n<thead>{head}</thead>\n<tbody>\n{rows}\n</tbody>\n</table></div>'
    )


def _row(result: Result) -> str:
    check, verdict = result.check, result.verdict.value
    told = f"<p>{escape(check.title)} <code class='dim'>{escape(check.id)}</code></p>"
    if result.verdict is Verdict.FAILED:
        told += f"<p class='failed'>{escape(result.detail)}</p><p class='dim'>{escape(check.proves)}</p>"
        told += f"<pre>{escape(result.reproduce)}</pre>" if result.reproduce else ""
    elif result.detail:
        told += f"<p class='dim'>{escape(result.detail)}</p>"
    label = f"{verdict}, {check.severity.value}" if result.verdict is Verdict.FAILED else verdict
    faults = escape(" ".join(check.faults))
    return f"<tr><td class='{verdict} verdict'>{escape(label)}</td><td>{told}</td><td><code>{faults}</code></td></tr>"
