"""Whichever library writes and reads JSON, what is stored and what comes back is the same."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, TypedDict

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nebis.core.codec import Codec, codec_for
from nebis.core.codec_shape import DEPTH_LIMIT
from nebis.core.jsontext import (
    STANDARD,
    JsonText,
    json_text,
    quickly_by,
    read_by_standard,
    write_by_standard,
)
from nebis.errors import RecordCorrupt, ResultUnstorable
from tests.core.codec_samples import typed


class Crude:
    """A library that does what orjson is known to do differently from the standard one; for where orjson is not."""

    OPT_PASSTHROUGH_DATACLASS = OPT_PASSTHROUGH_DATETIME = OPT_PASSTHROUGH_SUBCLASS = 0

    @staticmethod
    def dumps(value: Any, _default: None = None, _option: int = 0) -> bytes:
        _refuse(value)
        try:
            return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
        except ValueError as error:
            raise TypeError from error

    @staticmethod
    def loads(data: bytes) -> Any:
        tree = json.loads(data.decode(), parse_int=_of_64_bits, parse_constant=_none)
        json.dumps(tree, ensure_ascii=False).encode()  # Or raises what half of a surrogate pair is.
        return tree


def _refuse(value: Any) -> None:
    if isinstance(value, dict):
        if any(type(name) is not str for name in value):
            raise TypeError("Dict key must be str")
        for item in value.values():
            _refuse(item)
    elif isinstance(value, list | tuple):
        for item in value:
            _refuse(item)
    elif isinstance(value, int) and not -(2**63) <= value < 2**64:
        raise TypeError("Integer exceeds 64-bit range")


def _of_64_bits(digits: str) -> int | float:
    number = int(digits)
    return number if -(2**63) <= number < 2**64 else float(digits)


def _none(_: str) -> None:
    raise ValueError("no such thing")


LIBRARIES: list[Any] = [Crude]
try:
    import orjson
except ImportError:  # Then only what stands in for it is tried.
    pass
else:
    LIBRARIES.append(orjson)
QUICK = [quickly_by(library) for library in LIBRARIES]


class Name(str):
    __slots__ = ()


class Part(StrEnum):
    amount = "amount"


class Priced(TypedDict):
    amount: int


@dataclass
class Tree:
    size: int
    weight: float
    below: list[Tree]


# The edges of what JSON escapes, of UTF-8's lengths, and of what 64 bits and doubles hold.
TEXTS = st.text() | st.text(st.sampled_from('\x00\x08\t\n\x1f "\\/~\x7f\x80\u07ff\u2028\ue000\uffff\U00010000'))
INTEGERS = st.integers() | st.sampled_from(
    [sign * (2**bits + more) for sign in (1, -1) for bits in (53, 63, 64, 65, 200) for more in (-1, 0, 1)]
    + [10**18, 10**18 - 1, 10**19, -(10**18)]
)
FLOATS = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from(
    [0.0, -0.0, 5e-324, 2.2250738585072014e-308, 1e16, 1e22, 1e-05, 1e-07, 1.7976931348623157e308, 9007199254740993.0]
)
JSON = st.recursive(
    st.none() | st.booleans() | INTEGERS | FLOATS | TEXTS,
    lambda children: st.lists(children, max_size=5) | st.dictionaries(TEXTS, children, max_size=5),
    max_leaves=25,
)


def read(text: JsonText, data: bytes) -> Any:
    try:
        found = text.glance(data)
    except ValueError:
        found = read_by_standard(data)
    return text.settle(found, data)


def has_float(tree: Any) -> bool:
    if isinstance(tree, dict):
        return any(map(has_float, tree.values()))
    return any(map(has_float, tree)) if isinstance(tree, list) else isinstance(tree, float)


def told(read: Any, data: bytes) -> Any:
    """Say what became of bytes: what was read, with its types, or that nothing was."""
    try:
        return typed(read(data))
    except (ValueError, RecordCorrupt, RecursionError) as error:
        return RecordCorrupt if isinstance(error, RecordCorrupt) else ValueError


@pytest.mark.parametrize("text", QUICK)
@given(tree=JSON)
@example(tree={"a": 1e-05, "b": [2**64, -(2**63) - 1, 18446744073709551615]})
def test_what_one_writes_each_reads_as_it_was(text: JsonText, tree: Any) -> None:
    written = text.write(tree)

    assert typed(read_by_standard(written)) == typed(tree)
    assert typed(read(text, written)) == typed(tree)
    assert typed(read(text, write_by_standard(tree))) == typed(tree)


@pytest.mark.parametrize("text", QUICK)
@given(tree=JSON.filter(lambda tree: not has_float(tree)))
def test_both_write_the_same_bytes_but_for_the_spelling_of_floats(text: JsonText, tree: Any) -> None:
    assert text.write(tree) == write_by_standard(tree)
    if isinstance(tree, dict):
        assert STANDARD.write_flat(tree) == write_by_standard(tree)


@pytest.mark.parametrize("text", QUICK)
@given(number=FLOATS)
def test_a_float_is_spelled_as_shortly_as_it_can_be_read_back(text: JsonText, number: float) -> None:
    written = text.write(number)

    assert float(written) == number
    assert math.copysign(1, float(written)) == math.copysign(1, number)
    assert len(written.strip(b"-").replace(b".", b"").partition(b"e")[0].strip(b"0")) <= 17


@pytest.mark.parametrize("text", QUICK)
@settings(max_examples=200)
@given(tree=JSON, data=st.data())
def test_both_read_changed_bytes_alike_or_not_at_all(text: JsonText, tree: Any, data: st.DataObject) -> None:
    changed = bytearray(write_by_standard(tree))
    for _ in range(data.draw(st.integers(0, 3))):
        place = data.draw(st.integers(0, len(changed)))
        piece = data.draw(st.binary(max_size=2) | st.sampled_from(PIECES))
        changed[place : place + data.draw(st.integers(0, 2))] = piece
    altered = bytes(changed)

    assert told(lambda raw: read(text, raw), altered) == told(read_by_standard, altered)


PIECES = [
    b"0",
    b"-",
    b".",
    b"e",
    b"e400",
    b"E-400",
    b"9" * 19,
    b"NaN",
    b"Infinity",
    b"\\u",
    b"\\ud800",
    b"\\ud83d\\ude00",
]
PIECES += [
    b"\\u0000",
    b"\xef\xbb\xbf",
    b"\xed\xa0\x80",
    b"\xff",
    b" ",
    b"\x0b",
    b"\xc2\xa0",
    b"//",
    b",",
    b'"',
    b'"a":',
    b"tru",
]
ODDITIES = [
    b"",
    b"-0",
    b"-0.0",
    b"-1e-400",
    b"1e400",
    b"1E+2",
    b"01",
    b"1.",
    b".5",
    b"+1",
    b"0x1",
    b"1_000",
    b"123456789012345678901234567890",
    b"-9223372036854775809",
    b"18446744073709551616",
    b"0.1234567890123456789012345678901234567890",
    b"123456789012345678.123456789012345678e-17",
    b"9007199254740992.99999999999999999999",
    b"2.22507385850720113605740979670913197593481954635164564e-308",
    b'{"a":1,"b":2,"a":3}',
    b'{"a":1,"a":12345678901234567890123}',
    b'{"a":"12345678901234567890123"}',
    b'["\\ud800"]',
    b'["\\udc00\\ud800"]',
    b'["\\ud83d\\ude00"]',
    b'{"\\ud83d":1}',
    b'["\\u0000"]',
    b'["\x01"]',
    b'["\x7f"]',
    b'["\\/"]',
    b'["\\x"]',
    b"\xef\xbb\xbf{}",
    b"[NaN]",
    b"[Infinity,-Infinity]",
    b" \t\n\r{ } ",
    b"{}\x00",
    b"[1,]",
    b'{"a":1,}',
    b"{1:2}",
    b"'a'",
    b"nul",
    "[\u0661]".encode(),
    "\u00a0[]".encode(),
    b"[" * 2000 + b"]" * 2000,
    b'["' + b"\xf4\x90\x80\x80" + b'"]',
]


@pytest.mark.parametrize("text", QUICK)
@pytest.mark.parametrize("raw", ODDITIES)
def test_both_read_oddities_alike_or_not_at_all(text: JsonText, raw: bytes) -> None:
    assert told(lambda data: read(text, data), raw) == told(read_by_standard, raw)
    for annotation in (Any, dict[str, Any], dict[str, int], list[Any], int, float):
        quick, standard = by(annotation, text), by(annotation, STANDARD)
        assert told(quick.decode, raw) == told(standard.decode, raw)
        assert told(quick.decode_result, raw) == told(standard.decode_result, raw)


def by(annotation: Any, text: JsonText) -> Codec[Any]:
    codec = codec_for(annotation)
    return Codec(name=codec.name, shape=codec.shape, is_recursive=codec.is_recursive, lenient=codec.lenient, text=text)


UNWANTED: list[tuple[Any, Any]] = [
    (Any, {"a": math.nan}),
    (Any, {"a": [math.inf]}),
    (dict[str, Any], {"a": (1,)}),
    (dict[str, Any], {1: 1}),
    (dict[str, Any], {None: 1}),
    (dict[str, Any], {Name("a"): 1}),
    (dict[str, Any], {Part.amount: 1}),
    (dict[str, Any], {"a": Part.amount}),
    (dict[str, Any], {"a": Name("b")}),
    (dict[str, Any], {"a": b"b"}),
    (dict[str, Any], {"a": "\ud800"}),
    (dict[str, Any], {"\ud800": 1}),
    (dict[str, Any], {"a": 10**5000}),
    (dict[str, Any], {"a": 2**64, "b": -(2**63) - 1}),
    (dict[str, int], {"a": 2**64}),
    (dict[str, int], {"a": True}),
    (dict[str, int], {"a": 1.0}),
    (dict[str, int], {}),
    (dict[int, int], {}),
    (dict[int, int], {1: 2}),
    (dict[Part, int], {Part.amount: 2}),
    (dict, {}),
    (dict, {"a": 1}),
    (dict, {1: 1}),
    (list, {}),
    (list, {"a": 1}),
    (int, {}),
    (Priced, {}),
    (Priced, {"amount": 2**64}),
    (Priced, {Name("amount"): 1}),
    (Priced, {Part.amount: 1}),
    (Tree, Tree(2**70, 1e-05, [Tree(1, 5e-324, [])])),
    (Any, [[], {"a": {"b": [1.5, 2**80]}}]),
]


@pytest.mark.parametrize("text", QUICK)
@pytest.mark.parametrize(("annotation", "value"), UNWANTED)
def test_both_keep_or_refuse_the_same_values_for_the_same_reason(text: JsonText, annotation: Any, value: Any) -> None:
    quick, standard = by(annotation, text), by(annotation, STANDARD)

    stored, expected = kept(quick, value), kept(standard, value)

    if isinstance(stored, str) or isinstance(expected, str):
        assert stored == expected
        return
    assert typed(quick.decode(stored)) == typed(standard.decode(expected))
    assert typed(standard.decode(stored)) == typed(quick.decode_result(expected))


def kept(codec: Codec[Any], value: Any) -> bytes | str:
    """Return what is stored of a value, or why nothing is."""
    try:
        return codec.encode(value)
    except ResultUnstorable as error:
        return error.detail


@pytest.mark.parametrize("text", [STANDARD, *QUICK])
def test_a_value_as_deep_as_may_be_is_kept_and_a_deeper_one_is_not(text: JsonText) -> None:
    codec, value = by(dict[str, Any], text), deep(DEPTH_LIMIT - 1)

    assert codec.decode(codec.encode(value)) == value
    with pytest.raises(ResultUnstorable):
        codec.encode(deep(DEPTH_LIMIT + 1))


def deep(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(levels):
        value = {"a": value}
    return value


@pytest.fixture
def undecided() -> Iterator[None]:
    """Let the library be chosen anew, in the test and after it."""
    json_text.cache_clear()
    yield
    json_text.cache_clear()


@pytest.mark.usefixtures("undecided")
def test_the_library_is_chosen_where_json_is_first_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    codec = codec_for(dict[str, Any])
    monkeypatch.setitem(sys.modules, "orjson", Crude)

    chosen = [codec.text]
    assert codec.decode(codec.encode({"a": 1})) == {"a": 1}
    chosen.append(codec.text)

    assert chosen == [None, json_text()]
    assert json_text().glance is Crude.loads


@pytest.mark.usefixtures("undecided")
def test_without_the_library_the_standard_one_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "orjson", None)

    assert json_text() is STANDARD


@pytest.mark.parametrize("text", QUICK)
@pytest.mark.parametrize("value", [Tree(1, 1.0, []), datetime(2024, 1, 1, tzinfo=UTC)], ids=["dataclass", "datetime"])
def test_what_only_a_library_could_write_is_refused(value: Any, text: JsonText) -> None:
    with pytest.raises(TypeError):
        text.write(value)
