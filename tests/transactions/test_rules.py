"""What a block promises whatever its driver: rows and outcome together, and a clear word where that is impossible."""

from typing import Any

import pytest

from nebis import InDoubt, MisuseError, Rejected
from nebis.effects import Unrecoverable
from tests.transactions.scenes import Scene, Step, announce, attach, fail, finish, pay, reject
from tests.transactions.shops import Customer, Shop


def test_rows_and_outcome_are_there_together(shop: Shop, key: str) -> None:
    first, again = shop.sell(key), shop.sell(key)

    assert (first.result, first.is_replay) == ("paid", False)
    assert (again.result, again.is_replay) == ("paid", True)
    assert shop.books.of(key) == (1, 1)


def test_on_the_applications_own_connection_too(shop: Shop, customer: Customer, key: str) -> None:
    assert shop.sell(key, connection=customer.raw).result == "paid"
    assert shop.sell(key, connection=customer.raw).is_replay
    assert shop.books.of(key) == (1, 1)


@pytest.mark.parametrize("joins", [False, True])
def test_a_rejection_is_stored_and_its_rows_are_not(shop: Shop, request: pytest.FixtureRequest, joins: bool) -> None:
    connection = request.getfixturevalue("customer").raw if joins else None
    key = request.getfixturevalue("key")

    for _ in range(2):
        with pytest.raises(Rejected, match="declined"):
            shop.sell(key, pay, reject, connection=connection)

    assert shop.books.of(key) == (0, 0)
    assert shop.books.state(key) == "C"


def test_an_exception_undoes_the_rows_and_frees_the_key(shop: Shop, key: str) -> None:
    with pytest.raises(LookupError):
        shop.sell(key, pay, announce, fail)

    assert shop.books.of(key) == (0, 0)
    assert shop.sell(key).result == "paid"
    assert shop.books.of(key) == (1, 1)


def test_a_block_without_a_result_is_rolled_back_and_says_so(shop: Shop, key: str) -> None:
    with pytest.raises(MisuseError, match=r"call tx\.finish"):
        shop.sell(key, pay)

    assert shop.books.of(key) == (0, 0)
    assert shop.sell(key).result == "paid"


def test_an_effect_inside_the_transaction_is_refused_at_once(shop: Shop, key: str) -> None:
    """On SQLite its intent would wait for the lock that the transaction itself holds."""
    calls: list[str] = []

    def charge(scene: Scene) -> Any:
        return scene.attempt.effect("charge", calls.append, "42", recall=Unrecoverable())

    with pytest.raises(MisuseError, match="inside an open transaction"):
        shop.sell(key, pay, charge, finish)

    assert not calls
    assert shop.books.of(key) == (0, 0)


@pytest.mark.parametrize("steps", [(attach, pay, finish), (pay, attach, fail)])
def test_a_resource_that_is_named_inside_shares_the_fate_of_the_rows(
    shop: Shop, key: str, steps: tuple[Step, ...]
) -> None:
    try:
        shop.sell(key, *steps)
    except LookupError:
        assert fail in steps

    rows = shop.books.ask(f"SELECT resource_id FROM nebis_record WHERE key = '{key}'")
    assert (rows == [(key,)]) is (finish in steps)


def test_a_second_connection_is_refused_in_a_single_transaction(shop: Shop, key: str) -> None:
    """Its rows would be committed by somebody else, or by nobody."""
    if not shop.is_single:
        pytest.skip("A guarded transaction is opened by the handler, on whichever connection it likes.")

    def join_another(scene: Scene) -> None:
        with scene.attempt.transaction(object()):
            pass

    async def join_another_async(scene: Scene) -> None:
        async with scene.attempt.transaction(object()):
            pass

    step = join_another_async if "async" in shop.driver else join_another
    with pytest.raises(MisuseError, match="connection="):
        shop.sell(key, pay, step, finish)

    assert shop.books.of(key) == (0, 0)


def test_what_is_no_connection_is_refused_by_naming_what_is(shop: Shop, key: str) -> None:
    with pytest.raises(MisuseError, match="hand in"):
        shop.sell(key, connection=object())

    assert shop.sell(key).result == "paid"


def test_a_handler_may_go_on_after_a_connection_was_refused(shop: Shop, key: str) -> None:
    """The refused transaction never began, so the attempt has none."""
    if shop.is_single:
        pytest.skip("The transaction of a single one is opened before its handler runs.")

    with pytest.raises(MisuseError):
        shop.sell(key, connection=object())

    assert shop.books.state(key) == "A"


def test_a_doubt_of_the_handlers_own_rolls_the_rows_back_and_keeps_the_key(shop: Shop, key: str) -> None:
    """Whatever it speaks of was not in the transaction, so nobody may run it again before that is known."""

    def doubt(_: Scene) -> None:
        raise InDoubt("bank-unreachable")

    with pytest.raises(InDoubt, match="bank-unreachable"):
        shop.sell(key, pay, doubt)

    assert shop.books.of(key) == (0, 0)
    assert shop.books.state(key) == "D"
    with pytest.raises(InDoubt, match="bank-unreachable"):
        shop.sell(key)


def test_a_transaction_that_the_handler_leaves_open_does_not_swallow_how_it_ended(shop: Shop, key: str) -> None:
    if shop.is_single:
        pytest.skip("A single transaction is ended by whoever began it.")

    def leave_open(scene: Scene) -> Any:
        opened = scene.attempt.transaction()
        return opened.__aenter__() if hasattr(opened, "__aenter__") else opened.__enter__()

    shop.prelude = (leave_open,)
    try:
        with pytest.raises(MisuseError, match="already open"):
            shop.sell(key)
    finally:
        shop.prelude = ()

    assert shop.books.state(key) == "A"
    assert shop.sell(key).result == "paid"
