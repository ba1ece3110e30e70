"""Types and values on which the codec is tried."""

from __future__ import annotations

import enum
import functools
from dataclasses import KW_ONLY, InitVar, dataclass, field
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from typing import (
    Annotated,
    Any,
    ClassVar,
    Final,
    Literal,
    NamedTuple,
    NewType,
    NotRequired,
    Required,
    TypedDict,
    Union,
)
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import pydantic
from hypothesis import strategies as st

Cents = NewType("Cents", int)
MaybeCents = NewType("MaybeCents", int | None)  # type: ignore[valid-newtype]  # Legal at run time, so it must work.
PARIS = ZoneInfo("Europe/Paris")
CANARY = "canary-4242"


class Color(enum.Enum):
    RED = 1
    BLUE = "blue"


class Plan(enum.StrEnum):
    FREE = "free"


class Access(enum.Flag):
    READ = 1
    WRITE = 2


class Lenient(enum.Flag, boundary=enum.CONFORM):
    """Flags that drop the bits that they do not know, as all did in early releases of Python 3.11."""

    READ = 1
    WRITE = 2


class Memberless(enum.Enum):
    """An enumeration to be subclassed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    number: str
    expires: date


@dataclass
class Payment:
    kind: ClassVar[str] = "payment"
    amount: Annotated[Decimal, "EUR"]
    card: Card | None
    tags: list[Color]
    note: str = ""
    history: list[int] = field(default_factory=list)
    _: KW_ONLY
    limit: Final[Cents] = Cents(5)


@dataclass
class Node:
    label: str
    children: list[Node]


@dataclass
class Doubling:
    """A class whose constructor must not run again."""

    amount: int
    factor: InitVar[int] = 2
    total: int = field(init=False)

    def __post_init__(self, factor: int) -> None:
        self.amount *= factor
        self.total = self.amount + 1

    @functools.cached_property
    def half(self) -> float:
        return self.amount / 2


class Point(NamedTuple):
    x: int
    y: float = 0.5


class Address(TypedDict):
    street: str
    floor: NotRequired[int]


class Partial(TypedDict, total=False):
    city: Required[str]
    code: int


class Invoice(pydantic.BaseModel):
    amount: Decimal
    due: date = pydantic.Field(validation_alias="dueDate", serialization_alias="due_on")


class Receipt(msgspec.Struct, frozen=True):
    amount: Decimal
    lines: tuple[str, ...] = ()


class DriverUUID(UUID):
    """What some database drivers return."""


class NamelessZone(tzinfo):
    def utcoffset(self, when: datetime | None) -> timedelta:
        return timedelta(hours=1)

    def dst(self, when: datetime | None) -> None:
        return None

    def tzname(self, when: datetime | None) -> None:
        return None


def typed(value: object) -> object:
    """Make equality as strict as identity of type: 1, 1.0, True and Decimal("1.0") differ from each other."""
    match value:
        case list() | tuple():
            return type(value), [typed(item) for item in value]
        case set() | frozenset():
            return type(value), {typed_hashable(item) for item in value}
        case dict():
            return dict, [(typed(key), typed(item)) for key, item in value.items()]
        case _:
            return type(value), repr(value), value


def typed_hashable(value: object) -> tuple[type, str]:
    return type(value), repr(value)


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
FIXED_ZONES = st.none() | st.integers(-72_000, 72_000).map(lambda seconds: timezone(timedelta(seconds=seconds)))
SCALARS: dict[Any, st.SearchStrategy[Any]] = {
    None: st.none(),
    bool: st.booleans(),
    int: st.integers(),
    float: st.floats(allow_nan=False, allow_infinity=False),
    str: TEXT,
    bytes: st.binary(max_size=20),
    Decimal: st.decimals(allow_nan=False, allow_infinity=False),
    # Without a named zone the fold means nothing: equality ignores it.
    datetime: st.datetimes(timezones=FIXED_ZONES).map(lambda value: value.replace(fold=0)),
    date: st.dates(),
    time: st.times(timezones=FIXED_ZONES).map(lambda value: value.replace(fold=0)),
    timedelta: st.timedeltas(),
    UUID: st.uuids(),
    Color: st.sampled_from(Color),
    Plan: st.sampled_from(Plan),
    Access: st.sampled_from([Access(0), Access.READ, Access.READ | Access.WRITE]),
    Literal["a", 1, True, None, Color.RED, b"x"]: st.sampled_from(["a", 1, True, None, Color.RED, b"x"]),  # noqa: PYI061 - Both spellings occur.
    Cents: st.integers().map(Cents),
    Annotated[int, "positive"]: st.integers(),
}
CARDS = st.builds(Card, number=TEXT, expires=st.dates())
RECORDS: dict[Any, st.SearchStrategy[Any]] = {
    Card: CARDS,
    Payment: st.builds(
        Payment,
        amount=SCALARS[Decimal],
        card=st.none() | CARDS,
        tags=st.lists(SCALARS[Color]),
        note=TEXT,
        history=st.lists(st.integers()),
        limit=SCALARS[Cents],
    ),
    Point: st.builds(Point, x=st.integers(), y=SCALARS[float]),
    Address: st.fixed_dictionaries({"street": TEXT}, optional={"floor": st.integers()}),
    Partial: st.fixed_dictionaries({"city": TEXT}, optional={"code": st.integers()}),
    Receipt: st.builds(Receipt, amount=SCALARS[Decimal], lines=st.lists(TEXT).map(tuple)),
    Invoice: st.builds(Invoice, amount=st.decimals(allow_nan=False, allow_infinity=False), dueDate=st.dates()),
    Node: st.recursive(
        st.builds(Node, label=TEXT, children=st.just([])),
        lambda inner: st.builds(Node, label=TEXT, children=st.lists(inner, max_size=3)),
        max_leaves=6,
    ),
    Any: JSON,
    dict: st.dictionaries(TEXT, JSON, max_size=3),
    list: st.lists(JSON, max_size=3),
}
Sample = tuple[Any, st.SearchStrategy[Any]]
SAMPLES: list[Sample] = [*SCALARS.items(), *RECORDS.items()]
# Hash equality must imply equality of type here, or the same set has two spellings.
KEYS = st.sampled_from([(cls, SCALARS[cls]) for cls in (bool, int, str, bytes, date, UUID, Color, timedelta)])


def of(origin: Any, *arguments: Any) -> Any:
    return origin[arguments]


def wrapped(inner: st.SearchStrategy[Sample]) -> st.SearchStrategy[Sample]:
    return st.one_of(
        inner.map(lambda item: (of(list, item[0]), st.lists(item[1], max_size=3))),
        inner.map(lambda item: (of(tuple, item[0], ...), st.lists(item[1], max_size=3).map(tuple))),
        inner.map(lambda item: (of(Union, item[0], None), st.none() | item[1])),
        st.tuples(inner, inner).map(lambda two: (of(tuple, two[0][0], two[1][0]), st.tuples(two[0][1], two[1][1]))),
        st.tuples(KEYS, inner).map(
            lambda two: (of(dict, two[0][0], two[1][0]), st.dictionaries(two[0][1], two[1][1], max_size=3))
        ),
        KEYS.map(lambda item: (of(set, item[0]), st.sets(item[1], max_size=3))),
        KEYS.map(lambda item: (of(frozenset, item[0]), st.frozensets(item[1], max_size=3))),
    )


ANNOTATIONS = st.recursive(st.sampled_from(SAMPLES), wrapped, max_leaves=4)
