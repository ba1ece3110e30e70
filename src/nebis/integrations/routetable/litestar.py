"""The routes of Litestar applications."""

from __future__ import annotations

import re
from collections.abc import Sequence

from litestar import Litestar
from litestar.handlers import HTTPRouteHandler
from litestar.routes import ASGIRoute, HTTPRoute

from nebis.integrations.litestar import NebisPlugin
from nebis.integrations.protection import Admission
from nebis.integrations.report import Listed, mark_of
from nebis.integrations.routetable.application import Table, name_of

_NO_PLUGIN = "NebisPlugin is not installed, so that it refuses every request; add it to the application's plugins"
_CONVERTOR = re.compile(r"\{(\w+):[^}]*\}")


def read(app: Litestar, _around: Sequence[object], table: Table) -> None:
    """Read all routes of an application."""
    is_guarded = any(isinstance(plugin, NebisPlugin) for plugin in app.plugins)
    for route in app.routes:
        path = _CONVERTOR.sub(r"{\1}", route.path)
        if isinstance(route, ASGIRoute):
            if not getattr(route.route_handler, "is_static", False):
                table.unseen.append(f"what is mounted at {path} has no table of routes; check it by itself")
        elif isinstance(route, HTTPRoute):
            for handler in route.route_handlers:
                table.routes.extend(_listed(handler, path, is_guarded=is_guarded))


def _listed(handler: HTTPRouteHandler, path: str, *, is_guarded: bool) -> list[Listed]:
    mark = mark_of(handler.fn)
    faults = (_NO_PLUGIN,) if isinstance(mark, Admission) and not is_guarded else ()
    return [
        Listed(method=str(method), path=path, endpoint=name_of(handler.fn), mark=mark, faults=faults)
        for method in sorted(handler.http_methods)
    ]
