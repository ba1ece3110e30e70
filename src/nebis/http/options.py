"""The choices of a route: whose keys, which key, what a twin is told, how an answer comes back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Any, TypeAlias

from nebis.errors import BodyRefused, KeyMissing, TenantMissing
from nebis.http.headers import HeaderPairs, values
from nebis.policy import Reject

SHORTEST_PUBLIC_KEY = 16
"""Strangers share one tenant, so that only a key that nobody can guess keeps them apart."""


@dataclass(frozen=True, slots=True)
class RequiredKey:
    """A request without a key is refused (400)."""


@dataclass(frozen=True, slots=True)
class OptionalKey:
    """A request without a key runs unprotected, as if the route were a plain one."""


@dataclass(frozen=True, slots=True)
class BodyKey:
    """The key is a member of the JSON body, such as `client_token`; the header is not read."""

    field: str

    def read(self, body: object, operation: str) -> str:
        """Return the key, or raise `KeyMissing` or `BodyRefused`."""
        key = body.get(self.field) if isinstance(body, dict) else None
        if key is None:
            raise KeyMissing(operation)
        if not isinstance(key, str):
            raise BodyRefused(f"its member {self.field!r} is not a string")
        return key


@dataclass(frozen=True, slots=True)
class BusinessKey:
    """The key is made from the command where the client sent none; or always, whatever the client sent."""

    of: Callable[[Any], str]
    always: bool = False
    # With `always`, a client that makes a fresh key for each try is still caught.


KeyRule: TypeAlias = RequiredKey | OptionalKey | BodyKey | BusinessKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Accept(Reject):
    """Tell a twin of a running attempt 202, with the place where its status can be read."""


@dataclass(frozen=True, slots=True)
class Reference:
    """What an answer is rebuilt from."""

    id: str
    schema: str
    """The version of the answer's shape when it was stored; the shape to answer with is up to the function."""
    tenant: str
    """Whose it is: look the resource up for this tenant only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconstruct:
    """Store what the answer is about, and rebuild the answer at each replay from the resource as it then is.

    `refer` returns the id of the resource from the first answer's JSON body. `rebuild` returns what an endpoint would,
    and raises `ResourceGone` if the resource is not there any more; it may be a coroutine function where endpoints may.
    """

    refer: Callable[[Any], str]
    rebuild: Callable[[Reference], Any]
    schema: str


@dataclass(frozen=True, slots=True)
class Public:
    """One tenant for all strangers; their keys need at least 16 characters."""

    name: str = "public"


def public(name: str = "public") -> Public:
    """Say that guests may use this route: they share a tenant of that name, and their keys must be hard to guess."""
    return Public(name)


@dataclass(frozen=True, slots=True)
class ProxyHeader:
    """The tenant as an authenticating proxy says it, believed only if the request comes from one of these networks."""

    name: str
    proxies: tuple[str, ...]

    def networks(self) -> tuple[IPv4Network | IPv6Network, ...]:
        """Return the networks that are believed; raises `ValueError` for text that is none."""
        return _networks(tuple(self.proxies))

    def read(self, peer: str | None, headers: HeaderPairs) -> str:
        """Return the tenant, or raise `TenantMissing`: a client that sets the header itself is nobody (SEC01)."""
        try:
            address = ip_address(peer or "")
        except ValueError:
            raise TenantMissing from None
        found = values(headers, self.name)
        if not any(address in network for network in self.networks()) or len(found) != 1 or not found[0]:
            raise TenantMissing
        return found[0]


@lru_cache(maxsize=64)
def _networks(proxies: tuple[str, ...]) -> tuple[IPv4Network | IPv6Network, ...]:
    # Remembered, as every request asks and routes have few of them.
    return tuple(ip_network(proxy) for proxy in proxies)
