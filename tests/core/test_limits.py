"""Limits are exact: what reaches one is taken, and what passes it is refused."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any
from uuid import UUID

import pytest

from nebis.core.canonical import canonical
from nebis.core.codec import Codec, codec_for
from nebis.core.envelope import seal, unseal
from nebis.core.fingerprint import FingerprintRule
from nebis.core.keygrammar import parse_key
from nebis.core.plain import plain
from nebis.core.record import RecordId
from nebis.core.secret import Keyring
from nebis.core.strictjson import parse
from nebis.core.token import issue_token, verify_token
from nebis.core.velocity import UNLIMITED, Charge, add
from nebis.errors import BodyRefused, BodyTooLarge, KeyMalformed, RecordCorrupt, ResultUnstorable, TokenInvalid
from tests.core.codec_samples import of


class Size(Enum):
    SMALL = 1


def nested(levels: int, wrap: Callable[[object], object], inner: object = 0) -> object:
    for _ in range(levels):
        inner = wrap(inner)
    return inner


def in_list(item: object) -> list[object]:
    return [item]


def in_dict(item: object) -> dict[str, object]:
    return {"a": item}


def test_an_integer_of_4096_bits_has_a_canonical_form_f098() -> None:
    assert canonical(2**4096 - 1)
    with pytest.raises(BodyRefused, match="more than 4096 bits"):
        canonical(2**4096)


def test_the_value_of_an_enum_member_lies_one_level_below_it_f100() -> None:
    assert canonical(nested(79, in_list, Size.SMALL))
    with pytest.raises(BodyRefused, match="nested deeper than 80 levels"):
        canonical(nested(80, in_list, Size.SMALL))


@pytest.mark.parametrize("wrap", [in_list, in_dict, lambda item: (item,)], ids=["list", "dict", "tuple"])
def test_a_command_may_be_as_deep_as_its_canonical_form_f100(wrap: Callable[[object], object]) -> None:
    assert canonical(plain(nested(80, wrap)))
    with pytest.raises(BodyRefused, match="nested deeper than 80 levels"):
        plain(nested(81, wrap))


@pytest.mark.parametrize(("levels", "is_read"), [(79, True), (80, False)])
def test_a_default_may_be_as_deep_as_a_value_f100(levels: int, is_read: bool) -> None:
    @dataclass
    class Order:
        tree: Any = field(default_factory=lambda: nested(levels, in_list))

    try:
        plain(Order(tree=1))
        was_read = True
    except BodyRefused:
        was_read = False

    assert was_read is is_read


def test_brackets_count_by_how_deep_they_are_and_not_by_how_many_f100() -> None:
    assert parse(b"[[],[],[]]", limit_depth=2) == [[], [], []]
    assert parse(b"[{},{},{}]", limit_depth=2) == [{}, {}, {}]
    for raw in (b"[[],[],[[[]]]]", b"[{},{},[[{}]]]"):
        with pytest.raises(BodyRefused, match="deeper than 3 levels"):
            parse(raw, limit_depth=3)
    assert parse(b'"[{"', limit_depth=0) == "[{"
    with pytest.raises(BodyRefused, match="deeper than 0 levels"):
        parse(b"[]", limit_depth=0)


def test_a_body_may_have_a_megabyte() -> None:
    text = "a" * (1024 * 1024 - 2)

    assert parse(f'"{text}"'.encode()) == text
    with pytest.raises(BodyTooLarge):
        parse(f'"{text}a"'.encode())


def test_what_is_longer_than_any_spelling_of_a_key_is_refused_unread_sec37() -> None:
    with pytest.raises(KeyMalformed, match="a space"):
        parse_key(" " * 512)
    with pytest.raises(KeyMalformed, match="more than 255 characters"):
        parse_key(" " * 513)


def test_without_a_limit_there_is_room_for_all_that_a_store_can_count() -> None:
    charge = Charge(bucket=bytes(32), window_us=100, limit=UNLIMITED, weight=2**61)

    assert add(add(None, charge, 0), charge, 0) is not None
    assert UNLIMITED < 2**63


def test_a_stored_value_may_have_64_levels() -> None:
    codec: Codec[Any] = codec_for(Any)
    deepest, too_deep = nested(63, in_list, []), nested(63, in_list, [1])

    assert codec.decode(codec.encode(deepest)) == deepest
    with pytest.raises(ResultUnstorable, match="nested deeper than 64 levels"):
        codec.encode(too_deep)
    with pytest.raises(RecordCorrupt, match="nested deeper than 64 levels"):
        codec.decode(json.dumps(too_deep).encode())


def test_a_type_that_is_deeper_than_64_levels_by_itself_needs_no_limit() -> None:
    annotation, value = nested(70, lambda inner: of(list, inner), int), nested(70, in_list, 1)
    chosen = codec_for(annotation)
    made: Codec[Any] = Codec(name=chosen.name, shape=chosen.shape)

    assert chosen.decode(chosen.encode(value)) == value
    assert made.decode(made.encode(value)) == value


def test_a_fingerprint_version_is_one_byte() -> None:
    assert FingerprintRule(version=255).version == 255
    with pytest.raises(ValueError, match="between 1 and 255"):
        FingerprintRule(version=256)


def test_an_envelope_is_truncated_below_its_ten_bytes_f011() -> None:
    empty = seal(b"")

    assert unseal(empty, limit_bytes=0) == b""
    for length in range(len(empty)):
        with pytest.raises(RecordCorrupt, match="truncated"):
            unseal(empty[:length], limit_bytes=0)


def test_two_bytes_are_enough_to_tell_the_version_f118() -> None:
    with pytest.raises(RecordCorrupt, match="version 7"):
        unseal(b"\x07\x00", limit_bytes=0)


def test_a_saving_of_exactly_a_tenth_pays() -> None:
    noise = hashlib.shake_256(b"seed").digest(1_000)
    bodies = {len(zlib.compress(body)): body for body in (noise[:at] + bytes(1_000 - at) for at in range(1_000))}

    assert seal(bodies[900])[1] == 1
    assert seal(bodies[901])[1] == 0


def test_sixteen_bytes_are_a_secret_in_hex_too() -> None:
    material = bytes(range(16))

    assert Keyring.parse(material.hex()) == Keyring.of(material)


def test_a_token_may_be_spelled_with_200_characters_and_no_more() -> None:
    key, record_id = bytes(32), RecordId(UUID(int=7))
    token = issue_token(key, record_id, "charge")
    # Hyphens mean nothing in the spelling of a UUID.
    longest = token.replace(".", "." + "-" * (200 - len(token)), 1)

    assert verify_token(longest, [key], name="charge") == str(record_id)
    with pytest.raises(TokenInvalid):
        verify_token(longest.replace(".-", ".--", 1), [key], name="charge")
