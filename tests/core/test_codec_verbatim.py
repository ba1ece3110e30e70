"""What is its own plain form is passed on without a look at each value: with the same result, or the same error."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field, replace
from decimal import Decimal
from enum import IntEnum
from typing import Any, Literal, TypedDict

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from nebis.core.codec import Codec, codec_for
from nebis.core.codec_model import Model
from nebis.core.codec_record import Record
from nebis.core.codec_shape import NOTHING, Items, Maybe, Row, Shape, Table, Tagged
from nebis.core.jsontext import write_by_standard, writer
from nebis.errors import RecordCorrupt, ResultUnstorable
from tests.core.codec_samples import ANNOTATIONS


class Size(IntEnum):
    SMALL = 1


class Name(str):
    __slots__ = ()


@dataclass
class Empty:
    pass


@dataclass
class Single:
    name: str


@dataclass(frozen=True, slots=True)
class Line:
    sku: str
    count: int | None
    price: Decimal
    is_gift: bool = False


@dataclass
class Order:
    customer: str
    lines: list[Line]
    tags: tuple[str, ...] = ()
    details: dict[str, Any] = field(default_factory=dict)
    above: Order | None = None


class Options(TypedDict, total=False):
    speed: int
    label: str | None


# Each of these is told apart from what it is equal to, or looks like, by nothing but its class.
LEAVES = st.sampled_from(
    [
        None,
        True,
        1,
        1.5,
        "a",
        "é",
        Size.SMALL,
        Name("a"),
        b"a",
        2**5000,
        "\ud800",
        float("nan"),
        float("inf"),
        Decimal(1),
    ]
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    LEAVES | st.integers() | st.text() | st.builds(Line, LEAVES, LEAVES, LEAVES),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.sampled_from(["sku", "count", "label", "speed", 1, Name("b"), None]), inner, max_size=3)
        | st.builds(Order, inner, inner, inner, inner)
    ),
    max_leaves=8,
)
PLAIN: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(["int", "1.5"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["sku", "count", "price", "is_gift", "label", "name"]), inner, max_size=4)
    ),
    max_leaves=8,
)
STORED = PLAIN.map(json.dumps).map(str.encode) | st.sampled_from([b"[1e999]", b'{"sku":1e999}', b'["\\ud800"]', b" {}"])
TYPES: list[Any] = [
    Any,
    dict,
    list,
    dict[str, Any],
    dict[str, str],
    dict[str, int | None],
    dict[int, str],
    dict[Literal["sku", "count"], int],
    dict[str, list[int]],
    list[str],
    list[Any],
    tuple[str, int],
    tuple[int, ...],
    set[str],
    frozenset[int],
    Line,
    Order,
    list[Line],
    Options,
    Empty,
    Single,
    int | str,
]


@dataclass(frozen=True)
class Asked:
    """A shape that has to be asked about every value."""

    shape: Shape
    verbatim: frozenset[type] = NOTHING

    def __getattr__(self, name: str) -> Any:
        return getattr(self.shape, name)


def asked(shape: Any, seen: set[int]) -> Any:
    match shape:
        case Record() if id(shape) not in seen:
            seen.add(id(shape))
            shape.fill({name: replace(part, shape=asked(part.shape, seen)) for name, part in shape.fields.items()})
        case Maybe():
            shape = replace(shape, inner=asked(shape.inner, seen))
        case Items():
            shape = replace(shape, item=asked(shape.item, seen))
        case Row():
            shape = replace(shape, items=[asked(item, seen) for item in shape.items])
        case Tagged():
            shape = replace(shape, members={tag: asked(member, seen) for tag, member in shape.members.items()})
        case Table():
            shape = replace(shape, key=asked(shape.key, seen), item=asked(shape.item, seen))
        case _:
            pass
    return Asked(shape)


def deliberate(annotation: object) -> Codec[Any]:
    """Return a codec that asks about every value, as if there were no shorter way."""
    codec = codec_for(annotation)
    return replace(codec, shape=asked(codec.shape, set()), lenient=asked(codec.lenient, set()))


def written(codec: Codec[Any], value: object) -> object:
    try:
        return codec.encode(value)
    except ResultUnstorable as error:
        return str(error)


def read(codec: Codec[Any], data: bytes) -> object:
    try:
        return repr((codec.decode(data), codec.decode_result(data)))
    except RecordCorrupt as error:
        return str(error)


@given(st.sampled_from(TYPES), VALUES)
def test_any_value_is_written_or_refused_as_if_each_part_had_been_looked_at(annotation: object, value: object) -> None:
    assert written(codec_for(annotation), value) == written(deliberate(annotation), value)


@given(st.sampled_from(TYPES), STORED)
def test_any_bytes_are_read_or_refused_as_if_each_part_had_been_looked_at(annotation: object, stored: bytes) -> None:
    assert read(codec_for(annotation), stored) == read(deliberate(annotation), stored)


@given(st.data())
def test_values_of_a_type_are_written_and_read_as_if_each_part_had_been_looked_at(data: st.DataObject) -> None:
    annotation, values = data.draw(ANNOTATIONS)
    value = data.draw(values)
    codec, slow = codec_for(annotation), deliberate(annotation)
    assume(not isinstance(codec.shape, Model))  # Which writes itself.

    stored = codec.encode(value)

    assert stored == slow.encode(value)
    assert read(codec, stored) == read(slow, stored)


def test_what_was_read_is_the_caller_s_own() -> None:
    codec = codec_for(dict[str, Any])
    stored = codec.encode({"a": 1})

    codec.decode(stored)["a"] = 2

    assert codec.decode(stored) == {"a": 1}


@pytest.mark.parametrize("value", [None, "a\u00e9\n", 1.5, {"a": [1, {"b": True}]}, []])
def test_an_interpreter_without_the_c_half_of_json_writes_the_same(value: Any) -> None:
    assert "".join(writer(None)(value, 0)).encode() == write_by_standard(value)


def test_an_interpreter_without_the_c_half_of_json_refuses_the_same() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        list(writer(None)(math.nan, 0))


@pytest.mark.parametrize("value", [Single("Ada"), Single("")])
def test_a_dataclass_with_one_field_is_read_as_any_other(value: Single) -> None:
    codec = codec_for(Single)

    assert codec.decode(codec.encode(value)) == value


def test_a_codec_stays_equal_to_its_twin_and_shows_what_it_was_made_from() -> None:
    used, twin = codec_for(dict[str, int]), codec_for(dict[str, int])
    used.encode({})

    assert used == twin
    shown = f"{used} {codec_for(Single)}"
    assert not [name for name in ("text=", "_is_model=", "_flat=", "_has_", "_ways=") if name in shown]


def test_a_dict_of_json_is_looked_at_as_a_whole_and_each_part_only_for_the_reason() -> None:
    codec = codec_for(dict[str, Any])
    value = {"a": 1.5, "b": [{"c": [2.5, None]}]}

    assert codec.decode(codec.encode(value)) == value
    with pytest.raises(ResultUnstorable, match="expected a JSON value, found bytes"):
        codec.encode({"a": [b""]})
    assert codec_for(dict[str, dict]).decode(b'{"a":{}}') == {"a": {}}  # type: ignore[type-arg]  # A bare dict.
