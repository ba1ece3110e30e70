"""What an operation is, apart from how it runs: shared by the blocking and the asyncio façade."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any, Generic, TypedDict, TypeVar
from uuid import UUID

from nebis.core.codec import Codec, annotations_of, codec_for
from nebis.core.envelope import seal, unseal
from nebis.core.fingerprint import FingerprintVersions
from nebis.core.identity import PerOperation, Scope
from nebis.core.jsontext import json_text
from nebis.core.marks import Marks
from nebis.core.plain import unknown_fields
from nebis.core.record import Effect, EffectsMode, Outcome, OutcomeKind, Record, RecordId, Resource
from nebis.core.rejection import decode_rejection, encode_rejection
from nebis.core.secret import Secrets
from nebis.core.verbs import ExpiredPolicy
from nebis.deadline import Deadline
from nebis.effects import Query, Undo
from nebis.errors import BodyRefused, BodyTooLarge, ConfigError, MisuseError, RecordCorrupt, ResultUnstorable
from nebis.flow import Flow
from nebis.flows.plan import EffectPlan
from nebis.flows.reconcile import Inquiry
from nebis.flows.request import Disposition, Request, classify
from nebis.planning import faults_of_remedies, found_codec, plan_undo, require_name, sealed
from nebis.policy import EFFECTS_HELP, Policy, Reject, Wait
from nebis.ports.inbox import Inbox
from nebis.subject import Subject, is_storable
from nebis.velocity import Limit, Quota

C = TypeVar("C")
R = TypeVar("R")

LONGEST_NAME = 100
LONGEST_RESOURCE = 255


class PolicyOptions(TypedDict, total=False):
    """What may be chosen per operation; `Policy` says what each means and why its default is what it is."""

    lease: timedelta
    renewal: timedelta
    effect_timeout: timedelta
    single_transaction: bool
    in_flight: Reject | Wait
    waiters_limit: int
    retention: timedelta
    metadata_retention: timedelta
    when_expired: ExpiredPolicy
    doubt_deadline: timedelta
    recoveries_limit: int
    backoff_first: timedelta
    backoff_longest: timedelta
    confirm: timedelta
    command_limit_bytes: int
    result_limit_bytes: int
    shortest_key: int
    issued_keys: bool
    velocity: Sequence[Limit]
    quota: Quota


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration(Subject, Generic[C, R]):
    """A declared kind of thing that must happen once: a function of a command, with a result that can be stored."""

    command_codec: Codec[C]
    result_codec: Codec[R]
    takes_attempt: bool
    undos: Mapping[str, Undo] = field(default_factory=dict)
    queries: Mapping[str, Query] = field(default_factory=dict)
    beside: Callable[[C], Callable[[Inbox], Flow[None]] | None] = lambda _: None
    """What a command has written in the handler's own transaction, right before its outcome."""
    attempts_limit: int | None = None
    """After so many attempts a worker leaves a record to whoever sends its command in again."""
    readable_bytes: int = field(init=False, repr=False, compare=False)
    """How large a stored result may be: one that was stored under a larger limit is read all the same."""
    _encode: Callable[[Any], bytes] = field(init=False, repr=False, compare=False)
    _reveal: Callable[[Outcome], R | None] = field(init=False, repr=False, compare=False)
    """Both bound once, as every request has them."""

    def __post_init__(self) -> None:
        Subject.__post_init__(self)
        object.__setattr__(self, "readable_bytes", max(self.policy.result_limit_bytes, 1024 * 1024))
        object.__setattr__(self, "_encode", self.encode_result)
        object.__setattr__(self, "_reveal", self.reveal)

    def call(self, secrets: Secrets, *, key: str, tenant: str, command: C, deadline: Deadline | None = None) -> Request:
        """Turn a call into what the engine runs, or raise what is wrong with the request."""
        return self.call_of(self.marks(secrets, key, tenant, command), secrets, command, deadline)

    def call_of(self, marks: Marks, secrets: Secrets, command: C, deadline: Deadline | None = None) -> Request:
        """Do the same for a call of which it is known already which record it is about."""
        request = self._request(marks, secrets, command)
        if deadline is None and self._demands_nothing:
            return request
        return self.asked(request, secrets, marks.key, marks.tenant, command, deadline)

    def _request(self, marks: Marks, secrets: Secrets, command: C) -> Request:
        marks = marks.with_command(self.encode_command(command))
        request = self.request(marks, secrets, self._encode, encode_rejection, self._reveal)
        return self._with_undos(request) if self.undos else request

    def resume(self, secrets: Secrets, record: Record) -> tuple[Request, C]:
        """Turn a stored record into what the engine runs without a client, with the command that it was claimed for.

        Raises `RecordCorrupt` for a command that this code cannot read: it is decoded by the declared type alone,
        whatever the row says (SEC34).
        """
        if record.command is None:
            raise RecordCorrupt("its command was not stored")
        body = unseal(record.command, limit_bytes=max(self.policy.command_limit_bytes, 1024 * 1024))
        command = self.command_codec.decode(body)
        marks = self.marks(secrets, record.key, record.tenant, command)
        request = self._request(marks, secrets, command)
        fingerprints = dict(request.claim(record.record_id, record.nonce).fingerprints)
        if fingerprints.get(record.fingerprint_version) != record.fingerprint:
            raise RecordCorrupt("its command is not the one that was claimed, as far as this code can tell")
        return request, command

    def _with_undos(self, request: Request) -> Request:
        def planned(record: Record, effect: Effect) -> EffectPlan:
            return plan_undo(request, record, effect, self.undos[effect.purpose])

        return replace(request, undoable=frozenset(self.undos), plan_undo=planned)

    def inquiry(self, record: Record) -> Inquiry | None:
        """Return how to ask what became of the effect that is in doubt, if the operation says how."""
        opened = record.open_effect
        query = None if opened is None else self.queries.get(opened.purpose)
        if query is None:
            return None
        codec, limit_bytes = found_codec(query), self.policy.result_limit_bytes
        return Inquiry(query=query, encode=lambda value: sealed(codec, value, limit_bytes))

    def encode_command(self, command: C) -> bytes:
        """Render the command as it is stored for whoever resumes the operation."""
        try:
            body = self.command_codec.encode(command)
        except ResultUnstorable as error:
            raise BodyRefused(f"the command does not fit its declared type: {error.detail}") from error
        if len(body) > self.policy.command_limit_bytes:
            raise BodyTooLarge(self.policy.command_limit_bytes)
        return seal(body)

    def encode_result(self, value: Any) -> bytes:
        """Render a result to its final bytes, or raise `ResultUnstorable`."""
        try:
            body = self.result_codec.encode(value)
        except ResultUnstorable:
            raise
        except Exception as error:  # noqa: BLE001 - the work is done: whatever goes wrong now, it never runs again (O6).
            raise ResultUnstorable(f"encoding it raised {type(error).__name__}") from None
        if len(body) > self.policy.result_limit_bytes:
            raise ResultUnstorable(f"it has {len(body)} bytes, {self.policy.result_limit_bytes} are allowed")
        return seal(body)

    def reveal(self, outcome: Outcome) -> R | None:
        """Read a stored result back, or raise the rejection that was stored; None if nothing was kept."""
        if outcome.kind not in (OutcomeKind.SUCCEEDED, OutcomeKind.REJECTED):
            return None
        body = unseal(outcome.body, limit_bytes=self.readable_bytes)
        if outcome.kind is OutcomeKind.REJECTED:
            raise decode_rejection(body)
        return self.result_codec.decode_result(body)


def declare(
    name: str,
    function: Callable[..., object],
    *,
    is_async: bool,
    effects: EffectsMode | None,
    scope: Scope | None = None,
    fingerprint: FingerprintVersions | None = None,
    classify_error: Callable[[Exception], Disposition] = classify,
    undo: Mapping[str, Undo] | None = None,
    queries: Mapping[str, Query] | None = None,
    options: PolicyOptions,
    command_codec: Callable[..., Codec[Any]] = codec_for,
) -> Declaration[Any, Any]:
    """Check everything about an operation and report all faults at once."""
    faults = faults_of_name(name)
    if inspect.iscoroutinefunction(function) is not is_async:
        kind, face = ("a plain", "Nebis") if is_async else ("a coroutine", "AsyncNebis")
        faults.append(f"{function.__qualname__} is {kind} function; declare it on {face}")
    policy: Policy | None = None
    if not isinstance(effects, EffectsMode):
        faults.append(EFFECTS_HELP)
    else:
        try:
            policy = Policy(effects=effects, **options)
            faults.extend(policy.faults())
        except (TypeError, OverflowError) as error:
            faults.append(f"its policy has a wrong value ({error}); give spans as seconds(30), limits as whole numbers")
    hints, parameters = annotations_of(function), list(inspect.signature(function).parameters.values())
    takes_attempt = len(parameters) == 2
    if len(parameters) not in (1, 2):
        faults.append(
            f"{function.__qualname__} must take (command) or (attempt, command), not {len(parameters)} things"
        )
    codecs: list[Codec[Any]] = []
    command = parameters[-1].name if parameters else "command"
    for place, chosen in ((command, command_codec), ("return", codec_for)):
        try:
            codecs.append(chosen(hints.get(place, inspect.Parameter.empty), where=f"{function.__qualname__} {place}"))
        except ConfigError as error:
            faults.extend(error.faults)
    if fingerprint is not None:
        faults.extend(_faults_of_rules(fingerprint, hints.get(command)))
    faults.extend(faults_of_remedies(undo or {}, queries or {}, is_async=is_async))
    if (undo or queries) and effects is not EffectsMode.DECLARED:
        faults.append("undo= and queries= are about declared effects; say effects=Declared")
    if faults or policy is None:
        raise ConfigError([f"operation {name!r}: {fault}" for fault in faults])
    json_text()  # Loaded here if it is installed, and not by the first request.
    return Declaration(
        name=name,
        policy=policy,
        scope=scope or PerOperation(),
        fingerprints=fingerprint or FingerprintVersions(),
        command_codec=codecs[0],
        result_codec=codecs[1],
        takes_attempt=takes_attempt,
        classify=classify_error,
        undos=dict(undo or {}),
        queries=dict(queries or {}),
    )


def faults_of_name(name: str) -> list[str]:
    """Return why records cannot be stored under this name."""
    if 1 <= len(name) <= LONGEST_NAME and name.isprintable() and not any(character.isspace() for character in name):
        return []
    return [f"a name has 1 to {LONGEST_NAME} visible characters and never changes, as it is stored with each record"]


def _faults_of_rules(versions: FingerprintVersions, command: object) -> list[str]:
    """Find names in fingerprint rules that the command does not have: a typo would make different commands equal."""
    if not isinstance(command, type):
        return []
    return [
        f"fingerprint rule {rule.version} names {name!r}, which {command.__name__} does not have; correct the name"
        for rule in versions.rules
        for name in unknown_fields(command, rule.fields)
    ]


def checked_resource(type: str, id: str) -> Resource:  # noqa: A002 - the words of `nebis list --resource`.
    """Return a resource that every store can keep, or raise `MisuseError`."""
    if not all(1 <= len(text) <= LONGEST_RESOURCE and is_storable(text) for text in (type, id)):
        raise MisuseError(f"A resource is a type and an id of 1 to {LONGEST_RESOURCE} characters each; shorten them.")
    return Resource(type=type, id=id)


class AttemptView:
    """What a handler may know of its own attempt. The same on every attempt of a record, but for number and fence."""

    __slots__ = ("_request", "record")

    def __init__(self, record: Record, request: Request) -> None:
        self.record = record
        self._request = request

    @property
    def operation_id(self) -> str:
        """Return the public id of the record."""
        return str(self.record.record_id)

    @property
    def tenant(self) -> str:
        """Return whose operation it is, as verified authentication said."""
        return self.record.tenant

    @property
    def number(self) -> int:
        """Return which attempt this is, from 1."""
        return self.record.attempts

    @property
    def fence(self) -> int:
        """Return the number that orders this attempt against all others, for downstreams that compare it."""
        return self.record.fence

    @property
    def time(self) -> datetime:
        """Return when the first attempt claimed, on the store's clock."""
        return datetime.fromtimestamp(self.record.created_at / 1_000_000, UTC)

    @property
    def deadline(self) -> Deadline | None:
        """Return until when anybody waits; after it no effect or step begins, a transaction still does."""
        return self._request.deadline

    def token(self, name: str) -> str:
        """Return a signed token for one effect of this record, for a downstream that accepts each one once.

        The downstream checks it with `nebis.verify_token`, under the same name.
        """
        require_name(name)
        return self._request.sign_token(self.record.record_id, name)

    def new_id(self, name: str) -> UUID:
        """Return an id that every attempt of this record makes alike; another name makes another id."""
        return derived_uuid(self.record.record_id, name)


def derived_uuid(record_id: RecordId, name: str) -> UUID:
    """Derive an id from a record and a name, stable over attempts and unlike any other."""
    digest = sha256(b"nebis/new-id/1" + record_id.bytes + name.encode()).digest()
    return UUID(bytes=digest[:16], version=5)
