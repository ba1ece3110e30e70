"""Rules by method and path for a whole Django project, named in its settings.

    MIDDLEWARE = [..., "nebis.integrations.django.middleware.NebisMiddleware"]
    NEBIS_RULES = "shop.idempotency.RULES"

It belongs below whatever authenticates, and above nothing that may refuse a caller: a rule's `tenant` decides.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

from nebis.aio import AsyncNebis
from nebis.errors import ConfigError, NebisError
from nebis.extras import needed
from nebis.integrations import blocking
from nebis.integrations.rules import ATTEMPT, Matching, Rule, rule
from nebis.sync import Nebis

with needed("django"):
    from asgiref.sync import markcoroutinefunction
    from django.conf import settings
    from django.utils.module_loading import import_string

    from nebis.integrations.django import awaiting
    from nebis.integrations.django.announcing import announce_project
    from nebis.integrations.django.awaiting import AsyncHeld, outliving, require_loop
    from nebis.integrations.django.placement import OwnTransactions
    from nebis.integrations.django.responses import rendered, response_of
    from nebis.integrations.django.views import Asking, answered, answered_async

__all__ = ["ATTEMPT", "AsyncNebisMiddleware", "NebisMiddleware", "rule"]

N = TypeVar("N", AsyncNebis, Nebis)


class NebisMiddleware:
    """Rules whose attempts block, under WSGI and ASGI alike."""

    sync_capable = True
    async_capable = False

    def __init__(self, get_response: Callable[[Any], Any]) -> None:
        self._get_response = get_response
        self.rules = _rules(Nebis, "AsyncNebisMiddleware")
        self._matching = Matching(self.rules).first

    def __call__(self, request: Any) -> Any:
        """Claim before anything below sees the request, and store what it answered."""
        announce_project(request)
        found = self._matching(request.method, request.path_info)
        if found is None:
            return self._get_response(request)
        protected = found.protection
        try:
            tenant, arrived = Asking(protected, None, None).blocking(request)
            held = blocking.claim(protected, found.nebis, arrived, tenant, rendered)
        except NebisError as error:
            return response_of(protected.refused(error))
        request.META[ATTEMPT] = held.attempt if isinstance(held, blocking.Held) else None
        if held is None:
            return self._get_response(request)
        return answered(request, protected, held, lambda _: self._get_response(request), OwnTransactions())


class AsyncNebisMiddleware:
    """Rules whose attempts run on the loop, under ASGI."""

    sync_capable = False
    async_capable = True

    def __init__(self, get_response: Callable[[Any], Awaitable[Any]]) -> None:
        self._get_response = get_response
        self.rules = _rules(AsyncNebis, "NebisMiddleware")
        self._matching = Matching(self.rules).first
        markcoroutinefunction(self)

    async def __call__(self, request: Any) -> Any:
        """Claim before anything below sees the request, and store what it answered, even if its client hangs up."""
        announce_project(request)
        found = self._matching(request.method, request.path_info)
        if found is None:
            return await self._get_response(request)
        require_loop(request, found.protection.name)
        return await outliving(found.nebis, self._claimed(found, request))

    async def _claimed(self, found: Rule[AsyncNebis], request: Any) -> Any:
        protected = found.protection
        try:
            tenant, arrived = await Asking(protected, None, None).awaited(request)
            held = await awaiting.claim(protected, found.nebis, arrived, tenant, rendered)
        except NebisError as error:
            return response_of(protected.refused(error))
        request.META[ATTEMPT] = held.attempt if isinstance(held, AsyncHeld) else None
        if held is None:
            return await self._get_response(request)
        return await answered_async(request, protected, held, lambda _: self._get_response(request))


def _rules(kind: type[N], other: str) -> tuple[Rule[N], ...]:
    named = getattr(settings, "NEBIS_RULES", None)
    if named is None:
        raise ConfigError(['NEBIS_RULES is missing; name the rules in the settings, such as "shop.idempotency.RULES"'])
    rules = tuple(import_string(named) if isinstance(named, str) else named)
    faults = [
        f"rule {one.protection.name!r} is of {type(one.nebis).__name__}; install {other} for it, or use {kind.__name__}"
        for one in rules
        if not isinstance(one.nebis, kind)
    ]
    if faults:
        raise ConfigError(faults)
    return cast("tuple[Rule[N], ...]", rules)
