"""The page on which an API states its idempotency contract, as the IETF draft demands: for people and for programs.

Made from the table of routes as it is, so that it never says anything else than what is done. The anchors of its list
of problems are their codes: `Wire(problem_base="https://api.example/idempotency#")` makes each `type` lead there.
"""

from __future__ import annotations

import json
from html import escape
from typing import Any, Final

from nebis.http.exchange import Exchange
from nebis.http.problem import ANSWERS
from nebis.integrations.protection import Admission
from nebis.integrations.report import Report
from nebis.integrations.routetable import report_of
from nebis.integrations.terms import IN_FLIGHT, MEANINGS, terms

_STYLE: Final = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}"
    "table{border-collapse:collapse}td,th{padding:.3rem .8rem .3rem 0;text-align:left;vertical-align:top}"
)
_KEY: Final = (
    "A key has 1 to 255 visible ASCII characters and no comma; a random UUID is a good one. It is new for each request "
    "and the same for each retry of it. Keys of one account never meet those of another."
)
_SENTENCE: Final = f"409 in flight means: {IN_FLIGHT}."


class ContractPage:
    """The contract of one application, read from its routes when it is first asked for."""

    def __init__(self) -> None:
        self._made: tuple[object, Report] | None = None

    def answer(self, app: object, accept: str | None) -> Exchange:
        """Render it as HTML for people, as JSON for whoever prefers that."""
        if self._made is None or self._made[0] is not app:
            self._made = (app, report_of(app))
        document = contract(self._made[1])
        wants_json = "json" in (accept or "") and "html" not in (accept or "")
        body = json.dumps(document, indent=2).encode() if wants_json else page(document).encode()
        kind = "application/json" if wants_json else "text/html; charset=utf-8"
        headers = (("content-type", kind), ("cache-control", "public, max-age=300"), ("vary", "Accept"))
        return Exchange(status=200, headers=headers, body=body)


def contract(report: Report) -> dict[str, Any]:
    """Return the contract of an application as plain data."""
    operations = []
    for one in report.routes:
        if not isinstance(one.mark, Admission):
            continue
        told = terms(one.mark)
        operations.append(
            {
                "method": one.method,
                "path": one.path,
                "operation": told.name,
                "header": told.header,
                "required": told.is_required,
                "key": told.key,
                "window_seconds": int(one.mark.subject.policy.retention.total_seconds()),
                "window": told.window,
                "afterwards": told.afterwards,
                "matching": told.matching,
                "in_flight": told.in_flight,
                "answers": {str(answer.status): list(answer.codes) for answer in told.answers},
            }
        )
    problems = [
        {"code": error.code, "status": row.status, "title": row.title, "meaning": MEANINGS.get(row.status, row.title)}
        for error, row in sorted(ANSWERS.items(), key=lambda item: (item[1].status, item[0].code))
    ]
    return {"key": _KEY, "in_flight": _SENTENCE, "operations": operations, "problems": problems}


def page(document: dict[str, Any]) -> str:
    """Render a contract for people."""
    operations = "".join(
        f"<section><h3><code>{escape(one['method'])} {escape(one['path'])}</code></h3><p>"
        + "</p><p>".join(_prose(one[name]) for name in ("key", "window", "afterwards", "matching", "in_flight"))
        + f"</p><p>Its own answers: {_statuses(one['answers'])}.</p></section>"
        for one in document["operations"]
    )
    problems = "".join(
        f'<tr id="{escape(one["code"])}"><td>{one["status"]}</td><td><code>{escape(one["code"])}</code></td>'
        f"<td>{escape(one['title'])}</td><td>{_prose(one['meaning'])}</td></tr>"
        for one in document["problems"]
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Idempotency</title>'
        f"<style>{_STYLE}</style></head><body><h1>Idempotency</h1>"
        f"<p>{_prose(document['key'])}</p><p><strong>{_prose(document['in_flight'])}</strong></p>"
        f"<h2>Operations</h2>{operations or '<p>None is protected.</p>'}"
        "<h2>Problems</h2><table><tr><th>status</th><th>code</th><th>title</th><th>what to do</th></tr>"
        f"{problems}</table></body></html>"
    )


def _statuses(answers: dict[str, list[str]]) -> str:
    return ", ".join(
        f"{escape(status)} (" + ", ".join(f'<a href="#{escape(code)}">{escape(code)}</a>' for code in codes) + ")"
        for status, codes in answers.items()
    )


def _prose(text: str) -> str:
    """Escape a sentence, and set what stands in backticks as code."""
    parts = escape(text).split("`")
    return "".join(f"<code>{part}</code>" if place % 2 else part for place, part in enumerate(parts))
