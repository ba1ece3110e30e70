"""Staging with the outcome costs no trip to the server, counted at the wire."""

import asyncio
import re

import pytest

from nebis import AsyncAttempt, AsyncNebis, Attempt, Local, Nebis
from tests.engines.proxy import FaultProxy

# ReadyForQuery: the server says it exactly once at the end of each trip.
_READY = re.compile(rb"Z\x00\x00\x00\x05[ITE]")
MESSAGES = 5
ROUNDS = 20


class CountingProxy(FaultProxy):
    """Counts the trips that go through it."""

    trips = 0

    async def pass_on(self, data: bytes, writer: asyncio.StreamWriter) -> None:
        self.trips += len(_READY.findall(data))
        await super().pass_on(data, writer)


@pytest.mark.parametrize("single", [False, True])
@pytest.mark.parametrize("driver", ["psycopg", "psycopg-async", "asyncpg"])
def test_five_messages_cost_as_many_trips_as_none(postgres_url: str, driver: str, single: bool) -> None:
    with CountingProxy.before(postgres_url) as proxy:
        url = proxy.url(postgres_url)
        if driver == "psycopg":
            costs = blocking_costs(proxy, url, single=single)
        else:
            address = url.replace("postgresql:", "postgresql+asyncpg:") if driver == "asyncpg" else url
            costs = asyncio.run(async_costs(proxy, address, single=single))

    # By then every statement is prepared, also those that a driver prepares only after a while.
    assert costs[-4:-2] == costs[-2:]
    with_messages, without = costs[-2:]
    assert with_messages == without > 0


def blocking_costs(proxy: CountingProxy, url: str, *, single: bool) -> list[int]:
    with Nebis(url, housekeeping=False) as nebis:

        @nebis.operation("sell", effects=Local, single_transaction=single)
        def sell(attempt: Attempt, messages: int) -> str:
            with attempt.transaction() as tx:
                for number in range(messages):
                    tx.stage("sold", {"number": number}, ordering_key="k")
                tx.finish("sold")
            return "sold"

        costs = []
        for number in range(ROUNDS):
            before = proxy.trips
            sell(key=f"a-key-of-this-round-{number:04}", tenant="t", command=0 if number % 2 else MESSAGES)
            costs.append(proxy.trips - before)
        return costs


async def async_costs(proxy: CountingProxy, url: str, *, single: bool) -> list[int]:
    async with AsyncNebis(url, housekeeping=False) as nebis:

        @nebis.operation("sell", effects=Local, single_transaction=single)
        async def sell(attempt: AsyncAttempt, messages: int) -> str:
            async with attempt.transaction() as tx:
                for number in range(messages):
                    tx.stage("sold", {"number": number}, ordering_key="k")
                tx.finish("sold")
            return "sold"

        costs = []
        for number in range(ROUNDS):
            before = proxy.trips
            await sell(key=f"a-key-of-this-round-{number:04}", tenant="t", command=0 if number % 2 else MESSAGES)
            costs.append(proxy.trips - before)
        return costs
