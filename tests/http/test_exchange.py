import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nebis import RecordCorrupt, ResultUnstorable
from nebis.http.exchange import NEVER_STORED, USUALLY_STORED, Exchange, Storage, first_told, freeze, thaw

STORAGE = Storage(limit_bytes=1000)
SENSITIVE = [
    "Set-Cookie",
    "Authorization",
    "WWW-Authenticate",
    "X-Access-Token",
    "X-CSRF-Token",
    "X-XSRF-Token",
    "Refresh-Token",
    "Proxy-Authenticate",
]


@given(
    status=st.integers(200, 599),
    value=st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E)),
    body=st.binary(max_size=1000),
)
def test_an_answer_comes_back_as_it_was(status: int, value: str, body: bytes) -> None:
    """I4."""
    exchange = Exchange(status=status, headers=(("ETag", value), ("Cache-Control", "private")), body=body)

    stored = thaw(freeze(exchange, STORAGE)).exchange

    assert (stored.status, stored.body) == (status, body)
    assert stored.headers == (("etag", value), ("cache-control", "private"))


@pytest.mark.parametrize("name", [*SENSITIVE, "Date", "Connection", "Transfer-Encoding", "Content-Length", "X-Other"])
def test_a_header_that_nobody_listed_is_not_stored(name: str) -> None:
    """SEC14, F087."""
    stored = thaw(freeze(Exchange(status=200, headers=((name, "x"),)), STORAGE)).exchange

    assert stored.headers == (("cache-control", "no-store"),)


def test_a_listed_header_is_stored_however_often_it_came() -> None:
    storage = Storage(headers=USUALLY_STORED | {"set-cookie"}, limit_bytes=10)
    cookies = (("Set-Cookie", "a=1"), ("Set-Cookie", "b=2"))

    stored = thaw(freeze(Exchange(status=200, headers=cookies), storage)).exchange

    assert stored.headers[:2] == (("set-cookie", "a=1"), ("set-cookie", "b=2"))


def test_what_belongs_to_one_connection_cannot_be_listed() -> None:
    assert not USUALLY_STORED & NEVER_STORED
    assert Storage(headers=frozenset({"connection"}), limit_bytes=1).faults()


def test_a_body_above_the_cap_is_unstorable() -> None:
    with pytest.raises(ResultUnstorable):
        freeze(Exchange(status=200, body=b"x" * 1001), STORAGE)


def test_a_header_with_a_line_break_is_unstorable() -> None:
    with pytest.raises(ResultUnstorable):
        freeze(Exchange(status=200, headers=(("Location", "/a\r\nSet-Cookie: b"),)), STORAGE)


def _payload(head: object, body: bytes = b"") -> bytes:
    encoded = json.dumps(head).encode()
    return b"\x01" + len(encoded).to_bytes(4, "big") + encoded + body


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\x01",
        b"\x02" + _payload({"status": 200, "headers": [], "body": True})[1:],
        b"\x01\xff\xff\xff\xff{}",
        b"\x01\x00\x00\x00\x02{",
        _payload([]),
        _payload("text"),
        _payload({"status": 200, "headers": []}),
        _payload({"status": 199, "headers": [], "body": True}),
        _payload({"status": True, "headers": [], "body": True}),
        _payload({"status": "200", "headers": [], "body": True}),
        _payload({"status": 200, "headers": {}, "body": True}),
        _payload({"status": 200, "headers": [["a"]], "body": True}),
        _payload({"status": 200, "headers": [["a", "b\r\nset-cookie: c"]], "body": True}),
        _payload({"status": 200, "headers": [["a\r\nb", "c"]], "body": True}),
        _payload({"status": 200, "headers": [["a", 1]], "body": True}),
        _payload({"status": 200, "headers": [], "body": False}, b"never stored"),
        _payload({"status": 200, "headers": [], "body": False, "reference": 1}),
    ],
    ids=range(18),
)
def test_a_tampered_answer_is_corrupt_and_never_sent(payload: bytes) -> None:
    """SEC15."""
    with pytest.raises(RecordCorrupt):
        thaw(payload)


def test_framing_is_made_anew() -> None:
    headers = (("Content-Length", "999"), ("transfer-encoding", "chunked"), ("etag", "x"))

    assert Exchange(status=200, headers=headers, body=b"ab").framed() == (("etag", "x"), ("content-length", "2"))
    assert Exchange(status=204, headers=headers).framed() == (("etag", "x"),)
    assert Exchange(status=304, headers=headers).framed() == (("etag", "x"),)


def test_the_first_caller_also_gets_what_is_for_that_caller_alone() -> None:
    live = Exchange(status=200, headers=(("Set-Cookie", "a"), ("ETag", "x"), ("Date", "now")), body=b"live")
    stored = thaw(freeze(live, STORAGE))

    told = first_told(live, stored, STORAGE)

    assert told.body == b"live"
    assert told.headers == (("etag", "x"), ("cache-control", "no-store"), ("Set-Cookie", "a"))


def test_a_body_that_is_not_stored_is_told_once() -> None:
    live = Exchange(status=200, body=b"secret")
    storage = Storage(has_body=False, limit_bytes=1000)

    frozen = freeze(live, storage)

    assert b"secret" not in frozen
    assert thaw(frozen).exchange.body == b""
    assert first_told(live, thaw(frozen), storage).body == b"secret"


HEADERS = st.lists(
    st.tuples(
        st.sampled_from(["Content-Type", "content-type", "ETag", "Cache-Control", "Set-Cookie", "Location"]),
        st.text(st.characters(min_codepoint=0x20, max_codepoint=0xFF, exclude_characters="\x7f"), max_size=8),
    ),
    max_size=3,
)


def _frozen_without_memory(exchange: Exchange, storage: Storage, reference: str | None) -> bytes:
    """The layout, spelt out."""
    headers = [[name.lower(), value] for name, value in exchange.headers if name.lower() in storage.headers]
    if all(name != "cache-control" for name, _ in headers):
        headers.append(["cache-control", "no-store"])
    is_whole = storage.has_body and reference is None
    head: dict[str, object] = {"status": exchange.status, "headers": headers, "body": is_whole}
    if reference is not None:
        head |= {"reference": reference, "schema": storage.schema or ""}
    encoded = json.dumps(head, separators=(",", ":")).encode()
    return b"\x01" + len(encoded).to_bytes(4, "big") + encoded + (exchange.body if is_whole else b"")


@given(
    status=st.sampled_from([200, 201, 402]),
    headers=HEADERS,
    body=st.binary(max_size=8),
    has_body=st.booleans(),
    reference=st.none() | st.text(max_size=4),
)
def test_a_head_that_is_remembered_has_the_same_bytes(
    status: int, headers: list[tuple[str, str]], body: bytes, has_body: bool, reference: str | None
) -> None:
    exchange = Exchange(status=status, headers=tuple(headers), body=body)
    storage = Storage(limit_bytes=1000, has_body=has_body, schema=None if reference is None else "2")

    frozen = freeze(exchange, storage, reference=reference)
    stored = thaw(frozen)

    assert frozen == _frozen_without_memory(exchange, storage, reference)
    assert freeze(exchange, storage, reference=reference) == frozen
    assert thaw(frozen) == stored
    assert (stored.reference, stored.has_body) == (reference, has_body and reference is None)


def test_a_head_that_was_read_before_vouches_for_no_body() -> None:
    payload = _payload({"status": 200, "headers": [], "body": False})
    thaw(payload)

    with pytest.raises(RecordCorrupt):
        thaw(payload + b"never stored")
