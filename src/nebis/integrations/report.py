"""What an application promises, route by route: for its log at start-up, and for CI.

One marker tells: the endpoint that a framework's route table holds has an attribute `__nebis__`. It is an `Admission`
(a `Protection` or a `Bound`) if the endpoint is protected, and `Unprotected` if somebody decided that it need not be.
Decorators that keep a function's attributes, as `functools.wraps` does, keep the marker.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum
from typing import Any, TypeVar, assert_never

from nebis.core.record import EffectsMode
from nebis.errors import ConfigError
from nebis.http.options import BodyKey, BusinessKey, OptionalKey, RequiredKey
from nebis.http.pattern import Pattern
from nebis.integrations.bound import Bound
from nebis.integrations.protection import SAFE_METHODS, Admission
from nebis.integrations.rules import Rule

F = TypeVar("F", bound=Callable[..., Any])

MARKER = "__nebis__"
ANY = "ANY"
"""The method of a route that takes whatever comes, as a Django function view does."""
REPEATABLE = SAFE_METHODS | {"PUT", "DELETE"}
"""Methods that HTTP itself lets a client send again (RFC 9110, 9.2.2); the others need a key."""

_PLACEHOLDER = re.compile(r"\{[^{}/]*\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Unprotected:
    """Somebody's decision that a route needs no key."""

    reason: str


def unprotected(reason: str) -> Callable[[F], F]:
    """Say why a POST or PATCH endpoint needs no key, so that neither the log nor `nebis check` complains of it."""
    if not reason.strip():
        raise ConfigError(["unprotected() takes the reason why a repeated request does no harm; give one"])

    def decorate(endpoint: F) -> F:
        if isinstance(mark_of(endpoint), Admission):
            name = getattr(endpoint, "__qualname__", repr(endpoint))
            raise ConfigError([f"{name} is protected and unprotected; remove one of the two decorators"])
        setattr(endpoint, MARKER, Unprotected(reason=reason.strip()))
        return endpoint

    return decorate


def mark_of(endpoint: object) -> Admission | Unprotected | None:
    """Return what is known of an endpoint."""
    while isinstance(endpoint, functools.partial):
        endpoint = endpoint.func
    found = getattr(endpoint, MARKER, None)
    return found if isinstance(found, Admission | Unprotected) else None


class Resumer(StrEnum):
    """Who can go on with a request whose process died."""

    WORKER = "a worker or its client"
    CLIENT = "its client's next request"
    NOBODY = "nobody, a person resolves it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """What is promised about one protected route."""

    name: str
    is_bound: bool
    """Whether it calls an operation; a bare endpoint has no stored command, so that no worker can go on with it."""
    effects: EffectsMode
    key: str
    retention: timedelta
    crash: str
    resumer: Resumer

    @property
    def window(self) -> str:
        """Return for how long an answer is kept, in the largest unit that it is a whole number of."""
        seconds = self.retention.total_seconds()
        for unit, length in (("day", 86_400), ("hour", 3600), ("minute", 60)):
            if seconds % length == 0:
                return f"{seconds / length:g} {unit}{'' if seconds == length else 's'}"
        return f"{seconds:g} seconds"


def promise(admission: Admission) -> Promise:
    """Say what a route promises."""
    policy, is_bound = admission.subject.policy, isinstance(admission, Bound)
    resumer = Resumer.WORKER if is_bound and not policy.single_transaction else Resumer.CLIENT
    match policy.effects:
        case EffectsMode.LOCAL:
            crash = "rolled back, then run again"
        case EffectsMode.DECLARED:
            crash = "resumed after its last effect"
        case EffectsMode.OPAQUE:
            crash, resumer = "in doubt, never run again", Resumer.NOBODY
        case _:
            assert_never(policy.effects)
    return Promise(
        name=admission.name,
        is_bound=is_bound,
        effects=policy.effects,
        key=_key_words(admission),
        retention=policy.retention,
        crash=crash,
        resumer=resumer,
    )


def _key_words(admission: Admission) -> str:
    match admission.key:
        case RequiredKey():
            return "required"
        case OptionalKey():
            return "optional"
        case BodyKey():
            return f"body member {admission.key.field}"
        case BusinessKey():
            return "business key" if admission.key.always else "business key if none"
        case _:
            assert_never(admission.key)


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """One method of one route, as its framework's table has it."""

    method: str
    path: str
    """With placeholders as `{name}`, whatever the framework writes."""
    endpoint: str
    mark: Admission | Unprotected | None = None
    faults: tuple[str, ...] = ()
    """Why a protected endpoint would refuse every request."""
    late_exits: tuple[str, ...] = ()
    """Dependencies that end after the answer was sent."""

    @property
    def shown(self) -> str:
        """Return how people write it."""
        return f"{self.method} {self.path}"

    def is_meant(self, pattern: Pattern) -> bool:
        """Tell whether a pattern is for this route."""
        example = _PLACEHOLDER.sub("x", self.path)
        return pattern.matches(pattern.method if self.method == ANY else self.method, example)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All that can be said about the routes of an application."""

    routes: tuple[Listed, ...]
    unseen: tuple[str, ...] = ()
    """Parts that have no table of routes to read."""
    unused: tuple[str, ...] = ()
    """Rules and allowances that are for no route."""

    @property
    def protected(self) -> tuple[tuple[Listed, Promise], ...]:
        """Return the protected routes, each with its promise."""
        return tuple((one, promise(one.mark)) for one in self.routes if isinstance(one.mark, Admission))

    @property
    def unprotected(self) -> tuple[Listed, ...]:
        """Return the routes that a retry runs again, and of which nobody said that this is right."""
        return tuple(one for one in self.routes if one.mark is None and one.method not in REPEATABLE)

    @property
    def allowed(self) -> tuple[tuple[Listed, str], ...]:
        """Return the routes that need no key, each with the reason."""
        return tuple((one, one.mark.reason) for one in self.routes if isinstance(one.mark, Unprotected))

    @property
    def faults(self) -> tuple[str, ...]:
        """Return why protected routes would refuse every request."""
        return tuple(f"{one.shown}: {fault}" for one in self.routes for fault in one.faults)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Return what works, and should be looked at."""
        late = (
            f"{one.shown}: the dependency {name} ends after the answer is stored and sent. If it commits there, a "
            "failed commit comes too late: use attempt.transaction, or Depends(..., scope='function')"
            for one in self.routes
            if isinstance(one.mark, Admission)
            for name in one.late_exits
        )
        return (*late, *self.unused)

    def allowing(self, patterns: Iterable[str]) -> Report:
        """Return the report with these routes allowed to be unprotected; raises `ConfigError` for no pattern."""
        routes, unused = list(self.routes), list(self.unused)
        for text in patterns:
            pattern = Pattern.parse(text)
            meant = [place for place, one in enumerate(routes) if one.mark is None and one.is_meant(pattern)]
            if not meant:
                unused.append(f"{text} is allowed to be unprotected, and no such route is; take it off the list")
            for place in meant:
                routes[place] = replace(routes[place], mark=Unprotected(reason="allowed here"))
        return replace(self, routes=tuple(routes), unused=tuple(unused))

    def as_json(self) -> dict[str, object]:
        """Return the report for programs."""
        return {
            "protected": [
                {
                    "method": one.method,
                    "path": one.path,
                    "name": what.name,
                    "kind": "operation" if what.is_bound else "endpoint",
                    "effects": what.effects.value,
                    "key": what.key,
                    "retention_seconds": what.retention.total_seconds(),
                    "after_a_crash": what.crash,
                    "resumed_by": what.resumer.name.lower(),
                }
                for one, what in self.protected
            ],
            "unprotected": [
                {"method": one.method, "path": one.path, "endpoint": one.endpoint} for one in self.unprotected
            ],
            "allowed": [{"method": one.method, "path": one.path, "reason": reason} for one, reason in self.allowed],
            "faults": list(self.faults),
            "warnings": list(self.warnings),
            "unseen": list(self.unseen),
        }


def reported(routes: Sequence[Listed], rules: Sequence[Rule[Any]] = (), unseen: Sequence[str] = ()) -> Report:
    """Bring a table of routes and the rules around it together."""
    lines = [_ruled(one, rules) for one in routes if one.method not in SAFE_METHODS]
    taken = {id(line.mark) for line in lines}
    unused = []
    for rule in rules:
        method, path = rule.pattern.method, "/" + "/".join(rule.pattern.segments)
        if not routes:
            # Without a table of routes the rules are all that is known.
            lines.append(Listed(method=method, path=path, endpoint="", mark=rule.protection))
        elif id(rule.protection) not in taken:
            unused.append(f"the rule {method} {path} ({rule.protection.name}) is for no route; correct its pattern")
    return Report(routes=tuple(lines), unseen=tuple(unseen), unused=tuple(unused))


def _ruled(one: Listed, rules: Sequence[Rule[Any]]) -> Listed:
    rule = next((rule for rule in rules if one.is_meant(rule.pattern)), None)
    if rule is None:
        return one
    if isinstance(one.mark, Admission):
        twice = "is protected by a rule and by a decorator, and would refuse every request; remove one"
        return replace(one, faults=(*one.faults, twice))
    # A rule for POST does not say anything about the other methods of a route that takes them all.
    return replace(one, mark=rule.protection, method=rule.pattern.method)
