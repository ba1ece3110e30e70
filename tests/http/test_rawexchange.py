"""What is said in header bytes is what `exchange` says in text."""

import json
from http import HTTPStatus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nebis import RecordCorrupt, ResultUnstorable
from nebis.http.exchange import Exchange, Storage, first_told, freeze, thaw
from nebis.http.headers import encoded
from nebis.http.rawexchange import RawExchange, raw, replayed

STORABLE = (b"Content-Type", b"content-type", b"ETag", b"Cache-Control")
OTHERS = (b"Set-Cookie", b"X-Request-Id", b"Date", b"Content-Length", b"transfer-encoding", b"idempotency-replayed")
NAMES = st.sampled_from((*STORABLE, *OTHERS))
VALUES = st.text(st.characters(min_codepoint=0x20, max_codepoint=0xFF, exclude_characters="\x7f"), max_size=6).map(
    lambda text: text.encode("latin-1")
)
HEADERS = st.lists(st.tuples(NAMES, VALUES), max_size=4)
STATUSES = st.sampled_from([200, 201, 204, 302, 304])
MARK = b"Idempotency-Replayed"


def _storage(*, has_body: bool = True) -> Storage:
    return Storage(headers=frozenset({"content-type", "etag", "cache-control"}), has_body=has_body, limit_bytes=100)


def _sent(answer: RawExchange) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
    return answer.status, answer.headers, answer.body


@given(status=STATUSES, headers=HEADERS, body=st.binary(max_size=8), has_body=st.booleans())
def test_the_same_bytes_are_stored_and_told(
    status: int, headers: list[tuple[bytes, bytes]], body: bytes, has_body: bool
) -> None:
    """I4."""
    live, storage = RawExchange(status, headers, body), _storage(has_body=has_body)

    frozen = live.freeze(storage)

    assert frozen == freeze(live.exchange(), storage)
    assert _sent(live.first_told()) == _sent(raw(first_told(live.exchange(), thaw(frozen), storage)))


@given(status=STATUSES, headers=HEADERS, body=st.binary(max_size=8), has_body=st.booleans())
def test_the_same_bytes_are_sent_again(
    status: int, headers: list[tuple[bytes, bytes]], body: bytes, has_body: bool
) -> None:
    frozen = RawExchange(status, headers, body).freeze(_storage(has_body=has_body))
    marked = thaw(frozen).exchange.with_headers((MARK.decode(), "true"))

    for _ in ("read", "remembered"):
        assert _sent(replayed(frozen, MARK)) == (status, encoded(marked.framed()), marked.body)


def _payload(headers: list[list[str]], body: bytes = b"", *, has_body: bool = True) -> bytes:
    head = json.dumps({"status": 200, "headers": headers, "body": has_body}).encode()
    return b"\x01" + len(head).to_bytes(4, "big") + head + body


def test_what_another_release_stored_is_framed_and_marked_anew() -> None:
    stored = _payload([["Content-Length", "9"], ["idempotency-REPLAYED", "no"], ["etag", "x"]], b"ab")

    assert replayed(stored, MARK).headers == [
        (b"etag", b"x"),
        (b"idempotency-replayed", b"true"),
        (b"content-length", b"2"),
    ]


def test_a_head_that_was_read_before_vouches_for_no_body() -> None:
    """SEC15."""
    replayed(_payload([], has_body=False), MARK)

    with pytest.raises(RecordCorrupt):
        replayed(_payload([], b"never stored", has_body=False), MARK)


def test_what_one_replay_is_sent_with_is_not_changed_by_another() -> None:
    stored = _payload([["etag", "x"]], b"ab")
    replayed(stored, MARK).headers.append((b"x-from-outside", b"1"))

    assert len(replayed(stored, MARK).headers) == 3


@pytest.mark.parametrize(
    ("headers", "body"),
    [([(b"etag", b"a\r\nset-cookie: b")], b""), ([(b"etag", b"a" * 70_000)], b""), ([], b"x" * 101)],
    ids=["line break", "large head", "large body"],
)
def test_what_cannot_be_stored_in_text_cannot_in_bytes(headers: list[tuple[bytes, bytes]], body: bytes) -> None:
    with pytest.raises(ResultUnstorable):
        RawExchange(200, headers, body).freeze(_storage())


def test_a_status_by_name_is_sent_as_a_number() -> None:
    live = RawExchange(HTTPStatus.CREATED, [], b"")

    assert live.freeze(_storage()) == freeze(Exchange(status=201), _storage())
    assert type(live.first_told().status) is int
