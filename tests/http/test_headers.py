import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nebis import HeaderRepeated, KeyRepeated
from nebis.http.headers import (
    ALWAYS_READ,
    decoded,
    encoded,
    is_json,
    is_name,
    is_value,
    key_value,
    names_of,
    picked,
    require_once,
    values,
)

NAME = "Idempotency-Key"


def test_a_key_is_found_whatever_the_case_of_its_header() -> None:
    assert key_value((("accept", "x"), ("IDEMPOTENCY-key", " \tabc\t ")), NAME) == "abc"


def test_a_request_without_the_header_has_no_key() -> None:
    assert key_value((("idempotency_key", "abc"),), NAME) is None


@pytest.mark.parametrize("values", [("a", "b"), ("a", "a"), ("", ""), ("a,b",), ('"a,b"',), ('"a', 'b"')], ids=repr)
def test_two_keys_are_refused_whether_or_not_somebody_joined_them(values: tuple[str, ...]) -> None:
    """F090."""
    with pytest.raises(KeyRepeated) as refused:
        key_value(tuple((NAME, value) for value in values), NAME)

    assert refused.value.code == "key-repeated"


def test_a_megabyte_of_key_is_looked_at_once() -> None:
    """SEC37: whoever looked at the rest from each character on would be busy for hours."""
    began = time.perf_counter()

    with pytest.raises(KeyRepeated):
        key_value(((NAME, "a" * 1_000_000 + ","),), NAME)

    assert time.perf_counter() - began < 10


@pytest.mark.parametrize("name", ["Authorization", "content-type"])
def test_a_header_that_decides_who_asks_for_what_comes_once(name: str) -> None:
    with pytest.raises(HeaderRepeated):
        require_once(((name, "a"), (name.upper(), "b")))

    require_once(((name, "a"), ("accept", "b"), ("accept", "c")))


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ((("content-type", "application/json"),), True),
        ((("Content-Type", "Application/JSON ; charset=utf-8"),), True),
        ((("content-type", "application/merge-patch+json"),), True),
        ((("content-type", "application/json"), ("content-encoding", "gzip")), False),
        ((("content-type", "application/json"), ("content-encoding", "identity")), True),
        ((("content-type", "text/json"),), False),
        ((("content-type", "multipart/form-data; boundary=application/json"),), False),
        ((), False),
    ],
)
def test_a_body_is_json_if_it_says_so_in_bytes_that_can_be_read(
    headers: tuple[tuple[str, str], ...], expected: bool
) -> None:
    assert is_json(headers) is expected


def test_every_byte_of_a_header_comes_back() -> None:
    raw = [(b"x-all", bytes(range(256)))]

    assert encoded(decoded(raw)) == raw


@pytest.mark.parametrize("text", ["a\r\nSet-Cookie: x", "a\n", "\x00", "a\x7f", "\u0100"])
def test_a_value_that_could_end_its_header_is_none(text: str) -> None:
    """SEC15."""
    assert not is_value(text)


@pytest.mark.parametrize("text", ["", "a b", "a:b", "a\r", "\xe9"])
def test_a_name_that_no_header_may_have_is_none(text: str) -> None:
    assert not is_name(text)


NAMES = st.sampled_from([b"content-type", b"Content-Type", b"CONTENT-ENCODING", b"authorization", b"Authorization"])
VALUES = st.sampled_from(
    [b"application/json", b" application/json ; charset=x", b"text/plain", b"gzip", b"identity", b""]
)


@given(raw=st.lists(st.tuples(NAMES | st.binary(max_size=4), VALUES | st.binary(max_size=4)), max_size=4))
def test_header_bytes_say_of_the_body_what_their_text_says(raw: list[tuple[bytes, bytes]]) -> None:
    assert is_json(picked(raw, names_of(ALWAYS_READ))) == is_json(decoded(raw))


@given(raw=st.lists(st.tuples(NAMES | st.binary(max_size=4), VALUES | st.binary(max_size=4)), max_size=4))
def test_only_headers_that_somebody_asks_for_are_read(raw: list[tuple[bytes, bytes]]) -> None:
    wanted = ("Content-Type", "authorization")

    found = picked(raw, names_of(wanted))

    assert [value.strip(" \t") for name, value in found if name == "content-type"] == values(
        decoded(raw), "content-type"
    )
    assert {name for name, _ in found} <= {"content-type", "authorization"}


@given(raw=st.lists(st.tuples(NAMES, VALUES), max_size=4))
def test_each_header_that_may_come_once_is_counted(raw: list[tuple[bytes, bytes]]) -> None:
    pairs = decoded(raw)
    is_repeated = any(len(values(pairs, name)) > 1 for name in ("Authorization", "Content-Type"))
    try:
        require_once(pairs)
    except HeaderRepeated:
        assert is_repeated
    else:
        assert not is_repeated
