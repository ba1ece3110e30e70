from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from enum import IntEnum
from typing import Any
from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nebis.core.canonical import DEEPEST_TREE, canonical
from nebis.core.jsonform import json_form
from nebis.core.plain import plain
from nebis.errors import BodyRefused


class Size(IntEnum):
    SMALL = 1


class Name(str):
    __slots__ = ()


@dataclass
class Order:
    amount: int


# The edges of ASCII, of UTF-8's lengths and of UTF-16, whose order is another one than that of code points.
TEXTS = st.text() | st.text(st.sampled_from("\x00a~\x7f\x80\u07ff\u0800\ue000\uffff\U00010000\U0010ffff:{}[]sn0"))
NUMBERS = (
    st.integers()
    | st.sampled_from([0, -10, 1200, 2**4096 - 1, -(10**300)])
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.decimals(allow_nan=False, allow_infinity=False)
)
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda children: st.lists(children, max_size=5) | st.dictionaries(TEXTS, children, max_size=5),
    max_leaves=20,
)
UNUSUAL: list[Any] = [(), (1,), b"1", Size.SMALL, Name("a"), {1}, date(2024, 6, 1), UUID(int=1), Order(1), object()]
REFUSED: list[Any] = [float("nan"), float("-inf"), Decimal("NaN"), 2**4096, "\ud800", "\U0001f600\udfff"]


@given(JSON)
@example({"\ue000": 1, "\U00010000": 2})
@example({"a": 1, "aa": 2, "": 3, "b": {"a": 10, "": 0}})
def test_the_form_is_the_one_of_the_general_way(tree: object) -> None:
    assert json_form(tree) == canonical(plain(tree))


@given(JSON, st.sampled_from([*UNUSUAL, *REFUSED]))
def test_whatever_is_not_plain_json_goes_the_general_way(tree: object, other: object) -> None:
    assert json_form(other) is None
    assert json_form([tree, {"a": [other]}]) is None


@pytest.mark.parametrize("name", [1, None, (), Name("a"), Size.SMALL, "\ud800"])
def test_names_that_are_not_plain_text_go_the_general_way(name: object) -> None:
    assert json_form({"a": {name: 1}}) is None


@pytest.mark.parametrize("wrap", [lambda tree: [tree], lambda tree: {"a": tree}])
@pytest.mark.parametrize("leaf", ["a", 1])
def test_a_tree_may_be_as_deep_as_the_limit_and_no_deeper_f100(wrap: Any, leaf: object) -> None:
    tree = leaf
    for _ in range(DEEPEST_TREE):
        tree = wrap(tree)

    assert json_form(tree) == canonical(plain(tree))
    assert json_form(tree, 1) is None
    assert json_form(wrap(tree)) is None
    assert json_form(leaf, DEEPEST_TREE) == canonical(leaf)
    assert json_form(leaf, DEEPEST_TREE + 1) is None


def test_a_field_below_the_deepest_level_is_refused_whatever_it_is_f100() -> None:
    tree: object = Order(1)
    for _ in range(DEEPEST_TREE):
        tree = [tree]

    with pytest.raises(BodyRefused, match="nested deeper"):
        plain(tree)


@pytest.mark.parametrize("size", [1023, 1024, 5000])
def test_text_of_any_size_has_the_form_of_the_general_way(size: int) -> None:
    text = "a" * size

    for tree in ([text], {text: 1}, {"name": text}):
        assert json_form(tree) == canonical(tree)


def test_heirs_of_numbers_ids_and_times_have_the_form_of_what_they_are() -> None:
    heirs = [type("Heir", (cls,), {}) for cls in (float, Decimal, UUID, datetime)]
    made = [heirs[0](1.5), heirs[1]("1.50"), heirs[2](int=1), heirs[3](2024, 6, 1)]

    assert canonical(made) == canonical([1.5, Decimal("1.5"), UUID(int=1), datetime(2024, 6, 1)])  # noqa: DTZ001
