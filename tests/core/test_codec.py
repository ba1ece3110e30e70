"""Typed values come back equal in type and value, and what is stored stays readable (F118)."""

from __future__ import annotations

import collections
import json
import typing
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Literal
from uuid import UUID

import pydantic
import pytest
import typing_extensions
from hypothesis import given, settings
from hypothesis import strategies as st

from nebis.core.codec import codec_for
from nebis.errors import RecordCorrupt
from tests.core.codec_samples import (
    ANNOTATIONS,
    JSON,
    PARIS,
    SAMPLES,
    Access,
    Address,
    Card,
    Color,
    Doubling,
    DriverUUID,
    Invoice,
    MaybeCents,
    Partial,
    Payment,
    Plan,
    Point,
    Receipt,
    of,
    typed,
)

AMOUNTS = typing_extensions.TypeAliasType("AMOUNTS", list[int])


class Crossed(pydantic.BaseModel):
    """Each field goes by the other's name outside."""

    model_config = pydantic.ConfigDict(validate_by_name=True)
    one: int = pydantic.Field(alias="two")
    two: int = pydantic.Field(alias="one")


class Parsed(pydantic.BaseModel):
    inner: pydantic.Json[list[int]]


@dataclass(frozen=True)
class Nothing:
    """Says all by being there."""


def assert_round_trip(annotation: object, value: object) -> None:
    codec = codec_for(annotation)

    restored = codec.decode(codec.encode(value))

    assert typed(restored) == typed(value)


def assert_kept_as(annotation: object, value: object, kept: object) -> None:
    codec = codec_for(annotation)

    assert typed(codec.decode(codec.encode(value))) == typed(kept)


@pytest.mark.parametrize(("annotation", "values"), SAMPLES, ids=lambda part: getattr(part, "__name__", ""))
@settings(max_examples=20)
@given(data=st.data())
def test_every_kind_of_type_restores_type_and_value(
    annotation: object, values: st.SearchStrategy[Any], data: st.DataObject
) -> None:
    assert_round_trip(annotation, data.draw(values))


@given(st.data())
def test_any_nesting_of_types_restores_type_and_value(data: st.DataObject) -> None:
    annotation, values = data.draw(ANNOTATIONS)

    assert_round_trip(annotation, data.draw(values))


@given(st.data(), st.binary(max_size=40) | JSON.map(lambda value: json.dumps(value).encode()))
def test_decoding_foreign_bytes_gives_a_storable_value_or_record_corrupt_sec33_sec34(
    data: st.DataObject, stored: bytes
) -> None:
    annotation, _ = data.draw(ANNOTATIONS)
    codec = codec_for(annotation)

    try:
        value = codec.decode(stored)
    except RecordCorrupt:
        return

    assert typed(codec.decode(codec.encode(value))) == typed(value)


@given(st.data())
def test_decoding_the_bytes_of_another_type_never_raises_anything_but_record_corrupt_sec34(data: st.DataObject) -> None:
    annotation, values = data.draw(ANNOTATIONS)
    other, _ = data.draw(ANNOTATIONS)
    stored = codec_for(annotation).encode(data.draw(values))

    try:
        codec_for(other).decode(stored)
    except RecordCorrupt:
        return


@pytest.mark.parametrize(
    ("annotation", "value", "stored"),
    [
        (None, None, b"null"),
        (float, 1e16, b"1e+16"),
        (str, "é\n", b'"\xc3\xa9\\n"'),
        (bytes, b"\x00\xff", b'"AP8="'),
        (Decimal, Decimal("1.10"), b'"1.10"'),
        (datetime, datetime(2024, 1, 2, 3, tzinfo=UTC), b'"2024-01-02T03:00:00+00:00"'),
        (datetime, datetime(2024, 1, 2, 3, tzinfo=PARIS), b'"2024-01-02T03:00:00+01:00[Europe/Paris]"'),
        (timedelta, timedelta(seconds=1), b"1000000"),
        (Color, Color.RED, b'"RED"'),
        (Access, Access.READ | Access.WRITE, b"3"),
        (int | None, None, b"null"),
        (int | None, 5, b"5"),
        (int | str, 5, b'["int",5]'),
        (dict[str, int], {"a": 1}, b'{"a":1}'),
        (dict[str, Decimal], {"a": Decimal("1.10")}, b'{"a":"1.10"}'),
        (dict[int, str], {1: "a"}, b'[[1,"a"]]'),
        (set[str], {"b", "a", "c"}, b'["a","b","c"]'),
        (tuple[()], (), b"[]"),
        (Point, Point(1), b'{"x":1,"y":0.5}'),
        (Card, Card(number="4", expires=date(2030, 1, 1)), b'{"number":"4","expires":"2030-01-01"}'),
        (
            Invoice,
            Invoice.model_validate({"amount": "1", "dueDate": "2030-01-01"}),
            b'{"amount":"1","due":"2030-01-01"}',
        ),
        (Receipt, Receipt(amount=Decimal(1)), b'{"amount":"1","lines":[]}'),
    ],
)
def test_the_stored_form_never_changes_f118(annotation: object, value: object, stored: bytes) -> None:
    codec = codec_for(annotation)

    assert codec.encode(value) == stored
    assert typed(codec.decode(stored)) == typed(value)


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (int | float, 1),
        (int | float, 1.0),
        (bool | int, True),
        (str | Plan, Plan.FREE),
        (str | Plan, "free"),
        (date | datetime, datetime(2024, 1, 1)),  # noqa: DTZ001 - Naive on purpose.
        (date | datetime, date(2024, 1, 1)),
        (Card | Payment | None, Card(number="4", expires=date(2030, 1, 1))),
        (Card | Payment | None, None),
        (Invoice | Receipt, Receipt(amount=Decimal(1))),
        (list[int] | dict[str, int], [1]),
        (Literal["a", "b"] | int, "b"),
        (Address | int, {"street": "a"}),
        (Partial, {"city": "a"}),
        (MaybeCents | str, None),
        (MaybeCents | str, "a"),
        (tuple[int, ...] | Point, Point(1)),
        (set[int | str], {1, "1"}),
        (dict[tuple[int, str], Point], {(1, "a"): Point(1)}),
        (dict[Point | int, int], {Point(1): 1, 2: 2}),
        (frozenset[frozenset[int]], frozenset({frozenset({1})})),
        (set[int | None], {1, None}),
        (set[Literal["a", "b"]], {"b"}),
        (set[Card], {Card(number="4", expires=date(2030, 1, 1))}),
        (set[Receipt], {Receipt(amount=Decimal(1))}),
        (list[Invoice], [Invoice.model_validate({"amount": "1", "dueDate": "2030-01-01"})]),
        (typing.List[int], [1]),  # noqa: UP006 - The old spelling is still met.
        (typing.Dict, {"a": [1, None]}),  # noqa: UP006 - The old spelling is still met.
        (typing_extensions.TypeAliasType("Amounts", list[int]), [1]),
        (typing_extensions.TypeAliasType("Maybe", int | None) | str, None),
        (of(tuple, AMOUNTS, AMOUNTS), ([1], [2])),
        (Crossed, Crossed(one=1, two=2)),
        (Parsed, Parsed(inner="[1]")),  # type: ignore[arg-type]  # Pydantic reads it.
    ],
)
def test_members_that_look_alike_are_told_apart(annotation: object, value: object) -> None:
    assert_round_trip(annotation, value)


@pytest.mark.parametrize(
    ("annotation", "value", "kept"),
    [
        (float, 1, 1.0),
        (float | str, 1, 1.0),
        (float | None, 2, 2.0),
        (str, Plan.FREE, "free"),
        (UUID, DriverUUID(int=7), UUID(int=7)),
        (UUID | str, DriverUUID(int=7), UUID(int=7)),
        (dict[str, int], collections.Counter("aab"), {"a": 2, "b": 1}),
        (tuple[int, float], Point(1), (1, 0.5)),
    ],
)
def test_what_a_type_checker_accepts_is_kept_as_the_annotated_type(
    annotation: object, value: object, kept: object
) -> None:
    assert_kept_as(annotation, value, kept)


@given(st.datetimes(timezones=st.timezones(), allow_imaginary=True))
def test_a_named_time_zone_is_kept_with_the_right_pass_of_a_repeated_hour(value: datetime) -> None:
    codec = codec_for(datetime)

    restored = codec.decode(codec.encode(value))

    assert restored == value
    assert restored.tzinfo is value.tzinfo
    assert restored.utcoffset() == value.utcoffset()


def test_an_instant_survives_a_change_of_the_rules_of_its_zone() -> None:
    stored_under_other_rules = b'"2024-07-01T12:00:00+05:00[Europe/Paris]"'

    restored = codec_for(datetime).decode(stored_under_other_rules)

    assert restored == datetime(2024, 7, 1, 7, tzinfo=UTC)
    assert restored.tzinfo is PARIS


def test_a_dataclass_without_fields_is_kept() -> None:
    codec = codec_for(Nothing)

    assert codec.encode(Nothing()) == b"{}"
    assert codec.decode(b"{}") == Nothing()


def test_a_dataclass_is_restored_without_running_its_constructor_again() -> None:
    value = Doubling(100)
    assert value.half == 100.0
    codec = codec_for(Doubling)

    restored = codec.decode(codec.encode(value))

    assert (restored.amount, restored.total, restored.half) == (200, 201, 100.0)


class _PointOnce(typing.NamedTuple):
    x: int
    y: int
    z: int


class _PointNow(typing.NamedTuple):
    x: int
    y: int


class _TagOnce(typing.TypedDict):
    name: str
    since: int


class _TagNow(typing.TypedDict):
    name: str


@dataclass(frozen=True)
class _OrderOnce:
    id: str
    legacy: int
    point: _PointOnce
    tags: list[_TagOnce]
    parent: _OrderOnce | None = None


@dataclass(frozen=True)
class _OrderNow:
    id: str
    point: _PointNow
    tags: list[_TagNow]
    parent: _OrderNow | None = None
    added: int = 7


def test_a_result_whose_type_lost_a_field_is_read_without_it_at_every_depth_f118() -> None:
    inner = _OrderOnce("1", 2, _PointOnce(1, 2, 3), [])
    stored = codec_for(_OrderOnce).encode(_OrderOnce("2", 3, _PointOnce(4, 5, 6), [{"name": "a", "since": 1}], inner))

    read = codec_for(_OrderNow).decode_result(stored)

    parent = _OrderNow("1", _PointNow(1, 2), [])
    assert read == _OrderNow("2", _PointNow(4, 5), [{"name": "a"}], parent)


def test_a_command_that_has_a_field_too_many_is_never_read_f118() -> None:
    """An old process must not run a newer one's command without a part of it."""
    stored = codec_for(_PointOnce).encode(_PointOnce(1, 2, 3))

    with pytest.raises(RecordCorrupt, match="deploy the one that wrote it"):
        codec_for(_PointNow).decode(stored)


def test_a_result_that_lacks_a_field_or_has_another_type_in_it_is_still_corrupt() -> None:
    codec = codec_for(_PointOnce)

    for stored in (b'{"x":1,"y":2}', b'{"x":1,"y":2,"z":"3"}', b"[1,2,3]"):
        with pytest.raises(RecordCorrupt):
            codec.decode_result(stored)


@settings(max_examples=20)
@pytest.mark.parametrize(("annotation", "values"), SAMPLES, ids=lambda part: getattr(part, "__name__", ""))
@given(data=st.data())
def test_a_result_of_every_kind_is_read_as_it_was_stored(
    annotation: object, values: st.SearchStrategy[Any], data: st.DataObject
) -> None:
    codec, value = codec_for(annotation), data.draw(values)

    assert typed(codec.decode_result(codec.encode(value))) == typed(value)
