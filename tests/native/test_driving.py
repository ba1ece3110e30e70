"""A compiled driver takes a flow where the Python function takes it, and leaves it there in the same state."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nebis.core.native import compiled
from nebis.flow import Ask, Flow, go_on
from tests.native.test_twins import grown

pytestmark = pytest.mark.skipif(compiled is None, reason="there is no C compiler here, or NEBIS_PURE is set")

Performs = Mapping[type[Ask[Any]], Callable[[Any, Any], Any]]


class AtOnce(Ask[object]):
    pass


class Failing(Ask[object]):
    pass


class Waiting(Ask[object]):
    pass


class Trouble(Exception):
    pass


def fail(turn: list[object], ask: Ask[Any]) -> object:
    turn.append(type(ask))
    raise Trouble(len(turn))


def perform(turn: list[object], ask: Ask[Any]) -> object:
    turn.append(type(ask))
    return len(turn)


PERFORMS: Performs = {AtOnce: perform, Failing: fail}
SCRIPTS = st.lists(st.tuples(st.sampled_from([AtOnce, Failing, Waiting]), st.booleans()), max_size=6)
ENDS = st.sampled_from([None, 7, (1, 2), StopIteration, Trouble, KeyboardInterrupt])


def played(script: list[tuple[type[Ask[Any]], bool]], end: object, heard: list[object]) -> Flow[object]:
    """Ask for one thing after the other, catch what is raised where that is written, and end like this."""
    for kind, catches in script:
        try:
            heard.append((yield kind()))
        except Trouble as trouble:
            heard.append(trouble.args)
            if not catches:
                raise
    if isinstance(end, type):
        raise end
    return end


def driven(
    step: Callable[..., tuple[bool, Any]], script: list[tuple[type[Ask[Any]], bool]], end: object
) -> list[object]:
    """Drive a flow to its end, answering what it waits for by a number or an error in turn; return all that is seen."""
    heard: list[object] = []
    turn: list[object] = []
    flow = played(script, end, heard)
    seen: list[object] = []
    try:
        is_over, asked = step(flow, None, PERFORMS, turn)
        for number in range(10):
            seen.append((is_over, asked if is_over else type(asked)))
            if is_over:
                break
            if number % 2:
                is_over, asked = step(flow, None, PERFORMS, turn, Trouble(number))
            else:
                is_over, asked = step(flow, number, PERFORMS, turn)
    except BaseException as error:  # noqa: BLE001 - whatever it is, both have to raise it.
        seen.append((type(error), error.args if isinstance(error, Trouble) else ()))
    return [seen, heard, turn, inspect.getgeneratorstate(flow)]


def defined(*arguments: Any, **named: Any) -> tuple[bool, Any]:
    """What the Python function says."""
    told: tuple[bool, Any] = cast("partial[tuple[bool, Any]]", go_on).args[0](*arguments, **named)
    return told


@given(SCRIPTS, ENDS)
def test_a_flow_is_taken_as_far_and_hears_and_does_the_same(
    script: list[tuple[type[Ask[Any]], bool]], end: object
) -> None:
    assert driven(go_on, script, end) == driven(defined, script, end)


def test_without_performers_each_ask_comes_back() -> None:
    for step in (go_on, defined):
        heard: list[object] = []
        flow = played([(AtOnce, True), (Failing, True)], "done", heard)
        is_over, asked = step(flow)
        assert not is_over
        assert type(asked) is AtOnce
        is_over, asked = step(flow, 5)
        assert type(asked) is Failing
        assert step(flow, error=Trouble(3)) == (True, "done")
        assert heard == [5, (3,)]


def test_what_cannot_be_driven_is_refused_as_the_python_function_refuses_it() -> None:
    refused: list[tuple[Any, ...]] = [(), (5,), (5, None, PERFORMS, [])]
    for step in (go_on, defined):
        for wrong in refused:
            with pytest.raises((TypeError, AttributeError)):
                step(*wrong)
    assert compiled is not None
    with pytest.raises(TypeError):
        compiled.go_on()


@pytest.mark.parametrize("end", [7, Trouble])
def test_nothing_is_left_behind(end: object) -> None:
    script: list[tuple[type[Ask[Any]], bool]] = [(AtOnce, True), (Failing, True), (Waiting, True), (Failing, False)]

    def drive_on() -> Iterator[None]:
        while True:
            driven(go_on, script, end)
            yield

    uses = drive_on()
    grown(uses)

    assert min(grown(uses) for _ in range(3)) < 200
