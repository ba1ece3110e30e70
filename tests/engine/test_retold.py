"""Replays that are told before a claim, as callers of an operation meet them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from nebis import AsyncNebis, Deadline, KeyReused, Local, Retryable
from nebis.aio import AsyncOperation
from nebis.core.replaying import Ended
from nebis.errors import DeadlinePassed
from nebis.runtime.retelling import Retelling
from nebis.subject import Subject

KEY = "8e03978e-40d5-43e8-bc93-6894a57f9324"


def test_a_command_that_is_changed_while_a_read_is_under_way_is_stored_as_it_is_signed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    command = {"amount": 1}

    def ask(self: Retelling, identity: bytes) -> asyncio.Future[Ended | None]:
        loop, nothing = asyncio.get_running_loop(), asyncio.get_running_loop().create_future()
        command["amount"] = 2
        loop.call_soon(nothing.set_result, None)
        return nothing

    monkeypatch.setattr(Retelling, "ask", ask)

    async def main() -> None:
        async with AsyncNebis("memory://") as nebis:

            @nebis.operation("pay", effects=Local)
            async def pay(command: dict[str, Any]) -> str:
                raise Retryable("later")

            with pytest.raises(Retryable):
                await pay(key=KEY, tenant="acct_1", command=command)
            world, secrets = await nebis.opened()
            identity = pay.declaration.marks(secrets, KEY, "acct_1", command).identity
            record = await world.backend.sessions.run(world.backend.store.find(identity))
            assert record is not None
            _, stored = pay.declaration.resume(secrets, record)  # It refuses what was not signed.
            assert stored == {"amount": 2}

    asyncio.run(main())


@asynccontextmanager
async def paying() -> AsyncIterator[AsyncOperation[int, int]]:
    async with AsyncNebis("memory://") as nebis:

        @nebis.operation("pay", effects=Local)
        async def pay(command: int) -> int:
            return command

        yield pay


def test_another_command_under_the_key_of_a_record_that_has_ended_is_refused_as_ever() -> None:
    async def main() -> None:
        async with paying() as pay:
            assert [await pay(key=KEY, tenant="acct_1", command=1) for _ in range(2)] == [1, 1]
            with pytest.raises(KeyReused):
                await pay(key=KEY, tenant="acct_1", command=2)

    asyncio.run(main())


def test_a_deadline_is_looked_at_before_anything_is_told() -> None:
    async def main() -> None:
        async with paying() as pay:
            await pay(key=KEY, tenant="acct_1", command=1)
            with pytest.raises(DeadlinePassed):
                await pay(key=KEY, tenant="acct_1", command=1, deadline=Deadline.after(timedelta(0)))

    asyncio.run(main())


@pytest.mark.parametrize(
    ("policy", "may_retell"),
    [
        ({}, True),
        ({"issued_keys": True}, False),
        ({"single_transaction": True}, False),
    ],
)
def test_what_asks_something_of_its_requests_first_is_told_nothing_before(
    policy: dict[str, Any], may_retell: bool
) -> None:
    nebis = AsyncNebis("memory://")

    @nebis.operation("pay", effects=Local, **policy)
    async def pay(command: int) -> int:
        return command

    subject: Subject = pay.declaration
    assert subject.may_retell is may_retell
