"""Effects through the façades: what is refused, what is handed on, and what a cancelled caller changes."""

import asyncio
import sqlite3
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from nebis import (
    AsyncAttempt,
    AsyncNebis,
    Attempt,
    ConfigError,
    Declared,
    EffectInDoubt,
    Fenced,
    InDoubt,
    Local,
    MisuseError,
    Nebis,
    Opaque,
    Query,
    Rejected,
    TokenInvalid,
    Undo,
    seconds,
    verify_token,
)
from nebis.core.record import EffectsMode, State
from nebis.effects import Recall
from nebis.ports.observer import EffectKnown, Event, Suspended
from tests.worker.bank import Bank, once
from tests.worker.shops import STICKY, Shop, new_key

TENANT = "acct_1"
Make = Callable[..., Shop]


def charge(amount: int, *, idempotency_key: str) -> str:
    return f"charged {amount}"


@pytest.mark.parametrize("mode", [Local, Opaque])
def test_effect_of_an_operation_that_declares_none_is_refused(mode: EffectsMode) -> None:
    with Nebis("memory://") as nebis:
        called: list[str] = []

        def call(*, idempotency_key: str) -> None:
            called.append(idempotency_key)

        @nebis.operation("pay", effects=mode)
        def pay(attempt: Attempt, command: int) -> None:
            attempt.effect("charge", call, recall=STICKY)

        with pytest.raises((MisuseError, InDoubt)) as told:
            pay(key=new_key(), tenant=TENANT, command=1)

        cause = told.value.__cause__ if isinstance(told.value, InDoubt) else told.value
        assert "effects=Declared" in str(cause)
        assert not called


@pytest.mark.parametrize(
    ("call", "recall", "needs"),
    [(lambda amount: None, STICKY, "idempotency_key"), (charge, Fenced(), "fence")],
)
def test_call_that_cannot_hand_on_what_its_class_rests_on_is_refused(
    call: Callable[..., Any], recall: Recall, needs: str
) -> None:
    with Nebis("memory://") as nebis:

        @nebis.operation("pay", effects=Declared)
        def pay(attempt: Attempt, command: int) -> str:
            result: str = attempt.effect("charge", call, command, recall=recall, returns=str)
            return result

        with pytest.raises(MisuseError, match=f"must take {needs}="):
            pay(key=new_key(), tenant=TENANT, command=1)


@pytest.mark.parametrize(
    ("options", "words"),
    [({"name": "undo:charge"}, "does not begin with"), ({"timeout": timedelta(0)}, "above zero")],
)
def test_effect_that_no_attempt_could_run_is_refused(options: dict[str, Any], words: str) -> None:
    name = options.pop("name", "charge")
    with Nebis("memory://") as nebis:

        @nebis.operation("pay", effects=Declared)
        def pay(attempt: Attempt, command: int) -> str:
            result: str = attempt.effect(name, charge, command, recall=STICKY, **options)
            return result

        with pytest.raises(MisuseError, match=words):
            pay(key=new_key(), tenant=TENANT, command=1)


def test_call_gets_the_marks_that_it_takes() -> None:
    marks: list[tuple[str, int, float]] = []

    def call(amount: int, *, idempotency_key: str, fence: int, timeout_seconds: float) -> None:
        marks.append((idempotency_key, fence, timeout_seconds))

    with Nebis("memory://") as nebis:

        @nebis.operation("pay", effects=Declared)
        def pay(attempt: Attempt, command: int) -> int:
            attempt.effect("charge", call, command, recall=Fenced(), timeout=seconds(7))
            return attempt.fence

        fence = pay(key=new_key(), tenant=TENANT, command=1)

    [(key, given, timeout_seconds)] = marks
    assert key.startswith("nebis-")
    assert (given, timeout_seconds) == (fence, 7.0)


def test_token_is_for_one_effect_of_one_record() -> None:
    with Nebis("memory://") as nebis:

        @nebis.operation("pay", effects=Declared)
        def pay(attempt: Attempt, command: int) -> list[str]:
            assert attempt.token("charge") == attempt.token("charge")
            return [attempt.operation_id, attempt.token("charge"), attempt.token("email")]

        [operation_id, for_charge, for_email] = pay(key=new_key(), tenant=TENANT, command=1)
        keys = nebis.token_keys()

        assert verify_token(for_charge, keys, name="charge") == operation_id
        for token, name, trusted in [
            (for_email, "charge", keys),
            (for_charge, "email", keys),
            (for_charge, "charge", [bytes(32)]),
            (for_charge, "charge", []),
            (for_charge + "x", "charge", keys),
            (for_charge.replace("nebis1", "nebis2"), "charge", keys),
            ("", "charge", keys),
            ("nebis1.ü.ü", "charge", keys),
            (f"{for_charge[:40]}ü", "charge", keys),
            ("x" * 10_000, "charge", keys),
        ]:
            with pytest.raises(TokenInvalid):
                verify_token(token, trusted, name=name)


def test_token_of_an_asyncio_attempt_is_the_same_kind() -> None:
    async def told() -> tuple[str, str, tuple[bytes, ...]]:
        async with AsyncNebis("memory://") as nebis:

            @nebis.operation("pay", effects=Declared)
            async def pay(attempt: AsyncAttempt, command: int) -> list[str]:
                return [attempt.operation_id, attempt.token("charge")]

            [operation_id, token] = await pay(key=new_key(), tenant=TENANT, command=1)
            return operation_id, token, await nebis.token_keys()

    operation_id, token, keys = asyncio.run(told())

    assert verify_token(token, keys, name="charge") == operation_id


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"undo": {"charge": Undo(call=lambda result: None, recall=STICKY)}}, "annotation is missing"),
        ({"undo": {"charge": Undo(call=lambda: None, recall=STICKY)}}, "must take the result"),
        ({"undo": {"charge": Undo(call=lambda connection: None, recall=None)}}, "must take the result"),
        ({"queries": {"charge": Query(find=lambda key: None)}}, "annotation is missing"),
        ({"effects": Local, "undo": {"charge": Undo(call=charge, recall=STICKY)}}, "say effects=Declared"),
    ],
)
def test_undo_or_query_that_a_worker_could_not_use_is_a_fault_of_the_declaration(
    options: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        Nebis("memory://").operation("pay", **{"effects": Declared, **options})(handler)


def test_undo_without_a_key_and_coroutines_on_the_blocking_face_are_faults() -> None:
    def refund(result: str) -> None: ...

    async def find(key: str) -> str | None: ...

    with pytest.raises(ConfigError) as told:
        Nebis("memory://").operation(
            "pay",
            effects=Declared,
            undo={"charge": Undo(call=refund, recall=STICKY)},
            queries={"charge": Query(find=find)},
        )(handler)

    assert any("must take idempotency_key=" in fault for fault in told.value.faults)
    assert any("is a coroutine function" in fault for fault in told.value.faults)


def handler(attempt: Attempt, command: int) -> str:
    return ""


@pytest.mark.parametrize("gives_up", ["inside", "outside"])
def test_cancelled_caller_is_only_detached_from_an_effect(gives_up: str) -> None:
    """F075: around the handler and inside it; the effect is made once, and its result is known afterwards."""
    bank = Bank()
    told: list[Event] = []
    inside, may_end = asyncio.Event(), asyncio.Event()

    async def slow(*, idempotency_key: str) -> str:
        inside.set()
        await may_end.wait()
        return bank.do("charge", idempotency_key)

    async def scene() -> str:
        async with AsyncNebis("memory://", observers=[told.append]) as nebis:

            @nebis.operation("pay", effects=Declared)
            async def pay(attempt: AsyncAttempt, command: int) -> str:
                effect = attempt.effect("charge", slow, recall=STICKY)
                if gives_up == "outside" or attempt.number > 1:
                    return str(await effect)
                async with asyncio.timeout(0.01):
                    return str(await effect)

            caller = asyncio.ensure_future(pay(key="key-of-a-caller-0001", tenant=TENANT, command=1))
            await inside.wait()
            if gives_up == "outside":
                caller.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await caller
                may_end.set()
            else:
                asyncio.get_running_loop().call_later(0.05, may_end.set)
                with pytest.raises(TimeoutError):
                    await caller
            await nebis.close()
            return ""

    asyncio.run(scene())

    assert bank.done == {"charge": 1}
    assert len(bank.calls) == 1
    assert [event.effect for event in told if isinstance(event, EffectKnown)] == ["charge"]
    assert any(isinstance(event, Suspended) for event in told) is (gives_up == "inside")


def test_handler_that_swallows_a_failed_effect_has_no_outcome_yet(shop: Make) -> None:
    """F085: the effect may still land; the same request asks again."""
    made, key = shop(), new_key()
    made.bank.before["charge"] = once(ConnectionError())
    made.plot.swallows = True

    with pytest.raises(EffectInDoubt):
        made.pay(key)

    assert made.pay(key) == "charge done"
    assert made.bank.done == {"charge": 1}
    assert len(set(made.bank.keys("charge"))) == 1


@pytest.mark.parametrize("way", ["returns", "finishes"])
def test_outcome_of_changed_code_is_not_stored_whichever_way_it_is_given(tmp_path: Path, way: str) -> None:
    """6.11: a recorded charge that the code of now never asks for."""
    bank, plot = Bank(), {"asks": True}
    with Nebis(f"sqlite:///{tmp_path / 'nebis.db'}", housekeeping=False) as nebis:

        def pays(*, idempotency_key: str) -> str:
            return bank.do("charge", idempotency_key)

        @nebis.operation("pay", effects=Declared)
        def pay(attempt: Attempt, command: int) -> str:
            if plot["asks"]:
                attempt.effect("charge", pays, recall=STICKY)
                raise ConnectionError
            if way == "returns":
                return "done"
            with attempt.transaction() as tx:
                assert isinstance(tx.connection, sqlite3.Connection)
                tx.finish("done")
            return "done"

        with pytest.raises(ConnectionError):
            pay(key="key-of-a-change-0001", tenant=TENANT, command=1)
        plot["asks"] = False
        with pytest.raises(InDoubt, match="code-changed"):
            pay(key="key-of-a-change-0001", tenant=TENANT, command=1)
        with pytest.raises(InDoubt, match="code-changed"):
            pay(key="key-of-a-change-0001", tenant=TENANT, command=1)


def test_rejection_of_a_downstream_is_remembered(shop: Make) -> None:
    made, key = shop(), new_key()
    made.bank.before["charge"] = once(Rejected("declined", detail="no funds"))

    for _ in range(2):
        with pytest.raises(Rejected, match="declined"):
            made.pay(key)

    assert len(made.bank.calls) == 1
    assert made.stored().state is State.COMPLETED


def test_result_of_an_effect_that_is_too_large_is_in_doubt() -> None:
    """It happened and cannot be remembered: calling again is the one thing that must not follow."""

    def call(*, idempotency_key: str) -> str:
        return "x" * 2000

    with Nebis("memory://") as nebis:

        @nebis.operation("pay", effects=Declared, result_limit_bytes=1000)
        def pay(attempt: Attempt, command: int) -> str:
            result: str = attempt.effect("charge", call, recall=STICKY)
            return result

        with pytest.raises(InDoubt, match="effect-result-unstorable"):
            pay(key=new_key(), tenant=TENANT, command=1)
