import decimal
import json
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum
from fractions import Fraction
from itertools import combinations
from types import MappingProxyType
from typing import NamedTuple
from uuid import UUID

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nebis.core.canonical import DEEPEST_TREE, Encoded, Model, canonical
from nebis.core.strictjson import Json, parse
from nebis.errors import BodyRefused, MisuseError


class Colour(Enum):
    RED = "red"


class Size(IntEnum):
    SMALL = 1


class Name(str):
    __slots__ = ()


class Count(int):
    pass


class Point(NamedTuple):
    x: int
    y: int


NUMBERS = (
    st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.decimals(allow_nan=False, allow_infinity=False)
)
SCALARS = (
    st.none()
    | st.booleans()
    | NUMBERS
    | st.text()
    | st.binary()
    | st.dates()
    | st.times()
    | st.timedeltas()
    | st.datetimes()
    | st.datetimes(timezones=st.timezones())
    | st.uuids()
)
TREES = st.recursive(
    SCALARS, lambda children: st.lists(children, max_size=4) | st.dictionaries(st.text(), children, max_size=4)
)
# So few leaves that two drawn trees are often equal, or differ in one place only.
SMALL_TREES = st.recursive(
    st.sampled_from([None, True, False, 0, 0.0, 1, Decimal("1.0"), "", "0", "1", b"", b"1"]),
    lambda children: st.lists(children, max_size=2) | st.dictionaries(st.sampled_from(["", "0", "1"]), children),
    max_leaves=4,
)
JSON_TREES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.text(),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(st.text(), children, max_size=4),
    max_leaves=15,
)

EQUAL = {
    "one": [1, 1.0, Decimal(1), Decimal("1.00"), Decimal("1e0"), Decimal("10e-1"), Size.SMALL],
    "zero": [0, 0.0, -0.0, Decimal("-0"), Decimal("0.00"), Decimal("0e10")],
    "a tenth": [0.1, Decimal("0.1"), Decimal("0.10"), Decimal("1e-1")],
    "a hundred": [100, 100.0, 1e2, Decimal("1e2"), Decimal("100.0"), Decimal("1.00e2")],
    "minus a thousand": [-1000, -1e3, Decimal("-1e3")],
    "very large": [10**22, 1e22, Decimal("1e22")],
    "beyond a double": [10**400, Decimal("1e400")],
    "list": [[1, "a"], (1, "a"), [Decimal("1.0"), "a"]],
    "pair": [[1, 2], Point(1, 2)],
    "mapping": [{"a": 1, "b": 2}, {"b": 2.0, "a": 1.0}],
    "set": [{3, 1, 2}, frozenset({1, 2, 3}), {Decimal(3), 2.0, 1}],
    "set filled in another order": [set(range(0, 80, 8)), set(range(72, -1, -8))],
    "enum": [Colour.RED, "red"],
    "bytes": [b"ab", bytearray(b"ab")],
    "instant": [
        datetime(2024, 6, 1, 12, tzinfo=UTC),
        datetime(2024, 6, 1, 14, tzinfo=timezone(timedelta(hours=2))),
        datetime(2024, 6, 1, 11, 30, tzinfo=timezone(timedelta(minutes=-30))),
    ],
    "local time": [datetime(2024, 6, 1, 12), datetime(2024, 6, 1, 12, fold=1)],  # noqa: DTZ001  Naive on purpose.
    "span": [timedelta(days=1), timedelta(hours=24)],
    "encoded": [["a"], [Encoded(canonical("a"))]],
}
DISTINCT: list[object] = [
    None,
    True,
    False,
    0,
    1,
    -1,
    0.1,
    10,
    "",
    "0",
    "1",
    "true",
    "null",
    "None",
    "é",
    "e\u0301",
    b"",
    b"1",
    b"true",
    [],
    [[]],
    [None],
    ["a", "b"],
    ["ab"],
    ["b", "a"],
    {},
    {"": ""},
    {"a": "b"},
    {"a": None},
    {"a": {"b": 1}},
    {"a": 1, "b": 1},
    {1: "a"},
    {"1": "a"},
    set(),
    {"a", "b"},
    {"a"},
    [("a", "b")],
    date(2024, 6, 1),
    "2024-06-01",
    datetime(2024, 6, 1),  # noqa: DTZ001  Naive on purpose: it is another meaning than the next one.
    datetime(2024, 6, 1, tzinfo=UTC),
    datetime(2024, 6, 1, 0, 0, 0, 1, tzinfo=UTC),
    time(0),
    time(0, tzinfo=UTC),
    timedelta(0),
    UUID(int=0),
    str(UUID(int=0)),
    UUID(int=0).bytes,
    Model(name="A", fields={}, extra={}),
    Model(name="B", fields={}, extra={}),
    Model(name="A", fields={"a": 1}, extra={}),
    Model(name="A", fields={}, extra={"a": 1}),
]


@pytest.mark.parametrize("spellings", EQUAL.values(), ids=EQUAL.keys())
def test_equal_meaning_gives_equal_bytes(spellings: list[object]) -> None:
    assert len({canonical(spelling) for spelling in spellings}) == 1


def test_subclasses_of_plain_types_count_by_their_value() -> None:
    assert canonical([Name("a"), Count(120), Count(0)]) == canonical(["a", 120, 0])
    assert canonical(MappingProxyType({"a": Point(1, 2)})) == canonical({"a": [1, 2]})


def test_distinct_meaning_gives_distinct_bytes() -> None:
    for one, other in combinations(DISTINCT, 2):
        assert canonical(one) != canonical(other), (one, other)


def test_the_form_is_frozen() -> None:
    """Stored fingerprints depend on it: a change here is a new form beside this one, never an edit."""
    tree = {"b": [1, -2.50, True, False, None], "a": "é", "c": {b"x"}, "d": Model(name="M", fields={"f": 0}, extra={})}

    assert canonical(tree) == (b"{s1:as2:\xc3\xa9s1:b[n3:1e0n6:-25e-1tfz]s1:c<b1:x>s1:dm1:M{s1:fn1:0}{}}")
    assert canonical([date(2024, 6, 1), time(1, 2), timedelta(seconds=1), UUID(int=1)]) == (
        b"[d10:2024-06-01c8:01:02:00p7:1000000u16:" + bytes(15) + b"\x01]"
    )
    assert canonical([datetime(2024, 6, 1), datetime(1970, 1, 2, tzinfo=UTC)]) == (  # noqa: DTZ001  Naive on purpose.
        b"[l19:2024-06-01T00:00:00i11:86400000000]"
    )


@given(NUMBERS, NUMBERS)
def test_numbers_are_equal_exactly_when_their_spelt_values_are_f098(
    one: float | Decimal, other: float | Decimal
) -> None:
    values = [Fraction(repr(number)) if isinstance(number, float) else Fraction(number) for number in (one, other)]

    assert (canonical(one) == canonical(other)) == (values[0] == values[1])


@given(st.integers(-(10**30), 10**30), st.integers(0, 20))
def test_a_number_is_the_same_in_every_spelling(coefficient: int, zeros: int) -> None:
    padded = Decimal(f"{coefficient}.{'0' * zeros}")
    scientific = Decimal(f"{coefficient}{'0' * zeros}e-{zeros}")

    assert canonical(coefficient) == canonical(padded) == canonical(scientific)


@given(TREES, TREES)
@example({"a": 1, "b": True}, {"b": True, "a": Decimal("1.0")})
def test_any_two_trees_are_equal_exactly_when_their_bytes_are_f101(one: object, other: object) -> None:
    assert (canonical(one) == canonical(other)) == (_meaning(one) == _meaning(other))


@settings(max_examples=500)
@given(SMALL_TREES, SMALL_TREES)
def test_similar_trees_are_equal_exactly_when_their_bytes_are_f101(one: object, other: object) -> None:
    assert (canonical(one) == canonical(other)) == (_meaning(one) == _meaning(other))


@given(TREES)
def test_a_copy_with_its_names_in_another_order_is_equal(tree: object) -> None:
    assert canonical(_reversed(tree)) == canonical(tree)


@given(JSON_TREES, st.sampled_from([None, 0, 3]), st.booleans(), st.booleans())
def test_spelling_of_a_json_body_does_not_matter(
    tree: Json, indent: int | None, is_ascii: bool, is_sorted: bool
) -> None:
    plainly = json.dumps(tree).encode()
    otherwise = json.dumps(_reversed(tree), indent=indent, ensure_ascii=is_ascii, sort_keys=is_sorted).encode()

    assert canonical(parse(otherwise)) == canonical(parse(plainly)) == canonical(tree)


def test_the_callers_decimal_context_changes_nothing() -> None:
    amount = Decimal("12345678901234567890.12345678901234567890")
    expected = canonical(amount)

    with decimal.localcontext() as context:
        context.prec = 2

        assert canonical(amount) == expected
        assert canonical(amount) != canonical(amount + 1)


@pytest.mark.parametrize(
    "moment",
    [
        datetime.min.replace(tzinfo=timezone(timedelta(hours=14))),
        datetime.max.replace(tzinfo=timezone(timedelta(hours=-12))),
    ],
)
def test_instants_at_both_ends_of_the_calendar_are_encoded(moment: datetime) -> None:
    assert canonical(moment).startswith(b"i")


@pytest.mark.parametrize(
    ("tree", "reason"),
    [
        (float("nan"), "NaN"),
        (float("inf"), "Infinity"),
        ([Decimal("NaN")], "NaN"),
        (Decimal("sNaN"), "NaN"),
        (Decimal("-Infinity"), "Infinity"),
        (1 << 4096, "more than 4096 bits"),
        (-(10**5000), "more than 4096 bits"),
        ("\ud800", "surrogate"),
        ({"\udc00": 1}, "surrogate"),
    ],
    ids=["nan", "inf", "decimal-nan", "signalling-nan", "decimal-inf", "4097-bits", "5001-digits", "high", "low"],
)
def test_content_without_one_meaning_is_refused_f098_f099(tree: object, reason: str) -> None:
    with pytest.raises(BodyRefused, match=reason):
        canonical(tree)


@pytest.mark.parametrize("tree", [object(), [1j], {"a": Fraction(1, 2)}, {object(): 1}, range(3), str, ...])
def test_a_type_without_a_rule_is_refused_by_name(tree: object) -> None:
    with pytest.raises(MisuseError, match="has no canonical form; convert it to a plain type, or exclude its field"):
        canonical(tree)


@pytest.mark.parametrize("wrap", [lambda tree: [tree], lambda tree: {"a": tree}, lambda tree: frozenset({tree})])
def test_a_tree_may_be_as_deep_as_the_limit_and_no_deeper_f100(wrap: object) -> None:
    assert callable(wrap)
    tree: object = 1
    for _ in range(DEEPEST_TREE):
        tree = wrap(tree)

    assert canonical(tree)
    with pytest.raises(BodyRefused, match="nested deeper than 80 levels"):
        canonical(wrap(tree))


def test_a_tree_that_contains_itself_is_refused_f100() -> None:
    tree: list[object] = []
    tree.append(tree)

    with pytest.raises(BodyRefused, match="nested deeper"):
        canonical(tree)


def _meaning(tree: object) -> object:
    """The same equality, said in another way: by types and Python's own comparison of values."""
    match tree:
        case bool() | None | str() | bytes() | UUID() | timedelta():
            return type(tree), tree
        case float():
            return "number", Fraction(repr(tree))
        case int() | Decimal():
            return "number", Fraction(tree)
        case datetime():
            instant = None if tree.utcoffset() is None else tree - datetime(1970, 1, 1, tzinfo=UTC)
            return datetime, instant or tree.replace(tzinfo=None), instant is None
        case date() | time():
            return type(tree), tree
        case list():
            return list, [_meaning(item) for item in tree]
        case dict():
            return dict, {name: _meaning(member) for name, member in tree.items()}
    raise AssertionError(tree)


def _reversed(tree: object) -> object:
    match tree:
        case list():
            return [_reversed(item) for item in tree]
        case dict():
            return {name: _reversed(member) for name, member in reversed(tree.items())}
    return tree
