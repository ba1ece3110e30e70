"""Relays on real stores: everything arrives, in order for each key, whoever publishes and whatever fails meanwhile."""

import asyncio
import threading
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

import pytest

from nebis import AsyncNebis, ConfigError, MisuseError, Nebis
from nebis.messaging import AsyncRelay, Confirmed, Message, PublishResult, Refused, Relay, RelayPolicy, Unknown
from nebis.ports.history import Signed
from nebis.ports.outbox import MessageState
from nebis.stores.sql.asks import Query, in_transaction
from nebis.stores.sql.statements import read_statements
from tests.messaging.outbox.benches import Bench, Ledger, message

QUICK = RelayPolicy(
    attempts_limit=2,
    backoff_first=timedelta(milliseconds=1),
    idle=timedelta(milliseconds=20),
    lease=timedelta(seconds=20),
    publish_timeout=timedelta(seconds=2),
)


@pytest.fixture
def nebis(url: str) -> Iterator[Nebis]:
    with Nebis(url, housekeeping=False) as opened:
        yield opened


@pytest.fixture
def bench(nebis: Nebis) -> Bench:
    """The outbox of that very `Nebis`, on its real clock."""
    return Bench(nebis.opened()[0].backend)


def drain(relay: Relay, bench: Bench, *, left: int = 0) -> None:
    """Publish until no more than that many wait, however long the others back off."""
    while bench.run(bench.outbox.depth()).pending > left:
        relay.run_once()


def test_one_poison_message_among_a_thousand_is_parked_and_arrives_once_cured_f108(nebis: Nebis, bench: Bench) -> None:
    is_cured = False

    def answer(each: Message) -> PublishResult:
        return Refused(reason="bad blood") if each.id == "poison" and not is_cured else Confirmed()

    others = [message(f"m{number}", f"key {number % 7}") for number in range(999)]
    bench.stage(*others[:500], message("poison", "poisoned key"), *others[500:], message("behind", "poisoned key"))
    ledger = Ledger(answer)
    relay = Relay(nebis, ledger, policy=QUICK)

    drain(relay, bench, left=1)

    assert len(ledger.ids) == len(set(ledger.ids)) == 999
    parked = bench.run(bench.outbox.find("poison"))
    assert (parked.state, parked.attempts, parked.last_error) == (MessageState.PARKED, 2, "bad blood")
    assert bench.run(bench.outbox.depth()).pending == 1
    is_cured = True
    signed = Signed(who="ann", what="outbox retry", reason="cured")
    assert bench.run(bench.outbox.decide("poison", MessageState.PENDING, signed))
    drain(relay, bench)
    relay.close()
    assert ledger.ids[-2:] == ["poison", "behind"]
    assert bench.run(bench.outbox.depth()).pending == 0
    assert ledger.is_closed


def test_four_relays_keep_the_order_of_each_key_f110(nebis: Nebis, bench: Bench) -> None:
    """Each of them is refused now and then, and times out, so that what it had goes to another."""
    keys = [f"key {number}" for number in range(8)]
    for number in range(30):
        bench.stage(*(message(f"{key}/{number:02}", key) for key in keys))
    failures = iter(range(10_000))

    def answer(_: Message) -> PublishResult:
        count = next(failures)
        if count % 11 == 3:
            return Refused(reason="busy")
        return Unknown(reason="silence") if count % 17 == 5 else Confirmed()

    ledger = Ledger(answer)
    policy = RelayPolicy(batch=9, attempts_limit=1000, backoff_first=timedelta(milliseconds=1), idle=QUICK.idle)
    relays = [Relay(nebis, ledger, policy=policy) for _ in range(4)]
    is_over = threading.Event()
    threads = [threading.Thread(target=relay.run, args=(is_over,)) for relay in relays]
    for thread in threads:
        thread.start()
    while bench.run(bench.outbox.depth()).pending and any(thread.is_alive() for thread in threads):
        is_over.wait(0.05)
    is_over.set()
    for thread in threads:
        thread.join()

    for key in keys:
        assert [each.id for each in ledger.delivered if each.ordering_key == key] == [
            f"{key}/{number:02}" for number in range(30)
        ]
    assert ledger.resets > 0


class Stubborn(Ledger):
    """A publisher that breaks its promises."""

    def __init__(self, breaks: str) -> None:
        super().__init__()
        self.breaks = breaks

    async def publish(self, messages: Sequence[Message]) -> Sequence[PublishResult]:
        breaks, self.breaks = self.breaks, ""
        match breaks:
            case "raises":
                raise RuntimeError("out of order\nfor now")
            case "hangs":
                await asyncio.Event().wait()
            case "answers for none":
                return []
        return await super().publish(messages)

    async def reset(self) -> None:
        await super().reset()
        raise RuntimeError("cannot begin anew either")


@pytest.mark.parametrize("breaks", ["raises", "hangs", "answers for none"])
def test_a_publisher_that_breaks_its_promise_is_asked_again_under_the_same_id_f107(
    nebis: Nebis, bench: Bench, breaks: str
) -> None:
    bench.stage(message("one"), message("two"))
    publisher = Stubborn(breaks)
    policy = RelayPolicy(backoff_first=timedelta(milliseconds=1), publish_timeout=timedelta(seconds=0.2))
    relay = Relay(nebis, publisher, policy=policy)

    first = relay.run_once()
    drain(relay, bench)
    relay.close()

    assert (first.published, first.postponed) == (0, 2)
    assert publisher.ids == ["one", "two"]
    assert publisher.resets == 1


def test_topics_go_to_the_publisher_whose_pattern_fits_first(nebis: Nebis, bench: Bench) -> None:
    payments, everything = Ledger(), Ledger()
    bench.stage(
        message("a", topic="payment.created"), message("b", topic="order.created"), message("c", topic="mail.sent")
    )
    relay = Relay(nebis, {"payment.*": payments, "order.*": everything, "*.created": payments}, policy=QUICK)

    relay.run_once()
    relay.close()

    assert (payments.ids, everything.ids) == (["a"], ["b"])
    assert bench.run(bench.outbox.find("c")).last_error == "no publisher takes this topic; add a route for it"


def test_published_messages_are_purged_when_their_time_is_over(nebis: Nebis, bench: Bench) -> None:
    bench.stage(message("published years ago"))
    bench.mark("another", bench.take("another"), MessageState.PUBLISHED)
    bench.stage(message("published now"))
    relay = Relay(nebis, Ledger())

    relay.run_once()
    relay.close()

    assert bench.states() == {"published now": MessageState.PUBLISHED}


def test_the_asyncio_twin_publishes_on_its_own_loop(url: str) -> None:
    all_arrived = asyncio.Event()

    def answer(each: Message) -> PublishResult:
        if each.id != "two":
            return Confirmed()
        if not ledger.resets:
            return Unknown(reason="silence")
        all_arrived.set()
        return Confirmed()

    ledger = Ledger(answer)

    async def scene() -> None:
        async with AsyncNebis(url, housekeeping=False) as nebis:
            backend = (await nebis.opened())[0].backend
            bench = Bench(backend)  # type: ignore[arg-type]
            await backend.sessions.run(_staging(bench))
            relay = AsyncRelay(nebis, {"orders": ledger}, policy=QUICK)
            stop = asyncio.Event()
            running = asyncio.create_task(relay.run(stop))
            async with asyncio.timeout(20):
                await all_arrived.wait()
            stop.set()
            await running

    asyncio.run(scene())

    assert sorted(ledger.ids) == ["one", "three", "two"]
    assert ledger.is_closed


def _staging(bench: Bench) -> Any:
    return in_transaction(bench.outbox.stage([message("one"), message("two"), message("three")]))


def test_a_relay_outlives_a_store_that_is_away_for_a_while(nebis: Nebis, caplog: pytest.LogCaptureFixture) -> None:
    relay = Relay(nebis, Ledger(), policy=QUICK)
    backend = nebis.opened()[0].backend
    backend.sessions.run(_renamed("nebis_outbox", "elsewhere"))
    stop = threading.Event()
    thread = threading.Thread(target=relay.run, args=(stop,))
    thread.start()
    while "a round did not finish" not in caplog.text and thread.is_alive():
        stop.wait(0.01)

    backend.sessions.run(_renamed("elsewhere", "nebis_outbox"))
    bench = Bench(backend)
    bench.stage(message("one"))
    while bench.states()["one"] is not MessageState.PUBLISHED and thread.is_alive():
        stop.wait(0.01)
    stop.set()
    thread.join()

    assert bench.states() == {"one": MessageState.PUBLISHED}


def _renamed(old: str, new: str) -> Any:
    statement = read_statements(f"-- name: rename\nALTER TABLE {old} RENAME TO {new}")["rename"]
    return in_transaction(iter(Query(statement)))


def test_a_relay_that_cannot_work_says_so_when_it_is_made(nebis: Nebis) -> None:
    with pytest.raises(ConfigError, match="needs a publisher"):
        Relay(nebis, {})
    with pytest.raises(ConfigError, match="publish_timeout"):
        Relay(nebis, Ledger(), policy=RelayPolicy(lease=timedelta(seconds=1)))
    assert nebis.relays == []


def test_a_store_without_an_outbox_has_nothing_to_relay() -> None:
    with Nebis("memory://") as nebis, pytest.raises(MisuseError, match="has no outbox"):
        Relay(nebis, Ledger()).run_once()
