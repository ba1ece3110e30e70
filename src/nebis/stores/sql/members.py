"""What the fast statements want to know of verbs: as columns for many, as plain values for one."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any, Final

from nebis.core.owning import UNKNOWN_FORGET_FACTOR
from nebis.core.record import OutcomeKind, Ownership
from nebis.core.verbs import Claim, Complete, Terms, Verb, identity_of
from nebis.stores.sql.asks import Columns, Member
from nebis.stores.sql.rows import MODES, OUTCOME_KINDS, stored_scope

Values = dict[str, object]

CLAIMS: Final = frozenset({Claim})
COMPLETIONS: Final = frozenset({Complete})

identity: Final = attrgetter("identity")
"""Of a verb that says itself which record it is about."""
owned_identity: Final = attrgetter("ownership.identity")
"""Of a verb of an owner."""

_UNKNOWN: Final = OutcomeKind.UNKNOWN
"""Looked up once: every completion is compared with it."""

_DONE: Final = {
    name: f"done_{name}"
    for name in (
        *("identity", "record_id", "fence", "nonce", "outcome_kind", "outcome", "outcome_us", "forget_us"),
        *("resource_type", "resource_id"),
    )
}
"""What a completion's column is called beside those of claims."""


def identities_of(verbs: Sequence[Verb], kinds: set[type]) -> list[bytes]:
    """Return which records these verbs are about; without asking each what it is where all are of one kind."""
    if kinds == CLAIMS:
        return list(map(identity, verbs))
    if kinds == COMPLETIONS:
        return list(map(owned_identity, verbs))
    return [identity_of(verb) for verb in verbs]


def claims(verbs: Sequence[Claim]) -> Sequence[Member]:
    """Return the members of the statement that claims."""
    return [claiming(verbs[0])] if len(verbs) == 1 else claiming_all(verbs)


def claiming(claim: Claim) -> Values:
    """Return what the statement that claims wants to know of one verb, without a list for each column."""
    version, fingerprint = claim.fingerprints[0]
    return {
        "identity": claim.identity,
        "record_id": claim.record_id,
        "tenant": claim.tenant,
        "key": claim.key,
        "fingerprint": fingerprint,
        "fingerprint_version": version,
        "nonce": claim.nonce,
        "command": claim.command,
        **_agreed(claim.terms),
    }


def _agreed(terms: Terms) -> Values:
    """Return what all claims of an operation share."""
    return {
        "scope": stored_scope(terms.scope, terms.operation),
        "operation": terms.operation,
        "mode": MODES[terms.mode],
        "lease_us": terms.lease_us,
        "outcome_us": terms.retention.outcome_us,
        "metadata_us": terms.retention.metadata_us,
    }


def claiming_all(claims: Sequence[Claim]) -> Columns:
    """Return the same of many, without a dictionary for each verb."""
    newest = [claim.fingerprints[0] for claim in claims]
    versions = [version for version, _ in newest]
    terms = [claim.terms for claim in claims]
    columns: dict[str, list[Any]] = {
        "identity": [claim.identity for claim in claims],
        "record_id": [claim.record_id for claim in claims],
        "tenant": [claim.tenant for claim in claims],
        "key": [claim.key for claim in claims],
        "fingerprint": [fingerprint for _, fingerprint in newest],
        "nonce": [claim.nonce for claim in claims],
        "command": [claim.command for claim in claims],
    }
    if _are_alike(terms) and _are_alike(versions):
        return Columns(columns, {"fingerprint_version": versions[0], **_agreed(terms[0])})
    retentions = [each.retention for each in terms]
    columns["fingerprint_version"] = versions
    columns["scope"] = [stored_scope(each.scope, each.operation) for each in terms]
    columns["operation"] = [each.operation for each in terms]
    columns["mode"] = [MODES[each.mode] for each in terms]
    columns["lease_us"] = [each.lease_us for each in terms]
    columns["outcome_us"] = [retention.outcome_us for retention in retentions]
    columns["metadata_us"] = [retention.metadata_us for retention in retentions]
    return Columns(columns)


def _are_alike(values: list[Any]) -> bool:
    return values.count(values[0]) == len(values)


def completions(verbs: Sequence[Complete]) -> Sequence[Member]:
    """Return the members of the statement that completes."""
    return [completing(verbs[0])] if len(verbs) == 1 else completing_all(verbs)


def completing(verb: Complete) -> Values:
    """Return what the statement that completes wants to know of one verb, without a list for each column."""
    ownership, outcome, retention, resource = verb.ownership, verb.outcome, verb.retention, verb.resource
    factor = UNKNOWN_FORGET_FACTOR if outcome.kind is _UNKNOWN else 1
    return {
        "identity": ownership.identity,
        "record_id": ownership.record_id,
        "fence": ownership.fence,
        "nonce": ownership.nonce,
        "outcome_kind": OUTCOME_KINDS[outcome.kind],
        "outcome": outcome.body,
        "outcome_us": retention.outcome_us,
        "forget_us": retention.metadata_us * factor,
        "resource_type": None if resource is None else resource.type,
        "resource_id": None if resource is None else resource.id,
    }


def completing_all(verbs: Sequence[Complete]) -> Columns:
    """Return the same of many, without a dictionary for each verb."""
    columns = owners([verb.ownership for verb in verbs])
    outcomes = [verb.outcome for verb in verbs]
    columns["outcome"] = [outcome.body for outcome in outcomes]
    kinds = [outcome.kind for outcome in outcomes]
    retentions = [verb.retention for verb in verbs]
    resources = [verb.resource for verb in verbs]
    if _are_alike(kinds) and _are_alike(retentions) and _are_alike(resources):
        first = completing(verbs[0])
        return Columns(columns, {name: value for name, value in first.items() if name not in columns})
    columns["outcome_kind"] = [OUTCOME_KINDS[kind] for kind in kinds]
    columns["outcome_us"] = [retention.outcome_us for retention in retentions]
    columns["forget_us"] = [
        retention.metadata_us * (UNKNOWN_FORGET_FACTOR if kind is _UNKNOWN else 1)
        for retention, kind in zip(retentions, kinds, strict=True)
    ]
    columns["resource_type"] = [None if resource is None else resource.type for resource in resources]
    columns["resource_id"] = [None if resource is None else resource.id for resource in resources]
    return Columns(columns)


def exchanging(claims: Sequence[Claim], completions: Sequence[Complete]) -> Columns:
    """Return what the statement that does both wants to know."""
    begun, done = claiming_all(claims), completing_all(completions)
    columns = begun.by_name | {_DONE[name]: column for name, column in done.by_name.items()}
    return Columns(columns, {**begun.alike, **{_DONE[name]: value for name, value in done.alike.items()}})


def owners(ownerships: Sequence[Ownership]) -> dict[str, list[Any]]:
    """Return what every write of owners is guarded by, by column."""
    return {
        "identity": [ownership.identity for ownership in ownerships],
        "record_id": [ownership.record_id for ownership in ownerships],
        "fence": [ownership.fence for ownership in ownerships],
        "nonce": [ownership.nonce for ownership in ownerships],
    }
