"""What requests are about: a name, a policy, and what makes two of them the same."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Any, Final

from nebis.core.fingerprint import NOTHING_ELSE, START_TREE, Fingerprinting, FingerprintVersions, Pairs
from nebis.core.identity import Identity, Scope, begun_identity, identity_within, scope_name
from nebis.core.issued import read_issued
from nebis.core.keygrammar import Key, parse_key
from nebis.core.marks import Marking, Marks, make_marks
from nebis.core.record import Outcome, RecordId
from nebis.core.secret import Begun, Purpose, Secret, Secrets
from nebis.core.token import issue_token
from nebis.core.velocity import Charge
from nebis.core.verbs import Terms
from nebis.deadline import Deadline
from nebis.errors import KeyMalformed, MisuseError
from nebis.flows.request import Disposition, Request, classify, make_request, reveal_nothing
from nebis.keys import is_ordinary, weaknesses
from nebis.policy import Policy, Wait
from nebis.velocity import charges_of, charges_of_quota

log = logging.getLogger("nebis")

LONGEST_TENANT = 255
MOST_PLACES: Final = 256
"""So many tenants of an operation are kept at hand, at half a kilobyte each; beyond that all of them are begun anew."""


class _Hand:
    """What signs for the requests of a subject while a process has these secrets."""

    __slots__ = ("derive_key", "fingerprints", "places", "scope", "secrets", "sign_token", "usual")

    def __init__(self, secrets: Secrets, versions: FingerprintVersions, terms: Terms) -> None:
        self.secrets, self.scope = secrets, terms.scope
        fingerprinting = Fingerprinting(versions, secrets.keyring, operation=terms.operation)
        self.fingerprints = fingerprinting.of
        self.derive_key = partial(effect_key, secrets.keyring.newest)
        self.sign_token = partial(effect_token, secrets.keyring.newest)
        self.places: dict[str, Begun[Identity]] = {}
        """What the identities of a tenant begin with."""
        begun, number = fingerprinting.begun, fingerprinting.number
        self.usual: Callable[[str, str, object], Marks | None] = _nothing_is_usual
        """Makes the marks of a request in one step; None where that is not enough."""
        if begun is not None:
            self.usual = Marking(Marks, self.places, begun, number, START_TREE, NOTHING_ELSE, terms).of

    def place(self, tenant: str) -> Begun[Identity]:
        """Begin the identities of a tenant, or raise `MisuseError` for what is none."""
        begun = begun_identity(self.secrets.identity, tenant=checked_tenant(tenant), scope=self.scope)
        if len(self.places) >= MOST_PLACES:
            self.places.clear()
        self.places[tenant] = begun
        return begun


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
    _terms: Terms = field(init=False, repr=False, compare=False)
    """What all claims have in common, worked out once."""
    _demands_nothing: bool = field(init=False, repr=False, compare=False)
    """Clients may ask with any key, at any pace; else `asked` has something to look at."""
    may_retell: bool = field(init=False, repr=False, compare=False)
    """Whether a replay may be told before anything is asked of its request."""
    _hand: _Hand | None = field(init=False, repr=False, compare=False, default=None)

    def __post_init__(self) -> None:
        policy = self.policy
        terms = Terms(
            scope=scope_name(self.scope, operation=self.name),
            operation=self.name,
            mode=policy.effects,
            lease_us=policy.lease_us,
            retention=policy.kept,
            when_expired=policy.when_expired,
            will_wait=isinstance(policy.in_flight, Wait),
        )
        object.__setattr__(self, "_terms", terms)
        demands_nothing = not (policy.issued_keys or policy.velocity or policy.quota is not None)
        object.__setattr__(self, "_demands_nothing", demands_nothing)
        object.__setattr__(self, "may_retell", demands_nothing and not policy.single_transaction)

    def marks(  # noqa: PLR0917 - by position only where every request comes through; elsewhere they are named.
        self,
        secrets: Secrets,
        key: str,
        tenant: str,
        command: object,
        headers: Pairs = (),
        query: Pairs = (),
        api_version: str = "",
    ) -> Marks:
        """Say which record a call is about and what it asks for, or raise what is wrong with the request.

        Without the command as it is stored, which only some need (`Marks.with_command`).
        """
        hand = self._hand
        if hand is None or hand.secrets is not secrets:
            hand = self._hand_of(secrets)
        if not query and not headers and not api_version:
            usual = hand.usual(key, tenant, command)
            if usual is not None and len(key) >= self.policy.shortest_key:
                return usual
        parsed = key if is_ordinary(key) and len(key) >= self.policy.shortest_key else self._judged(key)
        found = identity_within(hand.places.get(tenant) or hand.place(tenant), parsed)
        fingerprints = hand.fingerprints(command, headers, query, api_version)
        return make_marks(Marks, (found, tenant, parsed, fingerprints, self._terms, None))

    def request(
        self,
        marks: Marks,
        secrets: Secrets,
        encode: Callable[[Any], bytes],
        encode_rejection: Callable[[Exception], bytes],
        reveal: Callable[[Outcome], object] = reveal_nothing,
    ) -> Request:
        """Turn what a call is known by into what the engine runs."""
        hand = self._hand_of(secrets)
        # By position, as the fields of a request stand: every request comes through here.
        # fmt: off
        return make_request(
            marks, self.policy, encode, encode_rejection, hand.derive_key, hand.sign_token, reveal, self.classify
        )
        # fmt: on

    def _hand_of(self, secrets: Secrets) -> _Hand:
        hand = self._hand
        if hand is None or hand.secrets is not secrets:
            hand = _Hand(secrets, self.fingerprints, self._terms)
            object.__setattr__(self, "_hand", hand)
        return hand

    def asked(  # noqa: PLR0917 - as above.
        self,
        request: Request,
        secrets: Secrets,
        key: str,
        tenant: str,
        command: object,
        deadline: Deadline | None = None,
    ) -> Request:
        """Return a client's own request, with what is demanded of those and of no worker that goes on for them.

        Raises `TokenInvalid` for a key that is not one of ours, where the policy wants one.
        """
        if deadline is None and self._demands_nothing:
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

    def _judged(self, key: str) -> Key:
        """Read a key that is not like most, or too short."""
        parsed = parse_key(key)
        if len(parsed) < self.policy.shortest_key:
            raise KeyMalformed(f"this operation asks for at least {self.policy.shortest_key} characters")
        self._warn_of_weakness(parsed)
        return parsed

    def _warn_of_weakness(self, key: Key) -> None:
        """Say once per kind and operation that clients send keys that will collide or leak; never which."""
        for weakness in weaknesses(key) if self.judges_keys else ():
            if weakness.code not in self._warned:
                self._warned.add(weakness.code)
                log.warning(
                    "%s: clients send weak idempotency keys (%s): %s", self.name, weakness.code, weakness.advice
                )


def _nothing_is_usual(_key: str, _tenant: str, _command: object) -> None:
    """Leave every request to the general way: its operation has several rules, or its process several secrets."""


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
