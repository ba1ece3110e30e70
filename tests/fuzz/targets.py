"""What reads bytes that others wrote: each either understands them or says so in the one way that it documents.

A target takes any bytes and raises nothing. What it checks beyond that stands in it.
"""

import json
from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import UUID

from nebis import ConfigError, RecordCorrupt, TokenInvalid
from nebis.core.canonical import canonical
from nebis.core.codec import codec_for
from nebis.core.envelope import seal, unseal
from nebis.core.issued import RANDOM_BYTES, issue_key, read_issued
from nebis.core.keygrammar import parse_key
from nebis.core.record import RecordId
from nebis.core.rejection import decode_rejection, encode_rejection
from nebis.core.secret import Keyring
from nebis.core.strictjson import Json, parse
from nebis.core.token import issue_token, verify_token
from nebis.http.conditional import require_match
from nebis.http.deadline import deadline_of
from nebis.http.exchange import Storage, freeze, thaw
from nebis.http.headers import HeaderPairs, decoded, is_json, key_value, require_once
from nebis.http.query import query_pairs
from nebis.http.wire import Wire
from nebis.messaging.signature import (
    ID_HEADER,
    SIGNATURE_HEADER,
    TIMESTAMP_HEADER,
    keys_of,
    signature_headers,
    verify_signature,
)
from nebis.refusals import RequestError
from nebis.stores.sql.postgres.location import Location
from nebis.stores.sql.sqlite.location import path_of
from nebis.testing.torture.operation import read_operation

LIMIT_BYTES = 10_000
KEYRING = Keyring.of(bytes(range(32)), bytes(range(1, 33)))
TOKEN_KEYS = (bytes(range(32)), bytes(range(1, 33)))
RECORD_ID = RecordId(UUID(int=7))
TOKENS = [issue_token(key, RECORD_ID, "charge") for key in TOKEN_KEYS]
MARKS = [token.rpartition(".")[2] for token in TOKENS]
EXPIRES_AT = 1_900_000_000
ISSUED = issue_key(
    KEYRING.newest, tenant="acct_1", operation="pay", expires_at_seconds=EXPIRES_AT, random=bytes(RANDOM_BYTES)
)
WEBHOOK_SECRET = "whsec_bmViaXMncyBvd24gc2VjcmV0"
WIRE = Wire(deadline_header="Request-Deadline", timeout_header="Request-Timeout")


def header(data: bytes) -> None:
    """Lines of `name: value` are the headers of one request; a line without a name is a key."""
    pairs = _headers(data)
    with suppress(RequestError):
        require_once(pairs)
    with suppress(RequestError):
        sent = key_value(pairs, WIRE.key_header)
        if sent is not None:
            key = parse_key(sent)
            # What was accepted is accepted again, in either spelling, as the same key.
            quoted = key.replace("\\", r"\\").replace('"', r"\"")
            assert parse_key(f'"{quoted}"') == key
            assert 1 <= len(key) <= 255
            assert key.isascii()
            assert key.isprintable()
    with suppress(RequestError):
        deadline_of(pairs, WIRE)
    with suppress(RequestError):
        require_match([value for name, value in pairs if name == "If-Match"], '"7"')
    is_json(pairs)
    query_pairs(data.decode("latin-1"))


def _headers(data: bytes) -> HeaderPairs:
    raw = []
    for line in data.split(b"\n"):
        name, colon, value = line.partition(b":")
        raw.append((name, value) if colon else (b"Idempotency-Key", line))
    return decoded(raw)


def canonicaliser(data: bytes) -> None:
    """A body that is read has one form, however it is spelt; one that is not read is refused."""
    try:
        tree = parse(data, limit_bytes=LIMIT_BYTES)
    except RequestError:
        return
    form = canonical(tree)
    respelt = _spelt(tree).encode()
    # Spelt out it may be longer than is read; shorter than that it is the same command.
    if len(respelt) <= LIMIT_BYTES:
        assert canonical(parse(respelt, limit_bytes=LIMIT_BYTES)) == form
    assert canonical([tree]) != form


def _spelt(tree: Json) -> str:
    """Write JSON as no other writer does: names backwards, white space everywhere, fractions with an exponent."""
    match tree:
        case dict():
            members = (f"{json.dumps(name)}\t: {_spelt(value)}" for name, value in reversed(tree.items()))
            return "{ " + " ,\n".join(members) + " }"
        case list():
            return "[ " + " ,\n".join(map(_spelt, tree)) + " ]"
        case Decimal():
            return f"{tree:E}"
        case _:
            return json.dumps(tree, ensure_ascii=False)


def envelope(data: bytes) -> None:
    """Stored bytes are opened within the limit or refused; what is sealed is opened as it was."""
    with suppress(RecordCorrupt):
        assert len(unseal(data, limit_bytes=LIMIT_BYTES)) <= LIMIT_BYTES
    assert unseal(seal(data), limit_bytes=len(data)) == data


def stored_answer(data: bytes) -> None:
    """A stored exchange, rejection or result is read or refused; one that is read can be stored again, and is equal."""
    with suppress(RecordCorrupt):
        stored = thaw(data)
        names = frozenset(name.lower() for name, _ in stored.exchange.headers)
        storage = Storage(headers=names | {"cache-control"}, has_body=stored.has_body, limit_bytes=len(data))
        again = thaw(freeze(stored.exchange, storage)).exchange
        assert (again.status, again.body) == (stored.exchange.status, stored.exchange.body)
        kept = tuple((name.lower(), value) for name, value in stored.exchange.headers)
        assert again.headers[: len(kept)] == kept
    with suppress(RecordCorrupt):
        rejected = decode_rejection(data)
        assert decode_rejection(unseal(encode_rejection(rejected), limit_bytes=10 * LIMIT_BYTES)).undone == (
            rejected.undone
        )
    codec = codec_for(dict[str, list[int] | str | None])
    with suppress(RecordCorrupt):
        value = codec.decode(data)
        assert codec.decode(codec.encode(value)) == value


def token(data: bytes) -> None:
    """Only what was signed is accepted, and it says what was signed, whatever else the bytes try."""
    for text in (data.decode("latin-1"), data.decode("utf-8", "surrogateescape"), data.decode("utf-8", "replace")):
        with suppress(TokenInvalid):
            assert verify_token(text, TOKEN_KEYS, name="charge") == str(RECORD_ID)
            assert text.rpartition(".")[2] in MARKS
        with suppress(TokenInvalid):
            assert read_issued(text, KEYRING, tenant="acct_1", operation="pay") == EXPIRES_AT
            assert text == ISSUED
        # The same text as a tenant, a name or an operation cannot be moved into what is signed beside it.
        assert verify_token(issue_token(TOKEN_KEYS[0], RECORD_ID, text), TOKEN_KEYS, name=text) == str(RECORD_ID)
        if text != "acct_1":
            with suppress(TokenInvalid):
                read_issued(ISSUED, KEYRING, tenant=text, operation="pay")
                raise AssertionError("a key of one tenant is good for another")


def webhook(data: bytes) -> None:
    """A webhook is signed or it is not; nothing that a stranger writes into its headers is more than not signed."""
    text = data.decode("latin-1")
    for spelling in (text, data.decode("utf-8", "surrogateescape")):  # Servers decode headers in either way.
        for claimed in (spelling, f"v1,{spelling}"):
            headers = {ID_HEADER: spelling, TIMESTAMP_HEADER: "1", SIGNATURE_HEADER: claimed}
            assert not verify_signature(WEBHOOK_SECRET, headers, data, now=1)
    assert not verify_signature(WEBHOOK_SECRET, {**headers, TIMESTAMP_HEADER: text}, data, now=1)
    if text:
        signed = signature_headers(keys_of(WEBHOOK_SECRET), message_id=text, body=data, now=1)
        assert verify_signature(WEBHOOK_SECRET, signed, data, now=1)
        assert not verify_signature(WEBHOOK_SECRET, signed, data + b".", now=1)
    with suppress(ConfigError):
        keys_of(text)


def configuration(data: bytes) -> None:
    """The address of a store, a list of secrets and an operation file are read, or every fault is told."""
    text = data.decode("utf-8", "surrogateescape")
    for read in (Location.parse, path_of, Keyring.parse):
        with suppress(ConfigError):
            read(text)
    with TemporaryDirectory(prefix="nebis-fuzz-") as folder:
        file = Path(folder) / "operation.toml"
        file.write_bytes(data)
        with suppress(ConfigError):
            read_operation(file, {})


TARGETS: dict[str, Callable[[bytes], None]] = {
    target.__name__: target
    for target in (header, canonicaliser, envelope, stored_answer, token, webhook, configuration)
}
