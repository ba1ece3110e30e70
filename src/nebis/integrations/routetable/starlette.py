"""The routes of Starlette and FastAPI applications, included routers and mounts among them."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from starlette.applications import Starlette
from starlette.endpoints import HTTPEndpoint
from starlette.routing import Host, Mount, Route, Router
from starlette.staticfiles import StaticFiles

from nebis.integrations.protection import Admission
from nebis.integrations.report import ANY, Listed, mark_of
from nebis.integrations.routetable.application import Table, layers, name_of, reader_of, rules_of
from nebis.integrations.rules import Rule
from nebis.integrations.starlette import NebisMiddleware

_VERBS = ("POST", "PATCH", "PUT", "DELETE")
_NO_MIDDLEWARE = "NebisMiddleware is not around it, so that it refuses every request; add it to the application"
_NO_ROUTE_CLASS = "its route is no NebisRoute, so that it refuses every request; give the router that route class"


def read(app: Starlette | Router, around: Sequence[object], table: Table) -> None:
    """Read all routes of an application."""
    is_guarded = any(isinstance(layer, NebisMiddleware) for layer in around)
    _read(app, "", table, is_guarded=is_guarded)


def _read(app: Starlette | Router, prefix: str, table: Table, *, is_guarded: bool) -> None:
    for middleware in getattr(app, "user_middleware", ()):
        if middleware.cls is NebisMiddleware:
            is_guarded = True
        table.rules.extend(rule for rule in middleware.kwargs.get("rules", ()) if isinstance(rule, Rule))
    for route in _flat(app.routes):
        if isinstance(route, Mount | Host):
            _mounted(route, prefix, table, is_guarded=is_guarded)
        elif isinstance(getattr(route, "original_route", route), Route):
            table.routes.extend(_listed(route, prefix, is_guarded=is_guarded))


def _flat(routes: Sequence[Any]) -> Iterator[Any]:
    """Return the routes of included routers as they are called: newer releases of FastAPI do not copy them."""
    fastapi = sys.modules.get("fastapi.routing")
    contexts = getattr(fastapi, "iter_route_contexts", None)
    if contexts is None:
        yield from routes
        return
    for context in contexts(routes):
        original = context.original_route
        yield original if isinstance(original, Mount | Host) else context


def _mounted(route: Mount | Host, prefix: str, table: Table, *, is_guarded: bool) -> None:
    path = prefix + getattr(route, "path", "")
    *around, inner = layers(route.app)
    if isinstance(inner, StaticFiles):
        return
    for layer in around:
        table.rules.extend(rules_of(layer))
    if isinstance(inner, Starlette | Router):
        is_guarded = is_guarded or any(isinstance(layer, NebisMiddleware) for layer in around)
        _read(inner, path, table, is_guarded=is_guarded)
        return
    reader = reader_of(inner)
    if reader is None:
        table.unseen.append(f"what is mounted at {path or '/'} has no table of routes; check it by itself")
        return
    below = Table()
    reader(inner, around, below)
    table.unseen.extend(below.unseen)
    table.routes.extend(replace(one, path=path + one.path) for one in below.routes)


def _listed(route: Any, prefix: str, *, is_guarded: bool) -> Iterator[Listed]:
    endpoint = route.endpoint
    late, fault = (), None if is_guarded else _NO_MIDDLEWARE
    if _is_of_fastapi(route):
        ours = importlib.import_module("nebis.integrations.fastapi")
        fault = None if isinstance(getattr(route, "original_route", route), ours.NebisRoute) else _NO_ROUTE_CLASS
        late = tuple(ours.late_exits(route))
    for method, function in _methods(endpoint, route.methods):
        mark = mark_of(function) or mark_of(endpoint)
        yield Listed(
            method=method,
            path=prefix + _plain(route.path),
            endpoint=name_of(function),
            mark=mark,
            faults=(fault,) if fault is not None and isinstance(mark, Admission) else (),
            late_exits=late,
        )


def _is_of_fastapi(route: Any) -> bool:
    fastapi = sys.modules.get("fastapi.routing")
    return fastapi is not None and isinstance(getattr(route, "original_route", route), fastapi.APIRoute)


def _methods(endpoint: Any, methods: set[str] | None) -> Iterator[tuple[str, Any]]:
    if inspect.isclass(endpoint) and issubclass(endpoint, HTTPEndpoint):
        for verb in _VERBS:
            if callable(function := getattr(endpoint, verb.lower(), None)):
                yield verb, function
    else:
        yield from ((method, endpoint) for method in sorted(methods or {ANY}))


def _plain(path: str) -> str:
    """Leave the convertors out of a path: `{id:int}` is `{id}`."""
    return "/".join(
        f"{segment.partition(':')[0]}}}" if segment.startswith("{") and ":" in segment else segment
        for segment in path.split("/")
    )
