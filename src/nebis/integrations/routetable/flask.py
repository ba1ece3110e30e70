"""The routes of Flask applications."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from flask import Flask

from nebis.integrations.report import Listed, mark_of
from nebis.integrations.routetable.application import Table, layers, name_of, rules_of

_VARIABLE = re.compile(r"<(?:[^<>:]*:)?(\w+)>")


def read(app: Flask, around: Sequence[object], table: Table) -> None:
    """Read all routes of an application."""
    # Middleware replaces the entry of the application, which stays the outermost object itself.
    for layer in layers(app.wsgi_app):
        if not any(layer is known for known in around):
            table.rules.extend(rules_of(layer))
    for rule in app.url_map.iter_rules():
        view = app.view_functions.get(rule.endpoint)
        path = _VARIABLE.sub(r"{\1}", rule.rule)
        for method, function in _methods(view, rule.methods or set()):
            mark = mark_of(function) or mark_of(view)
            table.routes.append(Listed(method=method, path=path, endpoint=name_of(function), mark=mark))


def _methods(view: Any, methods: set[str]) -> Iterator[tuple[str, Any]]:
    kind = getattr(view, "view_class", None)
    for method in sorted(methods):
        yield method, getattr(kind, method.lower(), view)
