"""Values and stored bytes that do not fit are refused, and not quoted: SEC24, SEC33, SEC34."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import (
    Any,
    Literal,
)
from uuid import UUID

import pydantic
import pytest

from nebis.core.codec import codec_for
from nebis.core.codec_record import Field, TypedDictRecord
from nebis.core.codec_scalar import SCALARS
from nebis.core.codec_shape import Misfit
from nebis.errors import RecordCorrupt, ResultUnstorable
from tests.core.codec_samples import (
    CANARY,
    PARIS,
    Access,
    Address,
    Card,
    Color,
    Invoice,
    Lenient,
    NamelessZone,
    Node,
    Payment,
    Plan,
    Point,
    Receipt,
)


def kind(value: object) -> str:
    """Name a test case by types alone: some values here have no printable form."""
    return type(value).__name__


class Lossy(float):
    def __eq__(self, other: object) -> bool:
        return False

    __hash__ = float.__hash__


class SecretLogin(pydantic.BaseModel):
    password: pydantic.SecretStr


class Measure(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(ser_json_inf_nan="constants")
    value: float


def with_attribute() -> Payment:
    payment = Payment(Decimal(1), None, [])
    payment.extra = CANARY  # type: ignore[attr-defined]  # The point of the test.
    return payment


def without_attribute() -> Payment:
    payment = Payment(Decimal(1), None, [])
    del payment.amount
    return payment


def self_containing() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


def chain(length: int) -> Node:
    node = Node("end", [])
    for _ in range(length - 1):
        node = Node("link", [node])
    return node


@pytest.mark.parametrize(
    ("annotation", "value", "reason"),
    [
        (int, CANARY, "int: expected int, found str"),
        (int, True, "int: expected int, found bool"),
        (int, 10**5000, "int: a number is too long"),
        (float, math.nan, "float: NaN and infinity"),
        (float, math.inf, "float: NaN and infinity"),
        (float, 2**53 + 1, "float: int would lose its value as float"),
        (float, 10**400, "float: not a storable float"),
        (float, True, "float: expected float, found bool"),
        (float, Lossy(1), "float: Lossy would lose its value"),
        (str, f"{CANARY}\ud800", "str: text with a lone surrogate"),
        (Any, {"\udfff": 1}, "Any: text with a lone surrogate"),
        (Decimal, Decimal("NaN"), "Decimal: NaN and infinity"),
        (date, datetime(2024, 1, 1, tzinfo=UTC), "date: datetime would lose its value"),
        (datetime, datetime(2024, 1, 1, tzinfo=NamelessZone()), "datetime: its time zone is neither"),
        (datetime, datetime(2024, 1, 1, tzinfo=timezone(timedelta(microseconds=1))), "datetime: its offset from UTC"),
        (time, time(1, tzinfo=timezone(timedelta(microseconds=1))), "time: its offset from UTC"),
        (time, time(1, tzinfo=PARIS), "time: its time zone is not"),
        (Color, Plan.FREE, "Color: expected Color, found Plan"),
        (Literal[1], True, r"Literal\[1\]: expected one of"),
        (Literal[1], [], r"Literal\[1\]: expected one of"),
        (int | str, 1.5, r"int \| str: expected int \| str, found float"),
        (list[int], (1,), r"list\[int\]: expected list\[int\], found tuple"),
        (list[int], [1, CANARY], r"list\[int\]\[\]: expected int, found str"),
        (tuple[int, str], (1,), r"tuple\[int, str\]: expected"),
        (tuple[int, str], (1, 2), r"tuple\[int, str\]\[1\]: expected str, found int"),
        (dict[str, int], [], r"dict\[str, int\]: expected"),
        (dict[str, int], {CANARY: CANARY}, r"dict\[str, int\]\[\]: expected int, found str"),
        (dict[str, int | None], {"a": CANARY}, r"dict\[str, int \| None\]\[\]: expected int, found str"),
        (dict[str, dict], {"a": [1]}, r"dict\[str, dict\]\[\]: expected dict, found list"),  # type: ignore[type-arg]  # A bare dict.
        (dict[str, dict], {"a": 5}, r"dict\[str, dict\]\[\]: expected dict, found int"),  # type: ignore[type-arg]  # A bare dict.
        (Payment, {"amount": 1}, "Payment: expected Payment, found dict"),
        (Payment, Payment(Decimal(1), Card(number="4", expires=CANARY), []), "Payment.card.expires: expected date"),  # type: ignore[arg-type]
        (Payment, with_attribute(), "Payment.extra: an attribute that is no field"),
        (Payment, without_attribute(), "Payment.amount: not set"),
        (Point, (1, 2.0), "Point: expected Point, found tuple"),
        (Point, tuple.__new__(Point, (1, 2.0, CANARY)), "Point: "),
        (Address, {"floor": 1}, "Address.street: not set"),
        (Address, {"street": "", CANARY: 1}, "Address: holds a key that Address does not declare"),
        (Address, [], "Address: expected Address, found list"),
        (Any, (1,), "Any: expected a JSON value, found tuple"),
        (Any, [math.nan], "Any: NaN and infinity"),
        (Any, {1: 2}, "Any: expected text as every key"),
        (Any, self_containing(), "Any: nested deeper than 64 levels"),
        (dict, [], "dict: expected dict, found list"),
        (Node, chain(40), "Node: nested deeper than 64 levels"),
        (Node, chain(5000), "Node: nested deeper than 64 levels"),
        (SecretLogin, SecretLogin(password=CANARY), "SecretLogin: SecretLogin does not come back equal"),  # type: ignore[arg-type]
        (list[Measure], [Measure(value=math.inf)], r"list\[Measure\]\[\]: NaN and infinity have no JSON form"),
        (Invoice, Receipt(amount=Decimal(1)), "Invoice: expected Invoice, found Receipt"),
        (Invoice, Invoice.model_construct(amount=CANARY), "Invoice: Invoice cannot be written as JSON"),
        (Receipt, Receipt(amount=object()), "Receipt: Receipt cannot be written as JSON"),  # type: ignore[arg-type]
    ],
    ids=kind,
)
def test_a_value_outside_its_annotation_is_refused_without_quoting_it_sec24(
    annotation: object, value: object, reason: str
) -> None:
    codec = codec_for(annotation)

    with pytest.raises(ResultUnstorable, match=f"stored: {reason}") as caught:
        codec.encode(value)

    assert CANARY not in str(caught.value)
    assert caught.value.__context__ is None


@pytest.mark.parametrize(
    ("annotation", "stored", "reason"),
    [
        (int, b"", "not JSON"),
        (int, b"1 2", "not JSON"),
        (int, b"\xff\xfe1\x00", "not JSON"),
        (int, b"true", "expected the stored form of int, found bool"),
        (int, b"9" * 5000, "not JSON"),
        (Any, b"[" * 100_000, "not JSON"),
        (Any, b"[" * 65 + b"]" * 65, "nested deeper"),
        (Any, b"NaN", "not JSON"),
        (Any, b"1e999", "NaN and infinity"),
        (Any, b'"\\ud800"', "not JSON"),
        (Any, b'{"\\uDfff":1}', "not JSON"),
        (float, b"1e999", "NaN and infinity"),
        (Decimal, b'"NaN"', "NaN and infinity"),
        (Decimal, b'"canary-4242"', "not a storable Decimal"),
        (bytes, b'"canary-4242"', "not a storable bytes"),
        (bytes, b'"YW\\nJj"', "not a storable bytes"),
        (UUID, b'"canary-4242"', "not a storable UUID"),
        (datetime, b'"canary-4242"', "not a storable datetime"),
        (datetime, b'"2024-01-01T00:00:00[Europe/Paris]"', "a stored zone needs its offset"),
        (datetime, b'"2024-01-01T00:00:00+00:00[Europe]"', "not a storable datetime"),
        (datetime, b'"2024-01-01T00:00:00+00:00[]"', "not a storable datetime"),
        (datetime, b'"2024-01-01T00:00:00+00:00[' + b"a" * 5000 + b']"', "not a storable datetime"),
        (datetime, b'"2024-01-01T00:00:00+00:00[a\\u0000b]"', "not a storable datetime"),
        (datetime, b'"2024-01-01T00:00:00+00:00[No/Zone]"', "not a storable datetime"),
        (datetime, b'"2024-01-01T00:00:00+00:00[../../etc/passwd]"', "not a storable datetime"),
        (timedelta, b"1" + b"0" * 30, "not a storable timedelta"),
        (Color, b'"GREEN"', "not a storable Color"),
        (Access, b"64", "not a storable Access"),
        (Lenient, b"64", "not a storable Lenient"),
        (Literal["a"], b'"b"', "expected one of"),
        (Literal["a"], b"[]", "expected one of"),
        (int | str, b'["float",1]', "not a stored member"),
        (int | str, b"1", "not a stored member"),
        (list[int], b"{}", "expected the stored form of list"),
        (set[int], b"[1,1]", "holds an item twice"),
        (tuple[int, str], b"[1]", "expected the stored form of tuple"),
        (dict[str, int], b"[]", "expected the stored form of dict"),
        (dict[int, int], b"{}", "expected the stored form of dict"),
        (dict[int, int], b"[[1]]", "expected the stored form of dict"),
        (dict[int, int], b"[[1,2],[1,3]]", "holds a key twice"),
        (Card, b"[]", "expected the stored form of Card"),
        (Card, b'{"number":"4"}', r"Card\.expires: missing, and without a default"),
        (Card, b'{"number":"4","expires":"2030-01-01","canary-4242":1}', "holds a field that this version"),
        (
            Payment,
            b'{"amount":"1","card":{"number":4,"expires":"2030-01-01"},"tags":[]}',
            r"Payment\.card\.number: exp",
        ),
        (Node, b'{"label":"","children":[' * 40 + b"]}" * 40, "nested deeper"),
        (Invoice, b'{"amount":"canary-4242"}', r"not a stored Invoice \(ValidationError\)"),
        (Receipt, b'{"amount":"canary-4242"}', r"not a stored Receipt \(ValidationError\)"),
        (list[Invoice], b"[1]", r"not a stored Invoice \(ValidationError\)"),
        (list[Measure], b'[{"value":1e999}]', "not JSON"),
    ],
    ids=kind,
)
def test_stored_bytes_of_another_type_are_corrupt_and_are_not_quoted_sec34_sec24(
    annotation: object, stored: bytes, reason: str
) -> None:
    codec = codec_for(annotation)

    with pytest.raises(RecordCorrupt, match=reason) as caught:
        codec.decode(stored)

    assert CANARY not in str(caught.value)
    assert caught.value.__context__ is None


def test_a_model_inside_of_another_value_keeps_finite_numbers() -> None:
    codec = codec_for(list[Measure])
    measured = [Measure(value=1.5), Measure(value=-5e-324), Measure(value=2.0**80)]

    assert codec.decode(codec.encode(measured)) == measured


def test_a_stored_zone_that_is_a_folder_is_corrupt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tzdata package opens whatever the key names, and a folder there is an OSError."""
    for folder in ("tzdata", "tzdata/zoneinfo", "tzdata/zoneinfo/Nowhere"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    for module in ("tzdata", "tzdata.zoneinfo"):
        monkeypatch.setitem(sys.modules, module, None)
        monkeypatch.delitem(sys.modules, module)

    with pytest.raises(RecordCorrupt, match="not a storable datetime"):
        codec_for(datetime).decode(b'"2024-01-01T00:00:00+00:00[Nowhere]"')


def test_escaped_text_that_only_looks_like_a_surrogate_is_read() -> None:
    assert codec_for(str).decode(b'"\\\\ud800"') == "\\ud800"
    assert codec_for(str).decode(b'"\\ud83d\\ude00"') == "\N{GRINNING FACE}"


@pytest.mark.parametrize("data", [b"[1]", b" [1]", b"[1]\n", b"\t[ 1 ] \r\n"])
def test_white_space_around_json_means_nothing(data: bytes) -> None:
    assert codec_for(list[int]).decode(data) == [1]


@pytest.mark.parametrize("data", [b"", b" ", b"[1] 2", b"[1],", b"\xc2\xa0[1]", b"[1"])
def test_anything_else_around_json_is_corrupt(data: bytes) -> None:
    with pytest.raises(RecordCorrupt, match="not JSON as Nebis writes it"):
        codec_for(list[int]).decode(data)


def test_a_record_stored_before_a_field_existed_takes_its_default_f118() -> None:
    restored = codec_for(Payment).decode(b'{"amount":"1","card":null,"tags":[]}')

    assert restored == Payment(Decimal(1), None, [])
    assert codec_for(Point).decode(b'{"x":1}') == Point(1)
    assert codec_for(Address).decode(b'{"street":"a"}') == {"street": "a"}


@dataclass(frozen=True)
class FrozenList:
    items: list[int]


def test_an_item_that_cannot_be_hashed_after_all_is_corrupt() -> None:
    with pytest.raises(RecordCorrupt, match="an item of set"):
        codec_for(set[FrozenList]).decode(b'[{"items":[]}]')
    with pytest.raises(RecordCorrupt, match="a key of dict"):
        codec_for(dict[FrozenList, int]).decode(b'[[{"items":[]},1]]')


def test_a_record_is_strict_unless_it_is_told_otherwise() -> None:
    record = TypedDictRecord(cls=dict, is_hashable=False, fields={"amount": Field(shape=SCALARS[int])})

    with pytest.raises(Misfit, match="amount: not set"):
        record.plain({})
    with pytest.raises(Misfit, match="missing, and without a default"):
        record.restore({})
    with pytest.raises(Misfit, match="holds a field that this version"):
        record.restore({"amount": 1, "note": ""})
