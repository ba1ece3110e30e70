"""The wish to run a whole request inside one transaction."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Single:
    """Claim, handler and outcome share one transaction, on the given connection or, for None, on one of ours."""

    target: object | None
