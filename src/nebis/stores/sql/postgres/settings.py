"""How Nebis uses PostgreSQL connections, and the settings that hold on them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from nebis.errors import ConfigError

# Plans that were cached on an almost empty table stay bad until the next ANALYZE: a batch of 64 took 256 ms instead of
# 5 ms at a million rows. All our statements find rows by key, so only nested index scans are ever right for them.
_PLAN_PINS = {
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_bitmapscan": "off",
    "enable_memoize": "off",
    "jit": "off",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The options of a PostgreSQL location."""

    max_connections: int = 10
    """The batcher keeps two busy; the rest is for reads and single transactions. More only queue inside the server."""

    connect_timeout_seconds: float = 5.0
    """Below the patience of most clients, so that a dead host becomes an answer and not a hanging request."""

    acquire_timeout_seconds: float = 5.0
    """How long a caller waits for one of our own connections while all are busy."""

    lock_timeout_seconds: float = 0.5
    """Somebody's open transaction may delay a batch by this much, then the batch is split (F045). Less would split
    for every slow commit, more would let one transaction hold up strangers."""

    idle_in_transaction_seconds: float = 10.0
    """Well below a lease of 30 s: a process that is stopped inside a transaction must lose its locks before its lease
    lapses, or its successor could not take over."""

    silence_seconds: float = 15.0
    """How long the network may swallow what we sent before the connection counts as lost: half a lease."""

    pooler: bool = False
    """Whether a pooler that shares server connections between transactions stands in between (F044). Then nothing is
    prepared, nothing is listened to, and every setting is made inside each transaction."""

    durability: Literal["warn", "strict"] = "warn"
    """What a server that may forget acknowledged commits is: a line in the start-up report, or a ConfigError."""

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> Settings:
        """Build settings from keyword options; report every fault at once."""
        known = {field.name: field for field in fields(cls)}
        faults = [
            f"{name!r} is not an option of a PostgreSQL location; use one of {', '.join(sorted(known))}"
            for name in options
            if name not in known
        ]
        faults += [
            f"{name} must be more than zero, not {value!r}"
            for name, value in options.items()
            if name in known and name not in {"pooler", "durability"} and not _is_positive(value)
        ]
        if options.get("durability", "warn") not in {"warn", "strict"}:
            faults.append(f"durability must be 'warn' or 'strict', not {options['durability']!r}")
        if faults:
            raise ConfigError(faults)
        return cls(**options)

    def pins(self) -> dict[str, str]:
        """Return what a session of our own holds from its first moment on, so that RESET ALL comes back to it."""
        return {
            "default_transaction_isolation": "read committed",
            "default_transaction_deferrable": "off",
            "lock_timeout": f"{self.lock_timeout_seconds * 1000:.0f}",
            "idle_in_transaction_session_timeout": f"{self.idle_in_transaction_seconds * 1000:.0f}",
            **_PLAN_PINS,
        }

    def opening(self, *, is_pinned: bool) -> str:
        """Return the text that begins a transaction, with the settings that an unpinned session needs for it."""
        if is_pinned:
            return "BEGIN"
        # The planner is left alone: a borrowed session's cached plans are not ours.
        return (
            "BEGIN ISOLATION LEVEL READ COMMITTED; "
            f"SET LOCAL lock_timeout = {self.lock_timeout_seconds * 1000:.0f}; "
            f"SET LOCAL idle_in_transaction_session_timeout = {self.idle_in_transaction_seconds * 1000:.0f}; "
            f"{DURABLE_TRANSACTION}"
        )


# Not a plain SET: a server that asks for more than "on" (remote_apply) must keep its way.
DURABLE_TRANSACTION = (
    "SELECT set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') = 'off'"
)


def _is_positive(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0
