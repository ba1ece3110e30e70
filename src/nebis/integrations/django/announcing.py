"""What a project says about its routes: at the first request that is for us, when all of its URLs are known."""

from __future__ import annotations

from typing import Any

from nebis.extras import needed
from nebis.integrations.routetable import announce_inside, is_told

with needed("django"):
    from django.core.handlers.wsgi import WSGIHandler
    from django.urls import get_resolver


def stand_in() -> object:
    """Make what says only which framework it is: a project has one table of routes, whichever handler serves it."""
    return WSGIHandler.__new__(WSGIHandler)


def announce_project(request: Any) -> None:
    """Log once which routes are protected and how, and which are not."""
    if not is_told(get_resolver()):
        announce_inside(stand_in(), request.META)
