"""What a consumer is, apart from how it runs: an operation whose command is a message and whose key is its id."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from hashlib import sha256
from typing import Any

from nebis.consuming.incoming import IncomingCodec, incoming_codec
from nebis.consuming.letters import Refusal, letter_of, partition_of, place_of, read_headers
from nebis.core.fingerprint import FingerprintRule, FingerprintVersions
from nebis.core.record import EffectsMode
from nebis.core.secret import Secrets
from nebis.core.verbs import ExpiredPolicy
from nebis.declaration import Declaration, PolicyOptions, declare
from nebis.delivery import Delivery, Incoming, ParkReason, Verdict
from nebis.effects import Query, Undo
from nebis.errors import BodyRefused, BodyTooLarge, ConfigError, KeyMalformed, RecordCorrupt
from nebis.flow import Flow
from nebis.flows.admit import Admission, park
from nebis.flows.request import Request
from nebis.ports.inbox import Inbox, Letter, ParkedLetter, Place
from nebis.subject import is_storable

TENANT = "nebis.messages"
"""Owns the records of all consumers: a message belongs to its consumer, not to a caller."""

RETENTION = timedelta(days=14)
# No hosted broker keeps a message for longer than fourteen days by default, most for seven: until then every
# redelivery is answered from the record itself.
METADATA_RETENTION = timedelta(days=90)
# A topic that is replayed on purpose, or a dead-letter queue that is emptied a quarter later, meets the tombstone.
ATTEMPTS_LIMIT = 10
# With the default back-off about eight minutes: what fails for longer needs a person, and others need the queue.
REDRIVE_PAUSE_US = 30_000_000
"""How long a worker leaves a message alone that it just sent in again in vain."""

Dedup = Callable[[Incoming[Any]], str]


@dataclass(frozen=True, slots=True)
class Unfit:
    """A delivery that cannot even be asked for: it is kept as it came."""

    letter: Letter
    reason: ParkReason
    detail: str
    place: Place | None

    def parked(self) -> Flow[Verdict]:
        """Return the flow that keeps it."""
        return park(self.letter, self.reason, self.detail, place=self.place)


@dataclass(frozen=True, slots=True, kw_only=True)
class Intake:
    """Turns deliveries into what the engine runs."""

    declaration: Declaration[Incoming[Any], None]
    codec: IncomingCodec
    dedup: Dedup | None
    is_sequenced: bool
    attempts_limit: int

    def admitted(self, secrets: Secrets, delivery: Delivery) -> tuple[Admission, Incoming[Any]] | Unfit:
        """Read a delivery, or say why it is unfit."""
        letter = letter_of(self.declaration.name, delivery)
        place = place_of(self.declaration.name, delivery) if self.is_sequenced else None
        try:
            incoming = self._incoming(delivery)
            request = self._request(secrets, incoming, self._key(incoming, place))
        except Refusal as refusal:
            return Unfit(letter, refusal.reason, refusal.detail, place)
        admission = Admission(
            request=request,
            letter=letter,
            attempts_limit=self.attempts_limit,
            # One that came back may have taken its process down: it is claimed first, so that this is counted.
            is_single=self.declaration.policy.single_transaction and not delivery.redeliveries,
            place=place,
        )
        return admission, incoming

    def redriven(self, secrets: Secrets, parked: ParkedLetter) -> tuple[Admission, Incoming[Any]] | Unfit:
        """Read a parked message again, as it was delivered."""
        letter = parked.letter
        if letter.payload is None:
            return Unfit(letter, parked.reason, parked.detail, None)
        delivery = Delivery(
            payload=letter.payload,
            topic=letter.topic,
            id=letter.message_id,
            content_type=letter.content_type,
            headers=dict(letter.headers),
            partition=letter.partition,
            offset=letter.offset,
        )
        admitted = self.admitted(secrets, delivery)
        if isinstance(admitted, Unfit):
            return replace(admitted, letter=letter, place=None)
        admission, incoming = admitted
        # Claimed first, so that a process that dies of it leaves its trace.
        return replace(admission, letter=letter, is_redrive=True, is_single=False), incoming

    def _request(self, secrets: Secrets, incoming: Incoming[Any], key: str) -> Request:
        try:
            return self.declaration.call(secrets, key=key, tenant=TENANT, command=incoming)
        except KeyMalformed as error:
            raise Refusal(ParkReason.ID_MALFORMED, error.detail) from error
        except BodyTooLarge as error:
            raise Refusal(ParkReason.TOO_LARGE, f"{error.limit_bytes} bytes are allowed") from error
        except BodyRefused as error:
            raise Refusal(ParkReason.UNDECODABLE, error.detail) from error

    def _incoming(self, delivery: Delivery) -> Incoming[Any]:
        headers = read_headers(delivery.headers)
        for text in (delivery.topic, delivery.content_type, delivery.partition or "", delivery.id or ""):
            if not is_storable(text):
                raise Refusal(ParkReason.HEADERS_BROKEN, "the topic, content type, partition or id is no plain text")
        try:
            payload = self.codec.payload(delivery.payload)
        except RecordCorrupt as error:
            raise Refusal(ParkReason.UNDECODABLE, error.detail) from error
        return Incoming(
            payload=payload,
            topic=delivery.topic,
            id=delivery.id,
            content_type=delivery.content_type,
            headers=headers,
            partition=delivery.partition,
            offset=delivery.offset,
        )

    def _key(self, incoming: Incoming[Any], place: Place | None) -> str:
        """Return what makes two deliveries one: the user's own word, the id, or the place in the sequence."""
        if self.is_sequenced and place is None:
            raise Refusal(ParkReason.NO_OFFSET)
        if self.dedup is not None:
            try:
                given = self.dedup(incoming)
            except Exception as error:
                raise Refusal(ParkReason.DEDUP_FAILED, type(error).__name__) from error
            if not isinstance(given, str):
                raise Refusal(ParkReason.DEDUP_FAILED, f"it returned {type(given).__name__}, not str")
        elif incoming.id is not None:
            given = incoming.id
        elif place is not None:
            given = sha256(f"{place.partition}\n{place.offset}".encode()).hexdigest()
        else:
            raise Refusal(ParkReason.NO_ID)
        # Quoted, since an id may have any visible character.
        escaped = given.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'


_FOR_CLIENTS = frozenset({"issued_keys", "quota", "velocity"})
# A message that is refused would only be delivered again.


def declare_consumer(
    name: str,
    function: Callable[..., object],
    *,
    is_async: bool,
    effects: EffectsMode | None,
    dedup: Dedup | None,
    sequence: bool,
    attempts_limit: int,
    fingerprint: FingerprintVersions | None,
    undo: Mapping[str, Undo] | None,
    queries: Mapping[str, Query] | None,
    options: PolicyOptions,
) -> Intake:
    """Check everything about a consumer and report all faults at once."""
    chosen: PolicyOptions = {
        "retention": RETENTION,
        "metadata_retention": METADATA_RETENTION,
        "when_expired": ExpiredPolicy.REFUSE,
        **options,
    }
    if attempts_limit < 1:
        raise ConfigError([f"consumer {name!r}: attempts_limit must be at least 1, not {attempts_limit}"])
    if not _FOR_CLIENTS.isdisjoint(options):
        raise ConfigError([f"consumer {name!r}: {', '.join(sorted(_FOR_CLIENTS))} are for clients; leave them out"])
    declaration = declare(
        name,
        function,
        is_async=is_async,
        effects=effects,
        # Headers and offsets change from one delivery to the next; what is said does not.
        fingerprint=fingerprint or FingerprintVersions(FingerprintRule(include=("payload",))),
        undo=undo,
        queries=queries,
        options=chosen,
        command_codec=incoming_codec,
    )
    codec = declaration.command_codec
    assert isinstance(codec, IncomingCodec)
    return Intake(
        declaration=replace(
            declaration,
            judges_keys=False,
            beside=_advancing(name) if sequence else _nothing,
            attempts_limit=attempts_limit,
        ),
        codec=codec,
        dedup=dedup,
        is_sequenced=sequence,
        attempts_limit=attempts_limit,
    )


def _nothing(_: Incoming[Any]) -> None:
    return None


def _advancing(consumer: str) -> Callable[[Incoming[Any]], Callable[[Inbox], Flow[None]] | None]:
    """Return what writes the offset of a message into its handler's own transaction."""

    def beside(incoming: Incoming[Any]) -> Callable[[Inbox], Flow[None]] | None:
        assert incoming.offset is not None  # A message without one was parked at the door.
        place = Place(consumer=consumer, partition=partition_of(incoming), offset=incoming.offset)
        return lambda inbox: inbox.advance(place)

    return beside
