"""One protected endpoint, apart from its framework: from a request to a claim, from an ending to an answer."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from email.utils import formatdate
from types import FunctionType
from typing import Any, Final, TypeAlias, assert_never

from nebis.answering import failure, refusal
from nebis.core.envelope import seal, unseal
from nebis.core.fingerprint import Pairs
from nebis.core.quick import maker
from nebis.core.record import Outcome, OutcomeKind
from nebis.core.secret import Secrets
from nebis.deadline import Deadline
from nebis.errors import (
    BodyRefused,
    DeadlinePassed,
    InFlight,
    KeyMissing,
    MisuseError,
    NebisError,
    OutcomeUnknown,
    RecordCorrupt,
    Rejected,
    ResultUnstorable,
    Retryable,
    TenantMissing,
)
from nebis.flows.request import Ending, Failed, Finished, Request
from nebis.http.body import json_of
from nebis.http.deadline import deadline_of
from nebis.http.exchange import Exchange, Storage, Stored, first_told, freeze, thaw
from nebis.http.headers import ALWAYS_READ, HeaderPairs, key_value, names_of, require_once
from nebis.http.options import (
    Accept,
    BodyKey,
    BusinessKey,
    KeyRule,
    OptionalKey,
    ProxyHeader,
    Public,
    Reconstruct,
    Reference,
    RequiredKey,
)
from nebis.http.problem import accepted, problem, row_of
from nebis.http.rawexchange import RawExchange, replayed
from nebis.http.verdict import Answered, Binding
from nebis.http.wire import Wire
from nebis.ports.asks import Raised, Returned
from nebis.subject import Subject

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
LARGEST_HEAD_BYTES = 128 * 1024
"""What an answer may have beside its body when it is read back."""

_SUCCEEDED: Final = OutcomeKind.SUCCEEDED
"""Looked up once: nearly every answer is one."""

Tenant: TypeAlias = Callable[..., Any] | Public | ProxyHeader


class _Body:
    """Says that the command is the body itself."""


THE_BODY = _Body()


@dataclass(frozen=True, slots=True, kw_only=True)
class Incoming:
    """A request, once its framework has read all of it."""

    method: str
    headers: HeaderPairs = field(repr=False)
    query: Pairs = field(default=(), repr=False)
    path: Mapping[str, object] | None = field(default=None, repr=False)
    """The parameters of the path: paying one account is not paying another."""
    body: bytes = field(default=b"", repr=False)
    tree: object = field(default=None, repr=False)
    """The body as `json_of` read it, where that was done already."""
    peer: str | None = None
    command: object = field(default=THE_BODY, repr=False)
    """The validated command where the framework gives one (F2)."""


make_incoming: Final = maker(Incoming)


Admitted: TypeAlias = tuple[str, object, Deadline | None]
"""A request that may be looked up: its key, its command, and until when its client waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """What has to be right about a request before its key is looked up."""

    subject: Subject
    tenant: Tenant
    key: KeyRule
    wire: Wire
    body_limit_bytes: int = field(init=False, repr=False, compare=False)
    """How large a request may be."""
    wanted: Mapping[bytes, str] = field(init=False, repr=False, compare=False)
    """The headers that are read of a request, for `picked`: no other counts for anything."""
    _reads_key: bool = field(init=False, repr=False, compare=False)
    _reads_deadline: bool = field(init=False, repr=False, compare=False)
    _counts_headers: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        wire, rule = self.wire, self.key
        timing = {name for name in (wire.deadline_header, wire.timeout_header) if name is not None}
        counted = {name for each in self.subject.fingerprints.rules for name in each.headers}
        trusted = {self.tenant.name} if isinstance(self.tenant, ProxyHeader) else set()
        ignores_key = isinstance(rule, BodyKey) or (isinstance(rule, BusinessKey) and rule.always)
        # Each is asked for at every request, and none of them changes.
        keep = functools.partial(object.__setattr__, self)
        keep("body_limit_bytes", self.subject.policy.command_limit_bytes)
        keep("wanted", names_of({*ALWAYS_READ, wire.key_header, *timing, *counted, *trusted}))
        keep("_reads_key", not ignores_key)
        keep("_reads_deadline", bool(timing))
        keep("_counts_headers", bool(counted))

    @property
    def name(self) -> str:
        """Return the name under which records of this endpoint are stored."""
        return self.subject.name

    def admit(self, incoming: Incoming, tenant: object) -> Admitted | None:
        """Read whose request this is, its key and its command; None if it has no key and may run without one.

        Raises a `RequestError`, to be told by `refused`.
        """
        headers, deadline = incoming.headers, None
        require_once(headers)
        if self._reads_deadline:
            deadline = deadline_of(headers, self.wire)
            if deadline is not None and deadline.has_passed:
                raise DeadlinePassed(self.name)
        sent = key_value(headers, self.wire.key_header) if self._reads_key else None
        if sent is None and isinstance(self.key, RequiredKey):
            raise KeyMissing(self.name)
        if sent is None and isinstance(self.key, OptionalKey):
            return None
        if not isinstance(tenant, str) or not tenant:
            raise TenantMissing
        tree = incoming.tree
        if tree is None:
            tree = json_of(incoming.body, headers, limit_bytes=self.body_limit_bytes)
        command = tree if incoming.command is THE_BODY else incoming.command
        key = sent if sent is not None else self._made_key(tree, command)
        return key, command, deadline

    def _made_key(self, tree: object, command: object) -> str:
        match self.key:
            case BodyKey():
                return self.key.read(tree, self.name)
            case BusinessKey():
                return self._business_key(self.key, command)
            case RequiredKey() | OptionalKey():
                raise KeyMissing(self.name)
            case _:
                assert_never(self.key)

    def _business_key(self, rule: BusinessKey, command: object) -> str:
        try:
            return rule.of(command)
        except (LookupError, TypeError, ValueError, AttributeError, MisuseError):
            raise BodyRefused("it lacks what its business key is made of") from None

    def given_tenant(self, peer: str | None, headers: HeaderPairs) -> str | None:
        """Return the tenant where no function of the application is needed for it, or None if one is."""
        match self.tenant:
            case Public():
                return self.tenant.name
            case ProxyHeader():
                return self.tenant.read(peer, headers)
            case _:
                return None

    def refused(self, error: NebisError) -> Exchange:
        """Render an error as a problem, or raise it if it is a mistake of the application."""
        is_accepted = isinstance(self.subject.policy.in_flight, Accept)
        if is_accepted and isinstance(error, InFlight) and error.operation_id is not None:
            return accepted(error, self.wire)
        rendered = problem(error, self.wire)
        if rendered is None:
            raise error
        return rendered

    def replayed(self, exchange: Exchange, expires_at: int | None = None) -> Exchange:
        """Mark an answer that was given before."""
        marks = [(self.wire.replayed_header, "true")]
        if self.wire.expires_header is not None and expires_at is not None:
            marks.append((self.wire.expires_header, formatdate(expires_at / 1_000_000, usegmt=True)))
        return exchange.with_headers(*marks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Protection(Admission):
    """How one endpoint is protected: whatever it answers is stored and sent again."""

    binding: Binding
    storage: Storage
    reconstruct: Reconstruct | None = None
    _largest_bytes: int = field(init=False, repr=False, compare=False)
    _mark: bytes = field(init=False, repr=False, compare=False)
    _repeats_raw: bool = field(init=False, repr=False, compare=False)
    # Made once, as a method that is asked for is an object of its own each time, which every request would hold.
    _rejecting: Callable[[Exception], bytes] = field(init=False, repr=False, compare=False)
    _revealing: Callable[[Outcome], Exchange | None] = field(init=False, repr=False, compare=False)
    _encoders: dict[Callable[[Any], Exchange], Callable[[Any], bytes]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        Admission.__post_init__(self)
        keep = functools.partial(object.__setattr__, self)
        keep("_largest_bytes", max(self.storage.limit_bytes, 4 * 1024 * 1024) + LARGEST_HEAD_BYTES)
        keep("_mark", self.wire.replayed_header.encode("latin-1"))
        keep("_repeats_raw", self.reconstruct is None and self.wire.expires_header is None)
        keep("_rejecting", self._encode_rejection)
        keep("_revealing", self._reveal)
        keep("_encoders", {})

    def prepare(
        self, secrets: Secrets, incoming: Incoming, tenant: object, *, render: Callable[[Any], Exchange]
    ) -> Request | None:
        """Turn a request into what the engine runs; None if it has no key and may run without one.

        Raises a `RequestError`, to be told by `refused`. `render` makes an answer of what an endpoint gives to
        `tx.finish`.
        """
        admitted = self.admit(incoming, tenant)
        if admitted is None:
            return None
        key, command, deadline = admitted
        assert isinstance(tenant, str)  # Nobody else is admitted.
        path = incoming.path
        # By position: every request comes through here.
        # fmt: off
        marks = self.subject.marks(
            secrets, key, tenant, {"path": path if type(path) is dict else dict(path or ()), "body": command},
            incoming.headers if self._counts_headers else (), incoming.query,
        )
        request = self.subject.request(
            marks, secrets, self._encoders.get(render) or self._encoder(render), self._rejecting, self._revealing
        )
        # fmt: on
        return self.subject.asked(request, secrets, key, tenant, command, deadline)

    def ended(
        self, exchange: Exchange | RawExchange, *, error: Exception | None = None, is_own: bool = True
    ) -> Returned[Any] | Raised:
        """Say how an attempt ended whose framework rendered an answer, of the endpoint or of its exception."""
        if error is None and is_own and exchange.status < 400:
            return Returned(exchange)
        if isinstance(error, NebisError) and exchange.status == 500 and row_of(error) is not None:
            # The framework does not know our signals and rendered one as a crash; nobody meant that as an answer.
            return Raised(error)
        answered = exchange.exchange() if isinstance(exchange, RawExchange) else exchange
        return Raised(Answered(answered, error, is_own=is_own))

    def answer(self, ending: Ending, *, tenant: str, live: Exchange | None = None) -> Exchange | Reference:
        """Say what the caller gets; raise the endpoint's own exception where there is nothing else to tell.

        `live` is what the framework rendered for this attempt. A `Reference` is rebuilt, then marked by `replayed`.
        """
        match ending:
            case Finished():
                return self._finished(ending, tenant, live)
            case Failed():
                return self._failed(failure(ending))
            case _:
                return self.refused(refusal(self.name, ending))

    def raw_answer(
        self, ending: Ending, *, tenant: str, live: RawExchange | None = None
    ) -> RawExchange | Exchange | Reference:
        """Say what `answer` says, in the bytes of ASGI where most requests end: with a first answer, or a replay."""
        if isinstance(ending, Finished) and ending.outcome.kind is _SUCCEEDED:
            if not ending.is_replay:
                # What the store confirmed is what was made of the live answer: it need not be read back.
                if live is not None and live.sealed == ending.outcome.body:
                    return live.first_told()
            elif self._repeats_raw:
                try:
                    return replayed(unseal(ending.outcome.body, limit_bytes=self._largest_bytes), self._mark)
                except RecordCorrupt as error:
                    return self.refused(error)
        return self.answer(ending, tenant=tenant, live=None if live is None else live.exchange())

    def _finished(self, ending: Finished, tenant: str, live: Exchange | None) -> Exchange | Reference:
        kind = ending.outcome.kind
        if kind is OutcomeKind.UNKNOWN:
            return self.refused(OutcomeUnknown(self.name, str(ending.record_id)))
        try:
            stored = self._thawed(ending.outcome.body)
        except RecordCorrupt as error:
            return self.refused(error)
        if not ending.is_replay:
            is_live = live is not None and kind is not OutcomeKind.UNSTORABLE
            return first_told(live, stored, self.storage) if live is not None and is_live else stored.exchange
        if stored.reference is not None and self.reconstruct is not None:
            return Reference(id=stored.reference, schema=stored.schema or "", tenant=tenant)
        return self.replayed(stored.exchange, ending.expires_at)

    def _failed(self, error: Exception) -> Exchange:
        if isinstance(error, Answered):
            # Whatever failed after the endpoint, its transaction did not commit: nobody may be told that it did.
            is_success = error.exchange.status < 400
            return self.refused(Retryable("the answer could not be kept")) if is_success else error.exchange
        if not isinstance(error, NebisError):
            raise error
        return self.refused(error)

    def _encoder(self, render: Callable[[Any], Exchange]) -> Callable[[Any], bytes]:
        encoder = functools.partial(self._encode, render)
        if isinstance(render, FunctionType):  # Anything else may be made anew for each request.
            self._encoders[render] = encoder
        return encoder

    def _encode(self, render: Callable[[Any], Exchange], value: Any) -> bytes:
        try:
            if type(value) is RawExchange:
                if self.reconstruct is None and value.status >= 200:
                    value.sealed = seal(value.freeze(self.storage))
                    return value.sealed
                value = value.exchange()
            exchange = value if isinstance(value, Exchange) else render(value)
            reference = self.reconstruct.refer(json.loads(exchange.body)) if self.reconstruct is not None else None
            return seal(freeze(exchange, self.storage, reference=reference))
        except ResultUnstorable:
            raise
        except Exception as error:  # noqa: BLE001 - the work is done: whatever goes wrong now, it never runs again (O6).
            raise ResultUnstorable(f"rendering it raised {type(error).__name__}") from None

    def _encode_rejection(self, error: Exception) -> bytes:
        """Render a refusal, or an answer that could not be kept; it always has some form."""
        # A refusal keeps its body where successes do not: it holds no secret, and a client needs to know the reason.
        storage = replace(self.storage, has_body=True)
        try:
            return seal(freeze(self._refusal(error), storage))
        except ResultUnstorable as unstorable:
            return seal(freeze(self.refused(unstorable), replace(storage, limit_bytes=LARGEST_HEAD_BYTES)))

    def _refusal(self, error: Exception) -> Exchange:
        if isinstance(error, Answered):
            return error.exchange
        # Of an exception that says nothing to callers only the type is told: the rest may be somebody's data (SEC24).
        known = error if isinstance(error, Rejected | ResultUnstorable) else Rejected(type(error).__name__)
        return self.refused(known)

    def _reveal(self, outcome: Outcome) -> Exchange | None:
        """Read an answer back for an endpoint that repeats it; None if it was not kept, or is rebuilt each time."""
        if outcome.kind not in (OutcomeKind.SUCCEEDED, OutcomeKind.REJECTED):
            return None
        stored = self._thawed(outcome.body)
        return stored.exchange if stored.reference is None else None

    def _thawed(self, sealed: bytes) -> Stored:
        return thaw(unseal(sealed, limit_bytes=self._largest_bytes))
