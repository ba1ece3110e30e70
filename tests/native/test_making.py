"""A compiled maker makes the values that the written function makes, from the same arguments."""

import gc
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any, Generic, TypeVar
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nebis.core.ids import make_id
from nebis.core.native import compiled
from nebis.core.quick import Maker, _written, maker
from nebis.core.record import Record
from tests.native.test_twins import grown

pytestmark = pytest.mark.skipif(compiled is None, reason="there is no C compiler here, or NEBIS_PURE is set")

V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class InOrder:
    number: object
    name: object
    is_new: object = True
    place: object = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Named(Generic[V]):
    number: V
    name: object = field(repr=False)
    is_new: object = True
    place: object = None


@dataclass(slots=True)
class Open:
    number: object
    name: object
    is_new: object = True
    place: object = None


@dataclass(frozen=True, slots=True)
class Mixed:
    number: object
    place: object = None
    name: object = field(kw_only=True)
    is_new: object = field(default=True, kw_only=True)


def written(cls: Any) -> Callable[..., Any]:
    """What `maker` gives where nothing is compiled."""
    make: Any = _written(cls, "make", "", "self = new(Opened)", "return self")
    make.__defaults__, make.__kwdefaults__ = cls.__init__.__defaults__, cls.__init__.__kwdefaults__
    return make  # type: ignore[no-any-return]


def outcome(make: Callable[..., Any], values: list[Any], named: dict[str, Any]) -> object:
    """What it makes, or the words in which it refuses."""
    try:
        made = make(*values, **named)
    except TypeError as error:
        return str(error)
    return type(made), [getattr(made, each.name) for each in fields(made)]


NAMES = st.sampled_from(["number", "name", "is_new", "place", "size", "n" + "umber", ""])


@pytest.mark.parametrize("cls", [InOrder, Named, Open, Mixed])
def test_a_compiled_maker_makes_and_refuses_what_the_written_one_does(cls: Any) -> None:
    compiled_one, written_one = maker(cls), written(cls)
    assert type(compiled_one) is not type(written_one)

    @given(st.lists(st.integers(), max_size=6), st.dictionaries(NAMES, st.integers(), max_size=6))
    def check(values: list[Any], named: dict[str, Any]) -> None:
        assert outcome(compiled_one, values, named) == outcome(written_one, values, named)
        # Names that only look alike, as whoever makes them while it runs may give.
        copies = {"".join(list(name)): value for name, value in named.items()}
        assert outcome(compiled_one, values, copies) == outcome(written_one, values, copies)

    check()


def test_a_value_with_many_fields_is_made_by_position_and_by_name() -> None:
    values = [(each.name,) for each in fields(Record)]
    named = {each.name: (each.name,) for each in fields(Record)}

    ways: list[tuple[list[Any], dict[str, Any]]] = [
        (values, {}),
        ([], named),
        ([], dict(reversed(named.items()))),
        (values[:5], dict([*named.items()][5:])),
    ]
    for way in ways:
        assert outcome(maker(Record), *way) == (Record, values)


def test_an_id_is_made_of_bits() -> None:
    assert make_id(2**127 + 1) == UUID(int=2**127 + 1)
    assert weakref.ref(made := make_id(1))() is made
    with pytest.raises(TypeError):
        make_id()  # type: ignore[call-arg]


class Loose:
    number = 1


class Slotted:
    __slots__ = ("number",)


class Related(Slotted):
    __slots__ = ("name",)


class Borrowing:
    __slots__ = ()
    number = vars(Slotted)["number"]  # The slot of another class.


def _of_number(number: object) -> object:
    return number


def _of_many(**given: object) -> object:
    return given


def test_a_maker_takes_nothing_but_slots() -> None:
    assert Maker(Related, _of_number).make(2).number == 2
    for kind in (Loose, Borrowing, int, UUID):
        with pytest.raises((TypeError, AttributeError)):
            Maker(kind, _of_number)
    wrong: list[Any] = [(), (Slotted,), (Slotted, print), ("Slotted", _of_number), (Slotted, _of_number, 1)]
    for arguments in wrong:
        with pytest.raises(TypeError):
            Maker(*arguments)
    assert Maker(Slotted, _of_many).make(size=1) == {"size": 1}
    names = ", ".join(f"field_{number}" for number in range(33))
    place: dict[str, Any] = {}
    exec(f"def written({names}): pass", place)
    with pytest.raises(TypeError, match="at most 32 fields"):
        Maker(Slotted, place["written"])


def test_what_is_made_is_seen_by_the_garbage_collector() -> None:
    held = Loose()
    remembered = weakref.ref(held)
    circle = maker(Open)(held, None)
    circle.name = circle

    del circle, held
    gc.collect()

    assert remembered() is None


def test_a_maker_leaves_nothing_behind() -> None:
    make, named = maker(InOrder), maker(Named)
    repeated: Any = make

    def uses() -> Any:
        while True:
            make(1, object())
            named(name=object(), number=[])
            for wrong in ((), (1,), (1, 2, 3, 4, 5)):
                with pytest.raises(TypeError):
                    make(*wrong)
            with pytest.raises(TypeError):
                repeated(object(), number=1)
            Maker(Slotted, _of_number).make(number=1)
            yield

    many = uses()
    grown(many, 200)

    assert min(grown(many, 200) for _ in range(3)) < 100
