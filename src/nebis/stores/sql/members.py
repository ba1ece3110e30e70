"""What the fast statements want to know of verbs: as columns for many, as plain values for one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from nebis.core.owning import UNKNOWN_FORGET_FACTOR
from nebis.core.record import OutcomeKind, Ownership
from nebis.core.verbs import Claim, Complete
from nebis.stores.sql.asks import Columns, Member
from nebis.stores.sql.rows import MODES, OUTCOME_KINDS, stored_scope

Values = dict[str, object]

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


def claims(verbs: Sequence[Claim]) -> Sequence[Member]:
    """Return the members of the statement that claims."""
    return [claiming(verbs[0])] if len(verbs) == 1 else claiming_all(verbs)


def claiming(claim: Claim) -> Values:
    """Return what the statement that claims wants to know of one verb, without a list for each column."""
    version, fingerprint = claim.fingerprints[0]
    terms = claim.terms
    retention = terms.retention
    return {
        "identity": claim.identity,
        "record_id": claim.record_id,
        "tenant": claim.tenant,
        "scope": stored_scope(terms.scope, terms.operation),
        "operation": terms.operation,
        "key": claim.key,
        "fingerprint": fingerprint,
        "fingerprint_version": version,
        "mode": MODES[terms.mode],
        "nonce": claim.nonce,
        "lease_us": terms.lease_us,
        "outcome_us": retention.outcome_us,
        "metadata_us": retention.metadata_us,
        "command": claim.command,
    }


def claiming_all(claims: Sequence[Claim]) -> Columns:
    """Return the same of many, without a dictionary for each verb."""
    newest = [claim.fingerprints[0] for claim in claims]
    terms = [claim.terms for claim in claims]
    retentions = [each.retention for each in terms]
    return Columns(
        identity=[claim.identity for claim in claims],
        record_id=[claim.record_id for claim in claims],
        tenant=[claim.tenant for claim in claims],
        scope=[stored_scope(each.scope, each.operation) for each in terms],
        operation=[each.operation for each in terms],
        key=[claim.key for claim in claims],
        fingerprint=[fingerprint for _, fingerprint in newest],
        fingerprint_version=[version for version, _ in newest],
        mode=[MODES[each.mode] for each in terms],
        nonce=[claim.nonce for claim in claims],
        lease_us=[each.lease_us for each in terms],
        outcome_us=[retention.outcome_us for retention in retentions],
        metadata_us=[retention.metadata_us for retention in retentions],
        command=[claim.command for claim in claims],
    )


def completions(verbs: Sequence[Complete]) -> Sequence[Member]:
    """Return the members of the statement that completes."""
    return [completing(verbs[0])] if len(verbs) == 1 else Columns(**completing_all(verbs))


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


def completing_all(verbs: Sequence[Complete]) -> dict[str, list[Any]]:
    """Return the same of many, by column."""
    columns = owners([verb.ownership for verb in verbs])
    outcomes = [verb.outcome for verb in verbs]
    kinds = [outcome.kind for outcome in outcomes]
    retentions = [verb.retention for verb in verbs]
    resources = [verb.resource for verb in verbs]
    columns["outcome_kind"] = [OUTCOME_KINDS[kind] for kind in kinds]
    columns["outcome"] = [outcome.body for outcome in outcomes]
    columns["outcome_us"] = [retention.outcome_us for retention in retentions]
    columns["forget_us"] = [
        retention.metadata_us * (UNKNOWN_FORGET_FACTOR if kind is _UNKNOWN else 1)
        for retention, kind in zip(retentions, kinds, strict=True)
    ]
    columns["resource_type"] = [None if resource is None else resource.type for resource in resources]
    columns["resource_id"] = [None if resource is None else resource.id for resource in resources]
    return columns


def exchanging(claims: Sequence[Claim], completions: Sequence[Complete]) -> Columns:
    """Return what the statement that does both wants to know."""
    columns = claiming_all(claims).by_name
    for name, column in completing_all(completions).items():
        columns[_DONE[name]] = column
    return Columns(**columns)


def owners(ownerships: Sequence[Ownership]) -> dict[str, list[Any]]:
    """Return what every write of owners is guarded by, by column."""
    return {
        "identity": [ownership.identity for ownership in ownerships],
        "record_id": [ownership.record_id for ownership in ownerships],
        "fence": [ownership.fence for ownership in ownerships],
        "nonce": [ownership.nonce for ownership in ownerships],
    }
