"""F067: a handler that asks for the key of its own attempt is told so at once, instead of waiting for itself."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nebis import AsyncNebis, Local, MisuseError, Nebis, Wait, seconds

KEY, OTHER_KEY = "a-key-of-a-test-0001", "a-key-of-a-test-0002"
PATIENCE_SECONDS = 20
"""How long a twin of another process would wait."""
URLS = ("memory://", "sqlite:///{}/nebis.db")


@pytest.fixture(params=URLS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    place: str = request.param
    return place.format(tmp_path)


@contextmanager
def at_once() -> Iterator[None]:
    """Expect the refusal, long before a twin would stop waiting."""
    began = time.monotonic()
    with pytest.raises(MisuseError, match="a key of its own"):
        yield
    assert time.monotonic() - began < PATIENCE_SECONDS / 2


def modes(url: str) -> list[bool]:
    return [False] if url == "memory://" else [False, True]


def test_operation_that_calls_itself_with_its_own_key_is_refused_at_once(url: str) -> None:
    for is_single in modes(url):
        with Nebis(url) as nebis:

            @nebis.operation(
                f"pay-{is_single}",
                effects=Local,
                in_flight=Wait(longest=seconds(PATIENCE_SECONDS)),
                single_transaction=is_single,
            )
            def pay(command: int) -> int:
                return pay(key=KEY, tenant="acct_1", command=command)

            with at_once():
                pay(key=KEY, tenant="acct_1", command=1)


def test_operation_that_awaits_itself_with_its_own_key_is_refused_at_once(url: str) -> None:
    async def main(is_single: bool) -> None:
        async with AsyncNebis(url) as nebis:

            @nebis.operation(
                f"pay-{is_single}",
                effects=Local,
                in_flight=Wait(longest=seconds(PATIENCE_SECONDS)),
                single_transaction=is_single,
            )
            async def pay(command: int) -> int:
                return await asyncio.create_task(pay(key=KEY, tenant="acct_1", command=command))

            with at_once():
                await pay(key=KEY, tenant="acct_1", command=1)

    for is_single in modes(url):
        asyncio.run(main(is_single))


def test_refused_handler_gave_its_key_back(url: str) -> None:
    """Nothing happened: the corrected code may run under the same key."""
    with Nebis(url) as nebis:
        is_fixed = False

        @nebis.operation("pay", effects=Local)
        def pay(command: int) -> int:
            return command if is_fixed else pay(key=KEY, tenant="acct_1", command=command)

        with at_once():
            pay(key=KEY, tenant="acct_1", command=1)
        is_fixed = True
        assert pay(key=KEY, tenant="acct_1", command=1) == 1


def test_operation_may_call_itself_under_another_key_and_another_under_the_same(url: str) -> None:
    with Nebis(url) as nebis:

        @nebis.operation("other", effects=Local)
        def other(command: int) -> int:
            return command + 1

        @nebis.operation("pay", effects=Local)
        def pay(command: int) -> int:
            if command == 0:
                return other(key=KEY, tenant="acct_1", command=command)
            return pay(key=OTHER_KEY, tenant="acct_1", command=0)

        assert pay(key=KEY, tenant="acct_1", command=1) == 1


def test_task_that_a_handler_left_behind_may_ask_once_the_handler_ended(url: str) -> None:
    async def main() -> None:
        left: list[asyncio.Task[int]] = []
        has_ended = asyncio.Event()
        async with AsyncNebis(url) as nebis:

            @nebis.operation("pay", effects=Local)
            async def pay(command: int) -> int:
                async def ask_later() -> int:
                    await has_ended.wait()
                    return await pay(key=KEY, tenant="acct_1", command=command)

                left.append(asyncio.create_task(ask_later()))
                return command

            assert await pay(key=KEY, tenant="acct_1", command=1) == 1
            has_ended.set()
            assert await left[0] == 1

    asyncio.run(main())
