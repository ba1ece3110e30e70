import subprocess
import sys
import uuid
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum
from typing import Any, ClassVar, Literal, TypedDict

import msgspec
import pydantic
import pydantic.dataclasses
import pytest

from nebis.core.canonical import canonical
from nebis.core.plain import Fields, plain, unknown_fields
from nebis.errors import BodyRefused, MisuseError


@dataclass
class DataclassLine:
    name: str
    count: int = 1


@dataclass
class DataclassOrder:
    amount: Decimal
    currency: str = "eur"
    lines: list[DataclassLine] = field(default_factory=list)


@dataclass(slots=True)
class DataclassOrderLater:
    __nebis_name__ = "DataclassOrder"
    amount: Decimal
    note: str | None = None
    lines: list[DataclassLine] = field(default_factory=list)
    currency: str = "eur"


class PydanticLine(pydantic.BaseModel):
    name: str
    count: int = 1


class PydanticOrder(pydantic.BaseModel):
    amount: Decimal
    currency: str = "eur"
    lines: list[PydanticLine] = []
    tags: set[str] = pydantic.Field(default_factory=set)


class PydanticOrderLater(PydanticOrder):
    __nebis_name__: ClassVar[str] = "PydanticOrder"
    note: str | None = None


class MsgspecLine(msgspec.Struct):
    name: str
    count: int = 1


class MsgspecOrder(msgspec.Struct):
    amount: Decimal
    currency: str = "eur"
    lines: list[MsgspecLine] = []
    note: str | msgspec.UnsetType = msgspec.UNSET


class MsgspecOrderLater(msgspec.Struct, kw_only=True, tag=True):
    __nebis_name__ = "MsgspecOrder"
    more: dict[str, int] = msgspec.field(default_factory=dict)
    amount: Decimal
    currency: str = "eur"
    lines: list[MsgspecLine] = []


class TypedOrder(TypedDict):
    amount: int


Kinds = [
    (DataclassOrder, DataclassLine, DataclassOrderLater),
    (PydanticOrder, PydanticLine, PydanticOrderLater),
    (MsgspecOrder, MsgspecLine, MsgspecOrderLater),
]
each_kind = pytest.mark.parametrize(("order", "line", "later"), Kinds, ids=["dataclass", "pydantic", "msgspec"])


def form(command: object, *, include: tuple[str, ...] | None = None, exclude: tuple[str, ...] = ()) -> bytes:
    return canonical(plain(command, fields=Fields(include=include, exclude=exclude)))


@each_kind
def test_a_field_given_with_its_default_equals_one_left_out(order: Any, line: Any, later: Any) -> None:
    short = order(amount=Decimal("10.0"))
    long = order(amount=Decimal(10), currency="eur", lines=[])

    assert form(short) == form(long)


@each_kind
def test_a_field_that_is_not_at_its_default_counts(order: Any, line: Any, later: Any) -> None:
    forms = {
        form(order(amount=Decimal(10))),
        form(order(amount=Decimal(11))),
        form(order(amount=Decimal(10), currency="usd")),
        form(order(amount=Decimal(10), lines=[line(name="a")])),
        form(order(amount=Decimal(10), lines=[line(name="a", count=2)])),
        form(order(amount=Decimal(10), lines=[line(name="a"), line(name="a")])),
    }

    assert len(forms) == 6


@each_kind
def test_a_deploy_that_adds_a_field_with_a_default_and_reorders_changes_nothing_f5(
    order: Any, line: Any, later: Any
) -> None:
    lines = [line(name="a", count=1)]

    assert form(order(amount=Decimal(10), lines=lines)) == form(later(amount=Decimal(10), lines=lines))


@each_kind
def test_nested_fields_are_excluded_in_every_element_f103(order: Any, line: Any, later: Any) -> None:
    one = order(amount=Decimal(10), lines=[line(name="a", count=2), line(name="b", count=3)])
    other = order(amount=Decimal(10), lines=[line(name="a", count=4), line(name="b", count=5)])

    assert form(one) != form(other)
    assert form(one, exclude=("lines.count",)) == form(other, exclude=("lines.count",))
    assert form(one, exclude=("lines.name",)) != form(other, exclude=("lines.name",))


@each_kind
def test_only_included_fields_count(order: Any, line: Any, later: Any) -> None:
    one = order(amount=Decimal(10), lines=[line(name="a", count=2)])
    other = order(amount=Decimal(10), currency="usd", lines=[line(name="a", count=3)])

    chosen = ("amount", "lines.name")
    assert form(one, include=chosen) == form(other, include=chosen)
    assert form(one, include=("lines",)) != form(other, include=("lines",))
    assert form(one, include=("lines",), exclude=("lines.count",)) == form(
        other, include=("lines",), exclude=("lines.count",)
    )


@each_kind
def test_paths_are_checked_against_the_fields_at_start_up(order: Any, line: Any, later: Any) -> None:
    fields = Fields(include=("amuont", "lines.name"), exclude=("lines.nothing-is-known-below", "curency"))

    assert unknown_fields(order, fields) == ("amuont", "curency")


def test_paths_of_a_typed_dict_are_checked_and_those_of_an_open_one_are_not() -> None:
    assert unknown_fields(TypedOrder, Fields(exclude=("amount", "x"))) == ("x",)
    assert unknown_fields(dict, Fields(exclude=("amount", "x"))) == ()


def test_a_shorter_path_covers_a_longer_one_in_any_order() -> None:
    command = {"a": {"b": 1, "c": 2}, "d": 3}

    assert form(command, exclude=("a", "a.b")) == form(command, exclude=("a.b", "a")) == form({"d": 3})
    assert form(command, include=("a", "a.b")) == form(command, include=("a.b", "a")) == form({"a": {"b": 1, "c": 2}})
    assert form(command, exclude=("a.b", "a.c")) == form({"a": {}, "d": 3})


def test_members_without_a_text_name_are_passed_over_like_list_elements() -> None:
    command = {"rates": {1: {"value": 5, "seen": 7}, 2: {"value": 6}}}

    assert form(command, exclude=("rates.seen",)) == form({"rates": {1: {"value": 5}, 2: {"value": 6}}})
    assert form(command, include=("rates.seen",)) == form({"rates": {1: {"seen": 7}, 2: {}}})


@pytest.mark.parametrize("paths", [("",), ("a.",), (".a",), ("a..b",)])
def test_a_path_with_an_empty_name_is_refused(paths: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="not a dotted path"):
        Fields(exclude=paths)
    with pytest.raises(ValueError, match="not a dotted path"):
        Fields(include=paths)


def test_including_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="any command would match any other"):
        Fields(include=())


def test_members_of_a_union_that_differ_only_in_defaults_are_distinct() -> None:
    """A discriminator with a default is left out like any other default, so that the class has to speak."""

    class Card(pydantic.BaseModel):
        kind: Literal["card"] = "card"
        reference: str

    class Bank(pydantic.BaseModel):
        kind: Literal["bank"] = "bank"
        reference: str

    assert form(Card(reference="x")) != form(Bank(reference="x"))
    assert form({"method": Card(reference="x")}) != form({"method": Bank(reference="x")})


def test_the_order_in_which_a_class_names_its_fields_does_not_count_f5() -> None:
    @dataclass
    class Transfer:
        source: str
        amount: int

    first = form(Transfer(source="a", amount=1))

    @dataclass
    class Transfer:  # type: ignore[no-redef]  # The same class in the next deploy.
        amount: int
        source: str

    assert form(Transfer(source="a", amount=1)) == first


def test_a_fixed_name_is_not_inherited() -> None:
    class Heir(PydanticOrderLater):
        pass

    assert form(Heir(amount=Decimal(1))) != form(PydanticOrderLater(amount=Decimal(1)))


def test_a_default_is_compared_by_meaning_not_by_pythons_equality() -> None:
    @dataclass
    class Command:
        flag: object = 0
        amount: object = Decimal("1.0")

    assert form(Command(flag=False)) != form(Command())
    assert form(Command(flag=0.0, amount=1)) == form(Command())


def test_a_default_that_only_excluded_fields_tell_from_the_value_is_left_out() -> None:
    @dataclass
    class Command:
        options: dict[str, int] = field(default_factory=lambda: {"a": 1, "seen": 0})

    assert form(Command({"a": 1, "seen": 9}), exclude=("options.seen",)) == form(Command(), exclude=("options.seen",))


def test_a_marker_as_default_is_left_out_and_a_value_in_its_place_counts() -> None:
    unset = object()

    @dataclass
    class Command:
        note: object = unset

    assert form(Command()) != form(Command(note="x"))
    assert form(MsgspecOrder(amount=Decimal(1))) != form(MsgspecOrder(amount=Decimal(1), note="x"))


def test_unknown_fields_that_the_model_ignores_do_not_count_f5() -> None:
    assert form(PydanticOrder.model_validate({"amount": 1, "trace": "a"})) == form(PydanticOrder(amount=Decimal(1)))


def test_unknown_fields_that_the_model_accepts_do_count() -> None:
    class Open(pydantic.BaseModel):
        model_config = pydantic.ConfigDict(extra="allow")
        number: int = pydantic.Field(default=0, alias="n")

    one, other = Open.model_validate({"trace": "a"}), Open.model_validate({"trace": "b"})

    assert form(one) != form(other)
    assert form(one, exclude=("trace",)) == form(other, exclude=("trace",))
    assert form(Open.model_validate({"number": 5})) != form(Open.model_validate({"n": 5}))


def test_a_pydantic_field_left_to_a_random_factory_does_not_count_until_it_is_given_f103() -> None:
    class Command(pydantic.BaseModel):
        trace: uuid.UUID = pydantic.Field(default_factory=uuid.uuid4)

    assert form(Command()) == form(Command())
    assert form(Command(trace=uuid.UUID(int=1))) != form(Command())


def test_a_pydantic_list_that_was_filled_in_place_counts() -> None:
    command = PydanticOrder(amount=Decimal(1))
    command.tags.add("x")

    assert form(command) != form(PydanticOrder(amount=Decimal(1)))
    assert form(command) == form(PydanticOrder(amount=Decimal(1), tags={"x"}))


def test_a_pydantic_factory_that_reads_other_fields_is_never_called_again() -> None:
    class Command(pydantic.BaseModel):
        amount: int
        fee: int = pydantic.Field(default_factory=lambda data: data["amount"] // 10)
        notes: list[str] = pydantic.Field(default_factory=lambda data: [str(data["amount"])])

    assert form(Command(amount=100)) == form(Command(amount=100, notes=["100"]))
    assert form(Command(amount=100)) != form(Command(amount=100, fee=10))


def test_pydantic_dataclasses_root_models_urls_and_hidden_strings_are_understood() -> None:
    @pydantic.dataclasses.dataclass
    class Command:
        amount: int
        count: int = pydantic.Field(default=1)

    class Names(pydantic.RootModel[list[str]]):
        pass

    class Hook(pydantic.BaseModel):
        url: pydantic.HttpUrl
        token: pydantic.SecretStr

    hooks = [
        Hook.model_validate({"url": url, "token": token})
        for url, token in (("http://a/x", "1"), ("http://a/y", "1"), ("http://a/x", "2"))
    ]

    assert form(Command(1)) == form(Command(1, 1))
    assert form(Command(1)) != form(Command(1, 2))
    assert form(Names(["a"])) != form(Names(["b"]))
    assert len(set(map(form, hooks))) == 3


def test_a_pydantic_model_without_fields_is_a_model() -> None:
    class Nothing(pydantic.BaseModel):
        pass

    assert form(Nothing()) != form({})


def test_plain_containers_are_walked() -> None:
    class Colour(Enum):
        RED = "red"

    command: TypedOrder = {"amount": 1}

    assert form(command) == form({"amount": 1.0})
    assert form((1, [2, {3}], {"a": Colour.RED})) == canonical([1, [2, {3}], {"a": "red"}])


def test_a_set_of_anything_but_scalars_is_refused() -> None:
    with pytest.raises(MisuseError, match="element of type 'tuple'"):
        plain({(1, 2)})


@pytest.mark.parametrize("command", [object(), {"a": object()}, DataclassOrder, DataclassOrder(amount=object())])  # type: ignore[arg-type]
def test_a_command_with_a_type_that_has_no_rule_is_refused(command: object) -> None:
    with pytest.raises(MisuseError, match="exclude its field"):
        form(command)


@each_kind
def test_models_in_a_tuple_count_as_in_a_list(order: Any, line: Any, later: Any) -> None:
    assert form((line(name="a"), line(name="b"))) == form([line(name="a"), line(name="b")])


def test_a_scalar_counts_as_itself_whatever_its_class_can_do() -> None:
    class Label(str):
        __slots__ = ()

        def unicode_string(self) -> str:
            return "something else"

    assert form(Label("a")) == form("a")


def test_a_command_that_contains_itself_is_refused_f100() -> None:
    @dataclass
    class Node:
        children: list["Node"] = field(default_factory=list)

    node = Node()
    node.children.append(node)

    with pytest.raises(BodyRefused, match="nested deeper than 80 levels"):
        plain(node)


def test_deep_models_with_defaults_cost_no_more_than_their_size_f100() -> None:
    """Comparing with the default and then walking once more would double the work on every level: 2^39 here."""

    @dataclass
    class Node:
        payload: str
        children: list["Node"] = field(default_factory=list)

    node = Node("x" * 10_000)
    for _ in range(39):
        node = Node("x", [node])

    assert len(form(node)) < 12_000


def test_neither_pydantic_nor_msgspec_is_imported() -> None:
    script = (
        "import sys, nebis.core.fingerprint, nebis.core.plain\n"
        "nebis.core.plain.plain({'a': [1]})\n"
        "assert not {'pydantic', 'msgspec'} & set(sys.modules)"
    )

    subprocess.run([sys.executable, "-c", script], check=True)
