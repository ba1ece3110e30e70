"""What is made of the one row in which a batch of claims and completions is answered."""

from __future__ import annotations

from collections.abc import Callable
from struct import pack

import pytest

from nebis.core.answers import Grant, Granted
from nebis.core.claiming import first_life
from nebis.core.owning import KEPT
from nebis.core.record import Fence
from nebis.core.verbs import Claim, Verb
from nebis.flow import Ask, drive
from nebis.stores.sql.asks import Query, Row
from nebis.stores.sql.dialect import postgres_dialect
from nebis.stores.sql.exchanging import Exchange, exchange_one, is_exchange
from tests.runtime.verbs import claim, completion, renewal

INSTANT = 1_000
BATCH: list[Verb] = [completion(9), claim(3), claim(1), completion(8), claim(2)]


def answered(rows: list[Row]) -> Exchange:
    exchange = Exchange(BATCH)

    def perform(ask: Ask[object]) -> list[Row]:
        assert isinstance(ask, Query)
        assert ask.statement.name == "exchange"
        return rows

    drive(exchange.run(postgres_dialect().statements, None), perform)
    return exchange


def row(new: list[int], done: list[int]) -> Row:
    """Return the row of a server that began and completed these, with a hundred times their number as a fence."""
    begun = b"".join(claim(number).identity for number in new) or None
    fences = pack(f"!{len(new)}q", *(100 * number for number in new)) or None
    return begun, fences, INSTANT, b"".join(claim(number).identity for number in done) or None


def granted(verb: Claim, number: int) -> Granted:
    return Granted(record=first_life(verb, INSTANT, Fence(100 * number)), how=Grant.NEW)


def test_answers_stand_in_the_order_of_the_verbs() -> None:
    exchange = answered([row([1, 2, 3], [9, 8])])

    assert exchange.in_order() == [KEPT, granted(claim(3), 3), granted(claim(1), 1), KEPT, granted(claim(2), 2)]
    assert exchange.ended == [claim(9).identity, claim(8).identity]


@pytest.mark.parametrize("new", [[3, 1, 2], [2, 3], [2], []])
@pytest.mark.parametrize("done", [[8, 9], [8], []])
def test_everybody_gets_its_own_answer_or_none(new: list[int], done: list[int]) -> None:
    exchange = answered([row(new, done)])

    assert exchange.answers == {
        **{claim(number).identity: granted(claim(number), number) for number in new},
        **{completion(number).ownership.identity: KEPT for number in done},
    }
    assert set(exchange.ended) == {claim(number).identity for number in done}


@pytest.mark.parametrize("number", [2, 3])
@pytest.mark.parametrize("is_new", [True, False])
def test_one_kind_is_asked_for_by_a_statement_of_its_own(number: int, is_new: bool) -> None:
    kind = claim if is_new else completion
    verbs: list[Verb] = [kind(each) for each in range(1, number + 1)]
    statements = []

    def perform(ask: Ask[object]) -> list[Row]:
        assert isinstance(ask, Query)
        statements.append(ask.statement.name)
        assert ask.members is not None
        assert len(ask.members) == number
        begun, fences, instant, done = row([1] if is_new else [], [] if is_new else [1])
        return [(begun, fences, instant)] if is_new else [(done,)]

    exchange = Exchange(verbs)
    drive(exchange.run(postgres_dialect().statements, None), perform)

    assert exchange.answers == {claim(1).identity: granted(claim(1), 1) if is_new else KEPT}
    assert statements == ["claim_all" if is_new else "complete_all"]


@pytest.mark.parametrize("kind", [claim, completion])
def test_one_kind_may_find_nothing_as_it_hoped(kind: Callable[[int], Verb]) -> None:
    nothing: list[Row] = [(None, None, None)] if kind is claim else [(None,)]
    exchange = Exchange([kind(each) for each in range(2)])

    drive(exchange.run(postgres_dialect().statements, None), lambda _: nothing)

    assert exchange.answers == {}


@pytest.mark.parametrize("is_new", [True, False])
def test_a_lone_verb_is_asked_for_by_itself_and_may_find_nothing_as_it_hoped(is_new: bool) -> None:
    verb = claim(1) if is_new else completion(1)
    rows: list[list[Row]] = [[(claim(1).identity, 100, INSTANT)] if is_new else [(claim(1).identity, None)], []]
    statements = []

    def perform(ask: Ask[object]) -> list[Row]:
        assert isinstance(ask, Query)
        statements.append(ask.statement.name)
        return rows.pop(0)

    answers = [drive(exchange_one(postgres_dialect().statements, verb, None), perform) for _ in range(2)]

    assert answers == [granted(claim(1), 1) if is_new else KEPT, None]
    assert statements == 2 * ["claim" if is_new else "complete"]


def test_only_claims_and_completions_are_exchanged() -> None:
    assert is_exchange(BATCH)
    assert is_exchange(BATCH[:1])
    assert not is_exchange([*BATCH, renewal(7)])
