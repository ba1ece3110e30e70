"""Rules by method and path: how a whole API is protected from outside, in either world."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, Unpack

from nebis.catalogue import Catalogue
from nebis.core.record import EffectsMode
from nebis.http.exchange import Exchange
from nebis.http.pattern import Pattern
from nebis.integrations.protection import Protection, Tenant
from nebis.integrations.routes import RouteOptions, protection

N = TypeVar("N", bound=Catalogue[Any])

ATTEMPT = "nebis.attempt"
"""Where the application finds the attempt of a request: in its scope or environ."""


@dataclass(frozen=True, slots=True)
class Rule(Generic[N]):
    """How the requests of one pattern are protected."""

    pattern: Pattern
    nebis: N
    protection: Protection


def rule(
    nebis: N,
    pattern: str,
    name: str,
    *,
    effects: EffectsMode | None = None,
    tenant: Tenant | None = None,
    **options: Unpack[RouteOptions],
) -> Rule[N]:
    """Protect requests such as `POST /payments/*`. `tenant` gets the scope or environ, once others authenticated it.

    Validation runs inside, after the claim: what an endpoint refuses as invalid is withdrawn.
    """
    protected = protection(nebis, name, effects=effects, tenant=tenant, options=options)
    return Rule(Pattern.parse(pattern), nebis, protected)


def matching(rules: Iterable[Rule[N]], method: str, path: str) -> Rule[N] | None:
    """Return the first rule that is for a request."""
    for one in rules:
        if one.pattern.matches(method, path):
            return one
    return None


def rendered(value: Any) -> Exchange:
    """Make a stored answer of plain data that an application gives to `tx.finish`."""
    return Exchange(status=200, headers=(("content-type", "application/json"),), body=json.dumps(value).encode())
