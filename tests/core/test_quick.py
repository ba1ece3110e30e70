import copy
import inspect
import pickle
from dataclasses import FrozenInstanceError, dataclass, field, fields, replace
from typing import Any, Generic, TypeVar
from uuid import UUID

import pytest

from nebis.core.quick import maker, quick
from nebis.core.record import Outcome, Ownership, Record
from nebis.core.verbs import Claim, Complete

V = TypeVar("V")


@dataclass(frozen=True, slots=True, kw_only=True)
class Usual:
    number: int
    name: str = field(repr=False)
    is_new: bool = True
    place: UUID | None = None


@quick
@dataclass(frozen=True, slots=True, kw_only=True)
class Quick:
    number: int
    name: str = field(repr=False)
    is_new: bool = True
    place: UUID | None = None


def test_a_quick_value_is_made_from_the_same_arguments() -> None:
    assert inspect.signature(Quick) == inspect.signature(Usual)
    assert Quick.__init__.__qualname__ == "Quick.__init__"


@pytest.mark.parametrize(
    "given",
    [{"number": 1, "name": "a"}, {"name": "b", "number": 2, "is_new": False, "place": UUID(int=3)}],
    ids=["with defaults", "with everything"],
)
def test_a_quick_value_has_what_it_was_given_and_nothing_else(given: dict[str, Any]) -> None:
    made, usual = Quick(**given), Usual(**given)

    assert type(made) is Quick
    assert [getattr(made, each.name) for each in fields(made)] == [getattr(usual, each.name) for each in fields(usual)]
    assert repr(made) == repr(usual).replace("Usual", "Quick")
    assert made == Quick(**given)
    assert hash(made) == hash(Quick(**given))
    assert not hasattr(made, "__dict__")


@pytest.mark.parametrize("given", [{"number": 1}, {"number": 1, "name": "a", "size": 2}], ids=["missing", "unknown"])
def test_a_quick_value_refuses_the_same_arguments_in_the_same_words(given: dict[str, Any]) -> None:
    with pytest.raises(TypeError) as refused:
        Usual(**given)

    with pytest.raises(TypeError) as found:
        Quick(**given)

    assert str(found.value) == str(refused.value).replace("Usual", "Quick")


def test_a_quick_value_is_frozen() -> None:
    made = Quick(number=1, name="a")

    with pytest.raises(FrozenInstanceError):
        made.number = 2  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        del made.name


@pytest.mark.parametrize(
    "remake",
    [copy.copy, copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value)), replace],
    ids=["copied", "copied deeply", "pickled", "replaced"],
)
def test_a_quick_value_is_copied_and_pickled_like_any_other(remake: Any) -> None:
    made = Quick(number=1, name="a", place=UUID(int=3))

    again = remake(made)

    assert type(again) is Quick
    assert again == made


@pytest.mark.parametrize("cls", [Record, Claim])
def test_every_field_of_a_quick_class_gets_its_own_argument(cls: Any) -> None:
    made = cls(**{each.name: (each.name,) for each in fields(cls)})

    assert type(made) is cls
    assert all(getattr(made, each.name) == (each.name,) for each in fields(cls))


@pytest.mark.parametrize("cls", [Quick, Record, Complete, Outcome, Ownership])
def test_a_value_of_a_maker_is_that_of_its_class(cls: Any) -> None:
    given = {each.name: (each.name,) for each in fields(cls)}

    made = maker(cls)(**given)

    assert type(made) is cls
    assert made == cls(**given)
    assert hash(made) == hash(cls(**given))
    with pytest.raises(FrozenInstanceError):
        setattr(made, fields(cls)[0].name, 2)


def test_a_maker_knows_the_same_defaults_and_wants_the_same_fields() -> None:
    assert maker(Quick)(number=1, name="a") == Quick(number=1, name="a")
    with pytest.raises(TypeError):
        maker(Quick)(number=1)  # type: ignore[call-arg]


@pytest.mark.parametrize("given", [{"number": 1, "name": "a"}, {"number": 2, "name": "b", "place": UUID(int=3)}])
def test_a_maker_makes_what_the_class_makes_from_the_same_arguments(given: dict[str, Any]) -> None:
    make = maker(Quick)

    assert make(**given) == Quick(**given)
    assert type(make(**given)) is Quick
    with pytest.raises(FrozenInstanceError):
        make(**given).number = 2  # type: ignore[misc]
    with pytest.raises(TypeError):
        make(**given, size=2)  # type: ignore[call-arg]


@dataclass(slots=True)
class Open:
    number: int
    name: str = "a"


def test_a_value_that_is_not_frozen_is_made_as_well() -> None:
    made = maker(Open)(1)

    assert type(made) is Open
    assert made == Open(1)
    made.number = 2
    assert made == Open(2)


@quick
@dataclass(frozen=True, slots=True)
class InOrder:
    number: int
    name: str = "a"


@dataclass(frozen=True, slots=True, kw_only=True)
class Either(Generic[V]):
    value: V


def test_a_value_may_be_made_by_position_where_its_class_allows_it() -> None:
    make = maker(InOrder)

    assert make(1, "b") == make(name="b", number=1) == InOrder(1, "b")
    assert make(1) == InOrder(1) == InOrder(number=1, name="a")


def test_a_generic_value_is_made_as_well() -> None:
    made = maker(Either)(value=1)

    assert type(made) is Either
    assert made == Either(value=1)
