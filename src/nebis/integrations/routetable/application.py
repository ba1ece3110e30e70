"""From an application object to the table of its routes: through middleware, rules and frameworks."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, Final

from nebis.errors import ConfigError
from nebis.integrations.report import Listed, Report, reported
from nebis.integrations.rules import Rule

# Where the reader of a framework's table is. The framework is imported only if an application of it is at hand.
_READERS: Final = {
    "starlette.Starlette": "starlette",
    "starlette.Router": "starlette",
    "litestar.Litestar": "litestar",
    "flask.Flask": "flask",
    "django.WSGIHandler": "django",
    "django.ASGIHandler": "django",
}
# The names under which middleware keeps what it wraps.
_WRAPPED: Final = ("app", "application", "wsgi_app", "asgi_handler")
_DEEPEST: Final = 50
UNKNOWN: Final = (
    "is no application that nebis knows; name one of Starlette, FastAPI, Litestar, Flask or Django, or rules around one"
)


@dataclass(slots=True)
class Table:
    """What a reader found."""

    routes: list[Listed] = field(default_factory=list)
    rules: list[Rule[Any]] = field(default_factory=list)
    unseen: list[str] = field(default_factory=list)


def report_of(app: object) -> Report:
    """Report on an application; raise `ConfigError` if there is neither a known framework nor a rule in it."""
    table = Table()
    *around, innermost = layers(app)
    for layer in (*around, innermost):
        table.rules.extend(rules_of(layer))
    read = reader_of(innermost)
    if read is not None:
        read(innermost, around, table)
    elif not table.rules:
        raise ConfigError([f"{_kind(app)} {UNKNOWN}"])
    else:
        table.unseen.append(f"{_kind(innermost)} has no table of routes, so only its rules are shown")
    return reported(table.routes, table.rules, table.unseen)


def layers(app: object) -> list[object]:
    """Return an application with all that is inside, from the outermost layer to the one with the routes."""
    found: list[object] = []
    for inner in _inwards(app):
        if len(found) == _DEEPEST or any(inner is outer for outer in found):
            break
        found.append(inner)
    return found


def _inwards(app: object) -> Iterator[object]:
    while True:
        yield app
        if reader_of(app) is not None:
            return
        inner = next((getattr(app, name) for name in _WRAPPED if callable(getattr(app, name, None))), None)
        # A framework may have its own entry wrapped: `app.wsgi_app = Protected(app.wsgi_app)`.
        inner = getattr(inner, "__self__", inner)
        if inner is None:
            return
        app = inner


def known_by(app: object) -> object:
    """Return what an application is known by, whatever is around it; of Django any handler speaks for the project."""
    innermost = layers(app)[-1]
    module = _module_of(innermost)
    if module is None:
        return app
    return module.project() if hasattr(module, "project") else innermost


def reader_of(app: object) -> Callable[[Any, Sequence[object], Table], None] | None:
    """Return what reads the table of such an application, if it is of a known framework."""
    module = _module_of(app)
    if module is None:
        return None
    read: Callable[[Any, Sequence[object], Table], None] = module.read
    return read


def _module_of(app: object) -> ModuleType | None:
    for kind in type(app).__mro__:
        found = _READERS.get(f"{kind.__module__.partition('.')[0]}.{kind.__qualname__}")
        if found is not None:
            return importlib.import_module(f"nebis.integrations.routetable.{found}")
    return None


def rules_of(layer: object) -> Sequence[Rule[Any]]:
    """Return the rules of a layer that protects by method and path."""
    rules = getattr(layer, "rules", ())
    return rules if isinstance(rules, tuple) and all(isinstance(rule, Rule) for rule in rules) else ()


def name_of(endpoint: object) -> str:
    """Return where an endpoint is found in the code."""
    while hasattr(endpoint, "func"):
        endpoint = endpoint.func
    module = getattr(endpoint, "__module__", None) or type(endpoint).__module__
    name = getattr(endpoint, "__qualname__", None) or type(endpoint).__qualname__
    return f"{module}.{name}"


def _kind(app: object) -> str:
    return name_of(app) if hasattr(app, "__qualname__") else type(app).__qualname__
