"""A pipeline through asyncpg: several flows use one connection at once, and each gets its own answer or error."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any
from uuid import UUID

import asyncpg  # type: ignore[import-untyped]
import pytest

from nebis.flow import Flow
from nebis.ports.store import AsyncSessions, IndefiniteFailure
from nebis.stores.sql.asks import Query, Row
from nebis.stores.sql.postgres.asyncpg_driver import Asyncpg
from nebis.stores.sql.postgres.asyncpg_pipeline import LONGEST_MESSAGE, AsyncpgPipeline
from nebis.stores.sql.postgres.conversation import Conversation
from nebis.stores.sql.postgres.location import Location
from nebis.stores.sql.postgres.pipelines import TooLong
from nebis.stores.sql.postgres.settings import Settings
from tests.engines.binaries import find_binaries
from tests.engines.postgres import PostgresServer
from tests.engines.proxy import FaultProxy
from tests.engines.tls import TlsFront
from tests.stores.postgres_ways import ask, async_access, execute, statement

ECHO = "SELECT $1::bigint, pg_sleep($2::bigint / 1000.0)::text IS NULL"
DIVIDE = "SELECT 60 / $1::bigint"
LENGTH = "SELECT length($1::text)::bigint"
REPEAT = "SELECT repeat('x', $1::integer)"
COLUMNS = "SELECT $1::bytea, $2::text, $3::uuid, $4::bigint[], NULL::text"
WARN = "DO $$ BEGIN RAISE WARNING 'forgotten' USING ERRCODE = '01000'; END $$"

PLACES = "SELECT :value::bigint[], pg_backend_pid()"


class Ends:
    """Counts how often a pipeline said that it is over."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1


def conversation() -> Conversation:
    return Conversation(opening="BEGIN", wraps_statements=False, describe=Asyncpg.describe.__get__(object()))


def piped(url: str, scenario: Callable[[AsyncpgPipeline, Ends], Awaitable[Any]]) -> Any:
    """Play a scenario on a pipeline over a connection of our own."""

    async def played() -> Any:
        location = Location.parse(url.replace("postgresql://", "postgresql+asyncpg://"))
        connection, ends = await Asyncpg(location, Settings()).connect(), Ends()
        pipeline = AsyncpgPipeline(connection, ends)
        try:
            return await scenario(pipeline, ends)
        finally:
            pipeline.abandon()
            await asyncio.sleep(0)

    return asyncio.run(played())


async def together(*calls: Awaitable[Any]) -> list[Any]:
    """Wait for the answer or the error of each."""
    return list(await asyncio.gather(*calls, return_exceptions=True))


def rows(pipeline: AsyncpgPipeline, text: str, *values: Any) -> Awaitable[list[Row]]:
    return pipeline.rows(text, values, conversation())


@pytest.fixture(scope="module")
def own_server() -> Iterator[PostgresServer]:
    with PostgresServer(find_binaries()) as server:
        yield server


@pytest.fixture
def proxy(postgres_url: str) -> Iterator[FaultProxy]:
    with FaultProxy.before(postgres_url) as proxy:
        yield proxy


def test_each_gets_its_own_answer_in_the_order_in_which_was_asked(postgres_url: str) -> None:
    async def scenario(pipeline: AsyncpgPipeline, _: Ends) -> None:
        ended: list[int] = []

        async def echoed(number: int) -> None:
            assert await rows(pipeline, ECHO, number, 5 - number) == [(number, False)]
            ended.append(number)

        await asyncio.gather(*map(echoed, range(5)))
        assert ended == [0, 1, 2, 3, 4]

    piped(postgres_url, scenario)


def test_values_of_every_kind_come_back_as_they_were_sent(postgres_url: str) -> None:
    values = (b"\x00\xff", "Grüße", UUID(int=7), [1, -2, 3])

    async def scenario(pipeline: AsyncpgPipeline, _: Ends) -> Any:
        return await rows(pipeline, COLUMNS, *values)

    assert piped(postgres_url, scenario) == [(*values, None)]


def test_an_answer_may_come_in_many_pieces(postgres_url: str) -> None:
    async def scenario(pipeline: AsyncpgPipeline, _: Ends) -> None:
        long, short = await together(rows(pipeline, REPEAT, 3_000_000), rows(pipeline, REPEAT, 1))
        assert (len(long[0][0]), short) == (3_000_000, [("x",)])

    piped(postgres_url, scenario)


def test_a_piece_may_end_anywhere(postgres_url: str) -> None:
    async def scenario(pipeline: AsyncpgPipeline, _: Ends) -> None:
        heard = pipeline.data_received
        pipeline.data_received = lambda data: [heard(data[place : place + 1]) for place in range(len(data))]  # type: ignore[assignment,method-assign]
        pipeline._transport.set_protocol(pipeline)
        answers = await together(rows(pipeline, DIVIDE, 2), rows(pipeline, DIVIDE, 3))
        assert answers == [[(30,)], [(20,)]]

    piped(postgres_url, scenario)


def test_a_statement_that_the_server_refuses_fails_nobody_else(postgres_url: str) -> None:
    async def scenario(pipeline: AsyncpgPipeline, _: Ends) -> None:
        calls = [rows(pipeline, DIVIDE, number) for number in (1, 0, 2)]
        first, refused, last = await together(*calls)
        assert (first, last) == ([(60,)], [(30,)])
        assert isinstance(refused, asyncpg.DivisionByZeroError)
        assert pipeline.is_open

    piped(postgres_url, scenario)


def test_a_value_that_cannot_be_sent_is_not_sent(postgres_url: str) -> None:
    async def scenario(pipeline: AsyncpgPipeline, _: Ends) -> None:
        calls = [rows(pipeline, DIVIDE, value) for value in (1, "two", 2**70, 3)]
        first, no_number, too_large, last = await together(*calls)
        assert (first, last) == ([(60,)], [(20,)])
        assert type(no_number) is type(too_large) is asyncpg.DataError

    piped(postgres_url, scenario)


def test_what_is_long_is_left_to_others(postgres_url: str) -> None:
    async def scenario(pipeline: AsyncpgPipeline, _: Ends) -> None:
        with pytest.raises(TooLong):
            await rows(pipeline, LENGTH, "x" * LONGEST_MESSAGE)
        assert await rows(pipeline, LENGTH, "x" * 1000) == [(1000,)]

    piped(postgres_url, scenario)


def test_nobody_who_is_cancelled_lets_its_answer_reach_somebody_else_f023(postgres_url: str, proxy: FaultProxy) -> None:
    async def scenario(pipeline: AsyncpgPipeline, _ends: Ends) -> int:
        cancelled = 0
        await rows(pipeline, ECHO, 0, 0)
        for number in range(150):
            proxy.latency_seconds = (number % 5) / 2000
            caller = asyncio.ensure_future(rows(pipeline, ECHO, -number, 0))
            for _ in range(number % 7):
                await asyncio.sleep(0.0005)
            caller.cancel()
            answers = await together(caller, rows(pipeline, ECHO, number, 0))
            cancelled += isinstance(answers[0], asyncio.CancelledError)
            assert isinstance(answers[0], asyncio.CancelledError) or answers[0] == [(-number, False)]
            assert answers[1] == [(number, False)]
        return cancelled

    assert piped(proxy.url(postgres_url), scenario) > 30


def test_a_warning_is_heard_by_whoever_is_being_answered_f017(postgres_url: str) -> None:
    async def scenario(pipeline: AsyncpgPipeline, _: Ends) -> None:
        warned, other = conversation(), conversation()
        await together(
            pipeline.rows(DIVIDE, (1,), other), pipeline.rows(WARN, (), warned), pipeline.rows(DIVIDE, (2,), other)
        )
        assert (warned._is_unreplicated, other._is_unreplicated) == (True, False)

    piped(postgres_url, scenario)


def test_what_the_server_forgot_is_prepared_again(postgres_url: str) -> None:
    async def scenario(pipeline: AsyncpgPipeline, _: Ends) -> None:
        await rows(pipeline, DIVIDE, 1)
        await rows(pipeline, "DEALLOCATE ALL")
        assert await rows(pipeline, DIVIDE, 2) == [(30,)]

    piped(postgres_url, scenario)


def test_a_statement_whose_table_was_changed_is_prepared_again(postgres_url: str) -> None:
    execute(postgres_url, "CREATE TABLE kept (value bigint)")
    execute(postgres_url, "INSERT INTO kept VALUES (1)")

    async def scenario(pipeline: AsyncpgPipeline, _: Ends) -> None:
        assert await rows(pipeline, "SELECT * FROM kept") == [(1,)]
        execute(postgres_url, "ALTER TABLE kept ALTER value TYPE text")
        assert await together(rows(pipeline, "SELECT * FROM kept"), rows(pipeline, DIVIDE, 2)) == [
            [("1",)],
            [(30,)],
        ]

    piped(postgres_url, scenario)


def test_all_that_wait_are_told_when_the_server_dies(own_server: PostgresServer) -> None:
    async def scenario(pipeline: AsyncpgPipeline, ends: Ends) -> None:
        await rows(pipeline, ECHO, 0, 0)
        crashing = asyncio.to_thread(own_server.crash)
        *answers, _ = await together(*(rows(pipeline, ECHO, 1, 60_000) for _ in range(3)), crashing)
        assert set(map(type, answers)) == {asyncpg.ConnectionDoesNotExistError}
        assert (pipeline.is_open, ends.count) == (False, 1)
        with pytest.raises(asyncpg.ConnectionDoesNotExistError):
            await rows(pipeline, DIVIDE, 1)

    piped(own_server.create_database(), scenario)
    own_server.start()


def test_an_answer_that_nobody_understands_ends_the_connection(postgres_url: str) -> None:
    execute(postgres_url, "CREATE TABLE kept (value bigint)")

    async def scenario(pipeline: AsyncpgPipeline, ends: Ends) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        answers = await together(rows(pipeline, "COPY kept TO STDOUT"), rows(pipeline, DIVIDE, 1))
        assert all(isinstance(answer, asyncpg.ConnectionDoesNotExistError) for answer in answers)
        assert (pipeline.is_open, ends.count) == (False, 1)

    piped(postgres_url, scenario)


def test_one_that_is_retired_takes_no_more_and_answers_those_that_it_took(postgres_url: str) -> None:
    async def scenario(pipeline: AsyncpgPipeline, ends: Ends) -> None:
        await rows(pipeline, ECHO, 0, 0)
        waiting = asyncio.ensure_future(together(rows(pipeline, ECHO, 1, 20), rows(pipeline, ECHO, 2, 20)))
        await asyncio.sleep(0.001)
        pipeline.retire()
        assert not pipeline.is_open
        assert await waiting == [[(1, False)], [(2, False)]]
        await asyncio.sleep(0)
        assert ends.count == 1

    piped(postgres_url, scenario)


def brief(*values: int, extra: str = "") -> Flow[list[Row]]:
    """Ask as batches do: of several members at once, with a statement that is a transaction of its own."""
    said = statement(PLACES + extra)
    return (yield from Query(said, {}, [{"value": value} for value in values], said))


def on_sessions(url: str, scenario: Callable[[AsyncSessions], Awaitable[Any]], **options: Any) -> Any:
    async def played() -> Any:
        sessions = async_access("asyncpg", url, **options)
        try:
            return await scenario(sessions)
        finally:
            await sessions.close()

    return asyncio.run(played())


def test_batches_share_a_connection_and_all_else_has_another(postgres_url: str) -> None:
    async def scenario(sessions: AsyncSessions) -> None:
        [(_, shared)] = await sessions.run_unshielded(brief(1, 2))
        answers = await together(*(sessions.run_unshielded(brief(number, -number)) for number in range(5)))
        assert answers == [[([number, -number], shared)] for number in range(5)]
        [(own,)] = await sessions.run_unshielded(ask("SELECT pg_backend_pid()"))
        [(_, lone)] = await sessions.run_unshielded(brief(1))
        assert own == lone != shared

    on_sessions(postgres_url, scenario)


def test_while_one_is_being_opened_the_others_go_apart(postgres_url: str) -> None:
    async def scenario(sessions: AsyncSessions) -> None:
        first = await together(*(sessions.run_unshielded(brief(number, 0)) for number in range(3)))
        assert [values for [(values, _)] in first] == [[0, 0], [1, 0], [2, 0]]
        [(_, shared)] = await sessions.run_unshielded(brief(1, 2))
        assert first[0][0][1] == shared

    on_sessions(postgres_url, scenario)


def test_a_long_batch_goes_apart(postgres_url: str) -> None:
    async def scenario(sessions: AsyncSessions) -> None:
        [(_, shared)] = await sessions.run_unshielded(brief(1, 2))
        [(values, apart)] = await sessions.run_unshielded(brief(*range(30_000)))
        assert (len(values), apart == shared) == (30_000, False)

    on_sessions(postgres_url, scenario)


@pytest.mark.parametrize("options", [{"max_connections": 1}, {"pooler": True}])
def test_where_there_is_none_batches_go_as_ever(options: dict[str, Any], postgres_url: str) -> None:
    async def scenario(sessions: AsyncSessions) -> None:
        answers = await together(*(sessions.run_unshielded(brief(number, 0)) for number in range(3)))
        assert [values for [(values, _)] in answers] == [[0, 0], [1, 0], [2, 0]]

    on_sessions(postgres_url, scenario, **options)


def test_a_pipeline_that_broke_is_indefinite_for_all_and_replaced(postgres_url: str) -> None:
    async def scenario(sessions: AsyncSessions) -> None:
        [(_, shared)] = await sessions.run_unshielded(brief(1, 2))
        killing = f", pg_terminate_backend({shared})"
        answers = await together(
            sessions.run_unshielded(brief(1, 2, extra=killing)),
            sessions.run_unshielded(brief(3, 4, extra=", pg_sleep(60)::text")),
        )
        assert list(map(type, answers)) == [IndefiniteFailure, IndefiniteFailure]
        [(_, replaced)] = await sessions.run_unshielded(brief(1, 2))
        assert replaced != shared
        assert await sessions.run_unshielded(brief(5, 6)) == [([5, 6], replaced)]

    on_sessions(postgres_url, scenario)


def test_an_idle_one_that_the_server_ended_is_replaced_before_anything_is_sent(postgres_url: str) -> None:
    async def scenario(sessions: AsyncSessions) -> None:
        [(_, shared)] = await sessions.run_unshielded(brief(1, 2))
        execute(postgres_url, f"SELECT pg_terminate_backend({shared}, 5000)")
        await asyncio.sleep(0.05)
        [(values, replaced)] = await sessions.run_unshielded(brief(1, 2))
        assert values == [1, 2]
        assert replaced != shared

    on_sessions(postgres_url, scenario)


def test_a_flow_that_is_cancelled_retires_the_pipeline_and_harms_nobody_f023(postgres_url: str) -> None:
    async def scenario(sessions: AsyncSessions) -> None:
        [(_, shared)] = await sessions.run_unshielded(brief(1, 2))
        await sessions.run_unshielded(brief(1, 2, extra=", pg_sleep(0.02)::text"))
        cancelled = asyncio.ensure_future(sessions.run_unshielded(brief(3, 4, extra=", pg_sleep(0.02)::text")))
        other = asyncio.ensure_future(sessions.run_unshielded(brief(5, 6)))
        await asyncio.sleep(0.005)
        cancelled.cancel()
        assert await other == [([5, 6], shared)]
        assert list(map(type, await together(cancelled))) == [asyncio.CancelledError]
        [(_, replaced)] = await sessions.run_unshielded(brief(1, 2))
        assert replaced != shared

    on_sessions(postgres_url, scenario)


def test_each_event_loop_has_its_own(postgres_url: str) -> None:
    sessions = async_access("asyncpg", postgres_url)

    async def scenario() -> int:
        [(_, shared)] = await sessions.run_unshielded(brief(1, 2))
        return int(shared)

    with asyncio.Runner() as one, asyncio.Runner() as two:
        first = one.run(scenario())
        assert two.run(scenario()) != first
        assert one.run(scenario()) == first
        one.run(sessions.close())
        two.run(sessions.close())


def test_batches_share_a_connection_that_is_encrypted(postgres_url: str) -> None:
    async def scenario(sessions: AsyncSessions) -> None:
        [(_, shared)] = await sessions.run_unshielded(brief(1, 2))
        long = list(range(20_000))
        answers = await together(*(sessions.run_unshielded(brief(number, *long)) for number in range(5)))
        assert answers == [[([number, *long], shared)] for number in range(5)]

    with TlsFront(postgres_url) as front:
        on_sessions(front.url, scenario)
        assert front.connections > 0
