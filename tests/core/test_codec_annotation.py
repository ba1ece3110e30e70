"""Annotations are judged once, at registration, and every fault is told."""

from __future__ import annotations

import abc
import collections
import inspect
import socket
import subprocess
import sys
import typing
from dataclasses import dataclass, make_dataclass
from typing import (
    Annotated,
    Any,
    Generic,
    Literal,
    TypeVar,
    Union,
)

import msgspec
import pydantic
import pytest

from nebis.core.codec import annotations_of, codec_for
from nebis.errors import ConfigError
from tests.core.codec_samples import Card, Color, Invoice, Memberless, Node, Payment, of

T = TypeVar("T")


def faults_of(annotation: object) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        codec_for(annotation)
    return caught.value.faults


@dataclass
class WithSocket:
    card: socket.socket
    cards: list[dict[str, socket.socket | int]]
    fine: int


@dataclass
class Box(Generic[T]):
    content: T


@dataclass
class IntBox(Box[int]):
    pass


@dataclass
class Dangling:
    other: NeverDefined  # type: ignore[name-defined]  # noqa: F821 - The point of the test.


@dataclass
class Abstract(abc.ABC):
    amount: int

    @abc.abstractmethod
    def pay(self) -> None: ...


@dataclass
class Failure(Exception):
    amount: int


class Uncomparable(msgspec.Struct, eq=False):
    amount: int


class StructWithSocket(msgspec.Struct):
    card: socket.socket


class ModelWithSocket(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(arbitrary_types_allowed=True)
    card: socket.socket


class Basket(dict[str, int]):
    pass


class Pair(tuple[int, int]):
    __slots__ = ()


class Attributes:
    def __init__(self) -> None:
        self.amount = 1


OtherCard = make_dataclass("Card", [("number", str)])


class SelfReferring:
    """What `type Loop = list[Loop]` makes, in the versions of Python that have that statement."""

    @property
    def __value__(self) -> object:
        return of(list, self)

    def __repr__(self) -> str:
        return "Loop"


LOOP = SelfReferring()
PLAIN_VALUES = "cannot be stored; keep plain values instead, in a dataclass, a pydantic model or a msgspec struct"
CONCRETE = "cannot be stored; name a concrete type, such as list[int] or dict[str, int]"
UNHASHABLE = "cannot be stored; it cannot be hashed; use a list, or a hashable type"
NO_GENERICS = "cannot be stored; generic classes are not supported; write a class with its own fields"
CANNOT_BE_MADE = "cannot be stored; it is abstract, or its base class needs a constructor of its own"
RESOLVE = "annotate with the type itself"
NEVER_DEFINED = (
    "the annotations of Dangling do not resolve (name 'NeverDefined' is not defined); "
    "define the names they use at module level and import them at run time, not under TYPE_CHECKING"
)
NO_EQUALITY = "cannot be stored; without eq=True nobody can tell whether a replay is equal; declare the struct with it"
NO_STRUCT_SCHEMA = (
    "cannot be stored; msgspec cannot describe it as JSON (TypeError); give every field a type that it supports"
)
NO_MODEL_SCHEMA = (
    "cannot be stored; pydantic cannot describe it as JSON (PydanticInvalidForJsonSchema); "
    "complete its forward references and give every field a type with a JSON schema"
)


@pytest.mark.parametrize(
    ("annotation", "fault"),
    [
        (socket.socket, f"socket.socket {PLAIN_VALUES}"),
        (list[socket.socket], f"[]: socket.socket {PLAIN_VALUES}"),
        (object, f"object {PLAIN_VALUES}"),
        (Attributes, f"{__name__}.Attributes {PLAIN_VALUES}"),
        (Basket, f"{__name__}.Basket {PLAIN_VALUES}"),
        (Pair, f"{__name__}.Pair {PLAIN_VALUES}"),
        (T, f"~T {PLAIN_VALUES}"),
        (IntBox, f"IntBox.content: ~T {PLAIN_VALUES}"),
        (Memberless, f"{Memberless.__module__}.Memberless {PLAIN_VALUES}"),
        (inspect.Parameter.empty, "the annotation is missing; write the type, or None where there is no value"),
        ("Payment", f"'Payment' is a name that nobody resolved; {RESOLVE}"),
        (list["Payment"], f"[]: 'Payment' is a name that nobody resolved; {RESOLVE}"),
        (typing.List["Payment"], f"[]: ForwardRef('Payment') is a name that nobody resolved; {RESOLVE}"),  # noqa: UP006 - The old spelling is still met.
        (Dangling, NEVER_DEFINED),
        (set, "set cannot be stored; name the type of its items, such as set[int]"),
        (typing.Tuple, f"typing.Tuple {CONCRETE}"),  # noqa: UP006 - The old spelling is still met.
        (collections.abc.Sequence[int], f"collections.abc.Sequence[int] {CONCRETE}"),
        (set[list[int]], f"[]: list[int] {UNHASHABLE}"),
        (set[dict[str, int]], f"[]: dict[str, int] {UNHASHABLE}"),
        (set[socket.socket], f"[]: socket.socket {PLAIN_VALUES}"),
        (dict[Any, int], f"[key]: typing.Any {UNHASHABLE}"),
        (Box, f"{__name__}.Box {NO_GENERICS}"),
        (Box[int], f"{__name__}.Box[int] {NO_GENERICS}"),
        (Abstract, f"{__name__}.Abstract {CANNOT_BE_MADE}"),
        (Failure, f"{__name__}.Failure {CANNOT_BE_MADE}"),
        (list[int] | list[str], "the members of the union list[int] | list[str] cannot be told apart; merge them"),
        (of(Union, Any, int), "the members of the union Any | int cannot be told apart; merge them"),
        (of(Union, Card, OtherCard), "two members of the union Card have one name; rename one of them"),
        (Literal["RED", Color.RED], "Literal['RED', Color.RED] has two values with one stored form; use an Enum"),
        (of(Literal, [1]), "list cannot be stored; a Literal holds text, numbers or members of an Enum"),
        (LOOP, "[]: Loop cannot be stored; an alias must not contain itself; use a dataclass, or Any for JSON"),
        (Uncomparable, f"{__name__}.Uncomparable {NO_EQUALITY}"),
        (StructWithSocket, f"{__name__}.StructWithSocket {NO_STRUCT_SCHEMA}"),
        (ModelWithSocket, f"{__name__}.ModelWithSocket {NO_MODEL_SCHEMA}"),
    ],
)
def test_an_annotation_that_cannot_be_stored_is_refused_at_registration(annotation: object, fault: str) -> None:
    assert faults_of(annotation) == (fault,)


def test_a_default_without_a_json_schema_is_no_obstacle() -> None:
    class Marked(pydantic.BaseModel):
        note: str = pydantic.Field(default=object())  # type: ignore[assignment]  # Never given, only compared with.

    assert codec_for(Marked).name == "Marked"


def test_a_named_tuple_without_annotations_is_refused_field_by_field() -> None:
    pair = collections.namedtuple("pair", "x y")  # noqa: PYI024 - The point of the test.

    assert [fault.partition(";")[0] for fault in faults_of(pair)] == [
        "pair.x: the annotation is missing",
        "pair.y: the annotation is missing",
    ]


def test_every_fault_is_told_at_once_with_its_place() -> None:
    with pytest.raises(ConfigError) as caught:
        codec_for(tuple[WithSocket, socket.socket], where="create_payment, result")

    assert caught.value.faults == (
        f"create_payment, result: WithSocket.card: socket.socket {PLAIN_VALUES}",
        f"create_payment, result: WithSocket.cards[][]: socket.socket {PLAIN_VALUES}",
        f"create_payment, result: [1]: socket.socket {PLAIN_VALUES}",
    )


@pytest.mark.parametrize(
    ("annotation", "name"),
    [
        (None, "None"),
        (Payment | None, "Payment | None"),
        (int | str | None, "int | str | None"),
        (dict[str, list[Card]], "dict[str, list[Card]]"),
        (tuple[int, ...], "tuple[int, ...]"),
        (tuple[()], "tuple[()]"),
        (Literal["a", Color.RED], "Literal['a', Color.RED]"),
        (Invoice, "Invoice"),
        (Any, "Any"),
        (list, "list"),
    ],
)
def test_a_codec_is_named_for_people(annotation: object, name: str) -> None:
    assert codec_for(annotation).name == name


def test_only_a_type_that_contains_itself_is_recursive() -> None:
    assert codec_for(Node).is_recursive
    assert not codec_for(tuple[Card, Card]).is_recursive


def test_postponed_annotations_of_a_function_resolve_with_their_extras() -> None:
    def pay(amount: Annotated[int, "cents"], card: Card, untyped) -> Payment | None:  # type: ignore[no-untyped-def]
        raise NotImplementedError

    assert annotations_of(pay) == {"amount": Annotated[int, "cents"], "card": Card, "return": Payment | None}


def test_a_function_whose_annotations_do_not_resolve_is_refused() -> None:
    def pay(card: NeverDefined) -> None:  # type: ignore[name-defined]  # noqa: F821 - The point of the test.
        raise NotImplementedError

    with pytest.raises(ConfigError, match="name 'NeverDefined' is not defined"):
        annotations_of(pay)


def test_the_codec_loads_no_third_party_module() -> None:
    script = (
        "import sys; from nebis.core.codec import codec_for; codec_for(dict[str, int | None]); "
        "print([name for name in ('pydantic', 'msgspec') if name in sys.modules])"
    )

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"
