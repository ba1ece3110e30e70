"""What a type checker sees of the public face. Never run, only checked; each ignored line must be an error."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import assert_type
from uuid import UUID

from nebis import (
    AsyncAttempt,
    AsyncNebis,
    AsyncOperation,
    Attempt,
    Declared,
    Disposition,
    Execution,
    Local,
    Nebis,
    Opaque,
    Operation,
    PerAccount,
    Rejected,
    Wait,
    hours,
)


@dataclass
class Order:
    sku: str


@dataclass
class Receipt:
    number: int


nebis = Nebis("memory://", secret="a secret of sixteen bytes or more")


@nebis.operation("place", effects=Declared, retention=hours(48), in_flight=Wait(longest=timedelta(seconds=1)))
def place(attempt: Attempt, command: Order) -> Receipt:
    assert_type(attempt.number, int)
    assert_type(attempt.time, datetime)
    assert_type(attempt.new_id("receipt"), UUID)
    assert_type(attempt.lost, bool)
    attempt.resource("order", command.sku)
    raise Rejected("sold-out")


assert_type(place, Operation[Order, Receipt])
assert_type(place(key="k", tenant="t", command=Order("apple")), Receipt)
assert_type(place.execute(key="k", tenant="t", command=Order("apple")), Execution[Receipt])
place(key="k", tenant="t", command="apple")  # type: ignore[arg-type]
place("k", "t", Order("apple"))  # type: ignore[call-arg]
place(key="k", command=Order("apple"))  # type: ignore[call-arg]


@nebis.operation("count", effects=Local, scope=PerAccount(), classify=lambda _: Disposition.BY_MODE)
def count(command: Order) -> int:
    return len(command.sku)


assert_type(count, Operation[Order, int])
nebis.operation("wrong", effects="local")  # type: ignore[arg-type]
nebis.operation("wrong", effects=Local, leese=hours(1))  # type: ignore[call-arg]

asynchronous = AsyncNebis("memory://")


@asynchronous.operation("place", effects=Opaque)
async def place_later(attempt: AsyncAttempt, command: Order) -> Receipt:
    await attempt.resource("order", command.sku)
    return Receipt(attempt.number)


assert_type(place_later, AsyncOperation[Order, Receipt])


async def use() -> None:
    async with asynchronous as opened:
        assert_type(opened, AsyncNebis)
        assert_type(await place_later(key="k", tenant="t", command=Order("apple")), Receipt)
        execution = await place_later.execute(key="k", tenant="t", command=Order("apple"))
        assert_type(execution, Execution[Receipt])
        assert_type(execution.is_replay, bool)


with nebis as also_opened:
    assert_type(also_opened, Nebis)
