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
    """How much of the store one tenant may hold with one operation."""

    stored_bytes: int
    """Of commands and answers that were stored within the last retention; counted upward, by a tenth at most."""

    def faults(self) -> list[str]:
        """Return every reason why nothing can be held to this."""
        if 1 <= self.stored_bytes <= _BOUND:
            return []
        return [f"Quota(stored_bytes={self.stored_bytes}) lets nothing pass, or everything; give at least 1"]


def charges_of(
    limits: Iterable[Limit], keyring: Keyring, *, operation: str, tenant: str, command: object
) -> list[Charge]:
    """Return what a fresh key of this command adds, to which meters."""
    return [
        Charge(bucket=bucket, window_us=limit.per // timedelta(microseconds=1), limit=limit.number)
        for limit in limits
        for bucket in _buckets(limit, keyring, operation, tenant, command)
    ]


def bytes_charges(
    quota: Quota, keyring: Keyring, *, operation: str, tenant: str, retention: timedelta, weight: int
) -> list[Charge]:
    """Return what storing so many bytes adds, to which meters."""
    parts = (b"bytes", text_bytes(operation), text_bytes(tenant), str(retention).encode())
    return [
        Charge(bucket=bucket, window_us=retention // timedelta(microseconds=1), limit=quota.stored_bytes, weight=weight)
        for bucket in _signed(keyring, parts)
    ]


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
