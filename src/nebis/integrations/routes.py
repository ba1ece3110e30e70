"""What may be chosen per route, and the check of all of it at start-up."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from nebis.catalogue import Catalogue
from nebis.core.fingerprint import FingerprintRule, FingerprintVersions
from nebis.core.identity import PerOperation, Scope
from nebis.core.record import EffectsMode
from nebis.declaration import PolicyOptions, faults_of_name
from nebis.errors import ConfigError
from nebis.http.exchange import USUALLY_STORED, Storage
from nebis.http.options import (
    SHORTEST_PUBLIC_KEY,
    BodyKey,
    BusinessKey,
    KeyRule,
    OptionalKey,
    ProxyHeader,
    Public,
    Reconstruct,
    RequiredKey,
)
from nebis.http.verdict import Binding, binding
from nebis.http.wire import Wire
from nebis.integrations.protection import Protection, Tenant
from nebis.policy import EFFECTS_HELP, Policy
from nebis.subject import LONGEST_TENANT, Subject

TENANT_HELP = (
    "say whose keys these are: tenant= takes a function that returns the tenant from verified authentication, "
    "or public() where anybody may call"
)


class RouteOptions(PolicyOptions, total=False):
    """What may be chosen per route, beside the policy of an operation."""

    key: KeyRule
    scope: Scope
    fingerprint: FingerprintVersions
    vary_on: Collection[str]
    """Headers that make another command, such as Accept: by default none does."""
    binds: Collection[int | type[Exception]]
    """Statuses and exceptions that are stored and replayed as the answer. By default every 4xx is, except those about
    the request itself (400, 422, ...), its caller (401, 403) or the moment (429, ...), after which the key is free."""
    store_headers: Collection[str]
    """Headers to store beside the usual ones."""
    store_body: bool
    """False for answers that hold a secret: replays then have the status and the headers alone."""
    reconstruct: Reconstruct
    wire: Wire


def protection(
    nebis: Catalogue[Any], name: str, *, effects: EffectsMode | None, tenant: Tenant | None, options: RouteOptions
) -> Protection:
    """Check everything about a protected endpoint, report all faults at once, and register its name."""
    chosen: dict[str, Any] = dict(options)
    key: KeyRule = chosen.pop("key", RequiredKey())
    scope: Scope = chosen.pop("scope", PerOperation())
    wire: Wire = chosen.pop("wire", Wire())
    reconstruct: Reconstruct | None = chosen.pop("reconstruct", None)
    binds: Iterable[int | type[Exception]] | None = chosen.pop("binds", None)
    rules: FingerprintVersions | None = chosen.pop("fingerprint", None)
    varying = tuple(chosen.pop("vary_on", ()))
    faults = [*faults_of_name(name), *wire.faults(), *faults_of_choices(key, tenant)]
    fingerprints = rules or _varying(varying, faults)
    stored = frozenset(header.lower() for header in chosen.pop("store_headers", ()))
    has_body: bool = chosen.pop("store_body", True)
    if isinstance(tenant, Public):
        chosen["shortest_key"] = max(SHORTEST_PUBLIC_KEY, chosen.get("shortest_key", 1))
    if rules is not None and varying:
        faults.append("vary_on and fingerprint both say which headers count; name them in the rule alone")
    if reconstruct is not None and not has_body:
        faults.append("store_body=False and reconstruct both replace the stored body; choose one")
    policy = _policy(effects, chosen, faults)
    faults += [] if policy is None else faults_of_issued(policy, key)
    if policy is None or faults:
        raise ConfigError([f"endpoint {name!r}: {fault}" for fault in faults])
    storage = Storage(
        headers=USUALLY_STORED | stored,
        has_body=has_body,
        schema=None if reconstruct is None else reconstruct.schema,
        limit_bytes=policy.result_limit_bytes,
    )
    if storage.faults():
        raise ConfigError([f"endpoint {name!r}: {fault}" for fault in storage.faults()])
    assert tenant is not None  # Otherwise it was a fault.
    bound: Binding = binding(binds)
    subject = Subject(
        name=name,
        policy=policy,
        scope=scope,
        fingerprints=fingerprints,
        classify=bound.disposition,
    )
    nebis.protect(subject)
    return Protection(
        subject=subject,
        tenant=tenant,
        key=key,
        binding=bound,
        storage=storage,
        wire=wire,
        reconstruct=reconstruct,
    )


def _varying(headers: tuple[str, ...], faults: list[str]) -> FingerprintVersions:
    try:
        return FingerprintVersions(FingerprintRule(headers=headers))
    except ValueError as error:
        faults.append(f"vary_on: {error}")
        return FingerprintVersions()


def _policy(effects: EffectsMode | None, chosen: dict[str, Any], faults: list[str]) -> Policy | None:
    if not isinstance(effects, EffectsMode):
        faults.append(EFFECTS_HELP)
        return None
    try:
        policy = Policy(effects=effects, **chosen)
        faults.extend(policy.faults())
    except (TypeError, OverflowError) as error:
        faults.append(f"it has a wrong option ({error}); give spans as seconds(30), limits as whole numbers")
        return None
    if policy.single_transaction:
        faults.append("single_transaction is for operations; bind one to the route, or leave it out")
    return policy


def faults_of_issued(policy: Policy, key: object) -> list[str]:
    """Return what is wrong with where a route takes keys from that the service has to have issued."""
    if not policy.issued_keys or isinstance(key, RequiredKey | BodyKey):
        return []
    return ["issued_keys=True takes tokens that clients send; key= is RequiredKey() or BodyKey(...) there"]


def faults_of_choices(key: object, tenant: object) -> list[str]:
    """Return what is wrong with whose keys a route takes, and where from."""
    found = []
    if not isinstance(key, RequiredKey | OptionalKey | BodyKey | BusinessKey):
        found.append("key= is RequiredKey(), OptionalKey(), BodyKey(...) or BusinessKey(...); choose one of them")
    if tenant is None or not (callable(tenant) or isinstance(tenant, Public | ProxyHeader)):
        found.append(TENANT_HELP)
    if isinstance(tenant, Public) and not 1 <= len(tenant.name) <= LONGEST_TENANT:
        found.append(f"the tenant of public() has 1 to {LONGEST_TENANT} characters; shorten it")
    if isinstance(tenant, ProxyHeader):
        try:
            is_named = bool(tenant.networks())
        except ValueError:
            is_named = False
        if not is_named:
            found.append("proxies= of ProxyHeader names the networks that are believed, such as '10.0.0.0/8'")
    return found
