"""The routes of Django projects: function views, class-based views, and those of Django REST framework."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from django.conf import settings
from django.contrib.admindocs.views import simplify_regex
from django.urls import URLPattern, URLResolver, get_resolver
from django.utils.module_loading import import_string

from nebis.integrations.report import ANY, Listed, mark_of
from nebis.integrations.routetable.application import Table, name_of

_VERBS: Final = ("post", "patch", "put", "delete")
_VARIABLE: Final = re.compile(r"<(?:[^<>:]*:)?(\w+)>")
_METHOD_LIST: Final = "request_method_list"
"""Where `require_http_methods` keeps the methods that it lets through."""
WRAPPED_BY_DRF: Final = "func"
"""Where `api_view` keeps the function that it makes a class of."""
_OUR_MIDDLEWARE: Final = "nebis.integrations.django.middleware."
_HARMLESS: Final = ("django.views.generic.base.RedirectView", "django.views.static.serve")
_FORMATTED: Final = re.compile(r"\\?\.\{format\}/?$")
"""The second path that Django REST framework gives each view, for clients that choose a format by a suffix."""


def read(_handler: object, _around: Sequence[object], table: Table) -> None:
    """Read all routes of the project whose settings are in use, and the rules of our middleware."""
    if any(name.startswith(_OUR_MIDDLEWARE) for name in settings.MIDDLEWARE):
        named = settings.NEBIS_RULES
        table.rules.extend(import_string(named) if isinstance(named, str) else named)
    for path, view in _views(get_resolver(), "", table):
        if name_of(_kind(view) or view) in _HARMLESS or _FORMATTED.search(path):
            continue
        for method, function in _methods(view):
            mark = mark_of(function) or mark_of(view) or mark_of(getattr(_kind(view), "dispatch", None))
            table.routes.append(Listed(method=method, path=path, endpoint=name_of(function), mark=mark))


def project() -> object:
    """Return what the project is known by: there is one of it in a process, and it begins with the first request."""
    return get_resolver()


def _views(resolver: URLResolver, prefix: str, table: Table) -> Iterator[tuple[str, Any]]:
    for pattern in resolver.url_patterns:
        path = prefix + str(pattern.pattern)
        if isinstance(pattern, URLPattern):
            yield _VARIABLE.sub(r"{\1}", simplify_regex(path)), pattern.callback
        elif pattern.app_name == "admin":
            table.unseen.append(f"the admin at {simplify_regex(path)} is left out: its forms are for people")
        else:
            yield from _views(pattern, path, table)


def _kind(view: Any) -> Any:
    return getattr(view, "view_class", None) or getattr(view, "cls", None)


def _methods(view: Any) -> Iterator[tuple[str, Any]]:
    """Return what a view takes: of a class what it defines, of a function what lets it be called."""
    kind = _kind(view)
    if kind is None:
        found = enclosed(view, _METHOD_LIST)
        yield from ((method, view) for method in ([ANY] if found is None else sorted(found)))
        return
    actions = getattr(view, "actions", None) or {}
    for verb in _VERBS:
        function = getattr(kind, actions.get(verb, "") if actions else verb, None)
        if callable(function) and verb in kind.http_method_names:
            is_made = getattr(function, "__module__", "") == "rest_framework.decorators"
            yield verb.upper(), enclosed(function, WRAPPED_BY_DRF) if is_made else function


def enclosed(function: Any, name: str) -> Any:
    """Return what a decorator keeps under a name, on whichever level of a function; None if none does."""
    while function is not None:
        names = getattr(getattr(function, "__code__", None), "co_freevars", ())
        if name in names:
            return function.__closure__[names.index(name)].cell_contents
        function = getattr(function, "__wrapped__", None)
    return None
