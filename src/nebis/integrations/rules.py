"""Rules by method and path: how a whole API is protected from outside, in either world."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar, Unpack

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


class Patterned(Protocol):
    """What is for the requests of one pattern."""

    @property
    def pattern(self) -> Pattern:
        """Return which they are."""
        ...


P = TypeVar("P", bound=Patterned)


class Matching(Generic[P]):
    """Rules, or what was made of them, in the order in which they are asked."""

    def __init__(self, rules: Sequence[P]) -> None:
        self._all = tuple(rules)
        self._open = tuple(one for one in self._all if not one.pattern.is_literal)
        # A path that is written out is looked up. An earlier rule with a wildcard may take it all the same.
        self._literal = {
            (one.pattern.method, one.pattern.path): _first(self._all, one.pattern.method, one.pattern.path)
            for one in self._all
            if one.pattern.is_literal
        }

    def first(self, method: str, path: str) -> P | None:
        """Return the first that is for a request."""
        found = self._literal.get((method, path))
        # What begins without a slash is no path, and a pattern takes it for one all the same.
        return found or _first(self._open if path.startswith("/") else self._all, method, path)


def _first(rules: Iterable[P], method: str, path: str) -> P | None:
    for one in rules:
        if one.pattern.matches(method, path):
            return one
    return None


def rendered(value: Any) -> Exchange:
    """Make a stored answer of plain data that an application gives to `tx.finish`."""
    return Exchange(status=200, headers=(("content-type", "application/json"),), body=json.dumps(value).encode())
