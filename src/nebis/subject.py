"""What requests are about: a name, a policy, and what makes two of them the same."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Any, NamedTuple, cast

from nebis.core.fingerprint import Fingerprint, FingerprintVersions, Pairs
from nebis.core.identity import Identity, Scope, identity, scope_name
from nebis.core.issued import read_issued
from nebis.core.keygrammar import Key, parse_key
from nebis.core.quick import maker
from nebis.core.record import EffectsMode, Nonce, Outcome, RecordId, Retention
from nebis.core.secret import Purpose, Secret, Secrets
from nebis.core.token import issue_token
from nebis.core.velocity import Charge
from nebis.core.verbs import Claim, ExpiredPolicy
from nebis.deadline import Deadline
from nebis.errors import KeyMalformed, MisuseError
from nebis.flows.request import Disposition, Request, classify, reveal_nothing
from nebis.keys import is_ordinary, weaknesses
from nebis.policy import Policy, Wait
from nebis.velocity import charges_of, charges_of_quota

log = logging.getLogger("nebis")

LONGEST_TENANT = 255


@dataclass(frozen=True, slots=True, kw_only=True)
class _Terms:
    """What all claims of a subject have in common, worked out once."""

    scope: str
    mode: EffectsMode
    lease_us: int
    retention: Retention
    when_expired: ExpiredPolicy
    will_wait: bool
    demands_nothing: bool
    """Clients may ask with any key, at any pace; else `Subject.asked` has something to look at."""


class _Marks(NamedTuple):
    """What one request is known by; called, it makes the claim of an attempt from its random marks.

    One tuple in place of a closure or a method: all that a waiting request holds is gone through by the garbage
    collector again and again.
    """

    terms: _Terms
    operation: str
    tenant: str
    key: Key
    identity: Identity
    fingerprints: tuple[tuple[int, Fingerprint], ...]
    command: bytes | None

    def __call__(self, record_id: RecordId, nonce: bytes) -> Claim:
        terms, operation, tenant, key, identity, fingerprints, command = self
        return _claim(
            identity=identity,
            record_id=record_id,
            nonce=Nonce(nonce),
            tenant=tenant,
            scope=terms.scope,
            operation=operation,
            key=key,
            fingerprints=fingerprints,
            mode=terms.mode,
            lease_us=terms.lease_us,
            retention=terms.retention,
            when_expired=terms.when_expired,
            will_wait=terms.will_wait,
            command=command,
        )


class _Signing(NamedTuple):
    """What is signed for the effects of requests, alike for all of them while a secret is the newest."""

    secret: Secret
    derive_key: Callable[[RecordId, str], str]
    sign_token: Callable[[RecordId, str], str]

    @classmethod
    def by(cls, secret: Secret) -> _Signing:
        """Sign with a secret."""
        return cls(secret, partial(effect_key, secret), partial(effect_token, secret))


_claim = maker(Claim)
_request = maker(Request)
# Straight from a tuple in the order of the fields, which is checked by nobody: there is one place that does it.
_marks = cast("Callable[[tuple[object, ...]], Callable[[RecordId, bytes], Claim]]", partial(tuple.__new__, _Marks))


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A kind of request that is protected: an operation, or an endpoint of a web framework."""

    name: str
    policy: Policy
    scope: Scope
    fingerprints: FingerprintVersions
    classify: Callable[[Exception], Disposition] = classify
    judges_keys: bool = True
    """Clients choose the keys, and their developers are told of weak ones."""
    _warned: set[str] = field(default_factory=set, repr=False, compare=False)
    _terms: _Terms = field(init=False, repr=False, compare=False)
    _signing: _Signing | None = field(init=False, repr=False, compare=False, default=None)

    def __post_init__(self) -> None:
        terms = _Terms(
            scope=scope_name(self.scope, operation=self.name),
            mode=self.policy.effects,
            lease_us=self.policy.lease_us,
            retention=self.policy.kept,
            when_expired=self.policy.when_expired,
            will_wait=isinstance(self.policy.in_flight, Wait),
            demands_nothing=not (self.policy.issued_keys or self.policy.velocity or self.policy.quota is not None),
        )
        object.__setattr__(self, "_terms", terms)

    def request(
        self,
        secrets: Secrets,
        *,
        key: str,
        tenant: str,
        command: object,
        stored_command: bytes | None,
        encode: Callable[[Any], bytes],
        encode_rejection: Callable[[Exception], bytes],
        reveal: Callable[[Outcome], object] = reveal_nothing,
        headers: Pairs = (),
        query: Pairs = (),
        api_version: str = "",
    ) -> Request:
        """Turn a call into what the engine runs, or raise what is wrong with the request."""
        ordinary = is_ordinary(key)
        parsed = Key(key) if ordinary else parse_key(key)
        if len(parsed) < self.policy.shortest_key:
            raise KeyMalformed(f"this operation asks for at least {self.policy.shortest_key} characters")
        if not ordinary:
            self._warn_of_weakness(parsed)
        found = identity(secrets.identity, tenant=checked_tenant(tenant), scope=self._terms.scope, key=parsed)
        fingerprints = self.fingerprints.fingerprints(
            secrets.keyring,
            operation=self.name,
            command=command,
            headers=headers,
            query=query,
            api_version=api_version,
        )
        secret, signing = secrets.keyring.secrets[0], self._signing
        if signing is None or signing.secret is not secret:
            signing = _Signing.by(secret)
            object.__setattr__(self, "_signing", signing)
        return _request(
            claim=_marks((self._terms, self.name, tenant, parsed, found, fingerprints, stored_command)),
            policy=self.policy,
            encode=encode,
            encode_rejection=encode_rejection,
            reveal=reveal,
            derive_key=signing.derive_key,
            sign_token=signing.sign_token,
            classify=self.classify,
        )

    def asked(
        self,
        request: Request,
        secrets: Secrets,
        *,
        key: str,
        tenant: str,
        command: object,
        deadline: Deadline | None = None,
    ) -> Request:
        """Return a client's own request, with what is demanded of those and of no worker that goes on for them.

        Raises `TokenInvalid` for a key that is not one of ours, where the policy wants one.
        """
        if deadline is None and self._terms.demands_nothing:
            return request
        policy, may_begin = self.policy, True
        if policy.issued_keys:
            may_begin = time.time() < read_issued(parse_key(key), secrets.keyring, tenant=tenant, operation=self.name)
        if deadline is None and may_begin and not policy.velocity and policy.quota is None:
            return request
        named: Any = {"operation": self.name, "tenant": tenant}
        charges = charges_of(policy.velocity, secrets.keyring, command=command, **named)
        seats: list[Charge] = []
        meters: list[Charge] = []
        if policy.quota is not None:
            named |= {"retention": policy.retention, "lease": policy.lease}
            seats, meters = charges_of_quota(policy.quota, secrets.keyring, **named)
        return replace(
            request,
            deadline=deadline,
            may_begin=may_begin,
            charges=(*charges, *seats, *meters),
            seats=tuple(seats),
            meters=tuple(meters),
        )

    def _warn_of_weakness(self, key: Key) -> None:
        """Say once per kind and operation that clients send keys that will collide or leak; never which."""
        for weakness in weaknesses(key) if self.judges_keys else ():
            if weakness.code not in self._warned:
                self._warned.add(weakness.code)
                log.warning(
                    "%s: clients send weak idempotency keys (%s): %s", self.name, weakness.code, weakness.advice
                )


def effect_key(secret: Secret, record_id: RecordId, name: str) -> str:
    """Derive the key under which a downstream knows an effect; stored with the intent and read back from there."""
    return "nebis-" + secret.sign(Purpose.EFFECT, b"nebis/effect/1", record_id.bytes, name.encode()).hex()[:40]


def effect_token(secret: Secret, record_id: RecordId, name: str) -> str:
    """Sign the one-time token of an effect."""
    return issue_token(secret.derive(Purpose.TOKEN), record_id, name)


# Every request asks, about few different ones.
@lru_cache(maxsize=4096)
def checked_tenant(tenant: str) -> str:
    """Return a tenant that can own keys; an empty one would be everybody's (SEC02)."""
    if not 1 <= len(tenant) <= LONGEST_TENANT or not is_storable(tenant):
        raise MisuseError(
            f"A tenant is 1 to {LONGEST_TENANT} characters from verified authentication; "
            "name one even if there is only one."
        )
    return tenant


def is_storable(text: str) -> bool:
    """Tell whether every store keeps this text as it is: some end at a NUL, none keeps half of a surrogate pair."""
    return "\x00" not in text and (text.isascii() or not any("\ud800" <= each <= "\udfff" for each in text))
