"""Every check, in the order in which they run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from nebis.errors import ConfigError
from nebis.testing.torture.check import Check, Group
from nebis.testing.torture.checks import bodies, concurrency, keys, network, security, semantics

CHECKS: Final[tuple[Check, ...]] = (
    *semantics.check.checks,
    *concurrency.check.checks,
    *network.check.checks,
    *keys.check.checks,
    *bodies.check.checks,
    *security.check.checks,
)


def chosen(only: Sequence[str] = (), groups: Sequence[str] = ()) -> list[Check]:
    """Return the checks with these ids or in these groups, or all; raise `ConfigError` for a name that is none."""
    ids = {check.id for check in CHECKS}
    names = [group.value for group in Group]
    faults = [f"there is no check {name!r}; --list shows them" for name in only if name not in ids]
    faults += [
        f"there is no group {name!r}; there are {', '.join(sorted(names))}" for name in groups if name not in names
    ]
    if faults:
        raise ConfigError(faults)
    if not only and not groups:
        return list(CHECKS)
    return [check for check in CHECKS if check.id in only or check.group.value in groups]
