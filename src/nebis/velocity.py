"""Limits underneath the key: whoever sends a fresh key for each try is still counted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from nebis.core.canonical import canonical
from nebis.core.plain import plain
from nebis.core.secret import Keyring, Purpose, text_bytes
from nebis.core.velocity import Charge

_CONTEXT = b"nebis/velocity/1"
_SHORTEST = timedelta(milliseconds=10)
_LONGEST = timedelta(days=366)
RECORD_BYTES = 512
"""What a record takes in a store beside its answer, roughly: what a quota counts before the work is done."""
LEASES_IN_FLIGHT = 10
"""For how long an attempt counts of which nobody says that it ended."""
_BOUND = 2**53
"""The largest number that every store and every counter holds exactly."""


@dataclass(frozen=True, slots=True)
class Limit:
    """At most so many fresh keys in any span of that length: of each tenant, or of each value of a field.

    `by` names a field of the command, such as "card" or "payment.card.number"; a command without it is not counted.
    With `across_tenants` its values are counted together, whoever sends them.
    """

    number: int
    per: timedelta
    by: str | None = None
    across_tenants: bool = False

    def faults(self) -> list[str]:
        """Return every reason why nothing can be limited like this, each with what to change."""
        found = []
        if not 1 <= self.number <= _BOUND:
            found.append(f"Limit({self.number}, ...) lets nothing pass, or everything; give a number of at least 1")
        if not _SHORTEST <= self.per <= _LONGEST:
            found.append(f"Limit(per=...) is between 10 ms and a year, not {self.per}; choose such a span")
        if self.by is not None and not all(self.by.split(".")):
            found.append("Limit(by=...) names a field of the command, such as 'card' or 'payment.card'; name one")
        if self.across_tenants and self.by is None:
            found.append("Limit(across_tenants=True) counts the values of a field; say which, by=...")
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """How much one tenant may hold of a store with one operation. Roughly: nothing is locked for the sake of it."""

    in_flight: int | None = None
    """First attempts that run at once. One whose process died counts for ten leases."""
    stored_bytes: int | None = None
    """Of answers that were stored within the last retention, and half a kilobyte for each record."""

    def faults(self) -> list[str]:
        """Return every reason why nothing can be held to this, each with what to change."""
        numbers = [number for number in (self.in_flight, self.stored_bytes) if number is not None]
        if numbers and all(1 <= number <= _BOUND for number in numbers):
            return []
        return ["Quota(...) limits in_flight= or stored_bytes=, each to a number of at least 1; give one of them"]


def charges_of(
    limits: Iterable[Limit], keyring: Keyring, *, operation: str, tenant: str, command: object
) -> list[Charge]:
    """Return what a fresh key of this command adds, to which meters."""
    return [
        Charge(bucket=bucket, window_us=limit.per // timedelta(microseconds=1), limit=limit.number)
        for limit in limits
        for bucket in _buckets(limit, keyring, operation, tenant, command)
    ]


def charges_of_quota(
    quota: Quota, keyring: Keyring, *, operation: str, tenant: str, retention: timedelta, lease: timedelta
) -> tuple[list[Charge], list[Charge]]:
    """Return what a fresh key takes of what its tenant may have in flight, and of what it may store."""
    owner = (text_bytes(operation), text_bytes(tenant))
    return (
        _held(keyring, (b"in flight", *owner), quota.in_flight, weight=1, span=LEASES_IN_FLIGHT * lease),
        _held(keyring, (b"bytes", *owner), quota.stored_bytes, weight=RECORD_BYTES, span=retention),
    )


def _held(
    keyring: Keyring, parts: tuple[bytes, ...], limit: int | None, *, weight: int, span: timedelta
) -> list[Charge]:
    if limit is None:
        return []
    window_us = span // timedelta(microseconds=1)
    buckets = _signed(keyring, (*parts, str(span).encode()))
    return [Charge(bucket=bucket, window_us=window_us, limit=limit, weight=weight) for bucket in buckets]


def _buckets(limit: Limit, keyring: Keyring, operation: str, tenant: str, command: object) -> Sequence[bytes]:
    value = None if limit.by is None else _value(command, limit.by)
    if limit.by is not None and value is None:
        return ()
    owner = b"everybody" if limit.across_tenants else b"tenant:" + text_bytes(tenant)
    field = b"" if limit.by is None else text_bytes(limit.by)
    parts = (b"keys", text_bytes(operation), owner, field, str(limit.per).encode(), canonical(plain(value)))
    return _signed(keyring, parts)


def _signed(keyring: Keyring, parts: tuple[bytes, ...]) -> list[bytes]:
    # Under every secret in use: a process that has only the older one, or soon only the newer, counts them all (F116).
    return [secret.sign(Purpose.VELOCITY, _CONTEXT, *parts) for secret in keyring]


def _value(command: object, path: str) -> object | None:
    for name in path.split("."):
        command = command.get(name) if isinstance(command, Mapping) else getattr(command, name, None)
    return command
