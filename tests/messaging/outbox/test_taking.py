"""What a relay may take, on every store: by state and never by number, in order for each key, under a fence."""

import threading
from collections.abc import Iterator

import psycopg
import pytest

from nebis.flow import Flow
from nebis.ports.history import Signed
from nebis.ports.messages import Message
from nebis.ports.outbox import Depth, EntryQuery, MessageState
from nebis.stores import open_blocking
from nebis.stores.sql.asks import in_transaction
from nebis.stores.sql.dialect import postgres_dialect
from tests.messaging.outbox.benches import LEASE_US, NOW, SECOND_US, Bench, message, names

SIGNED = Signed(who="ann", what="outbox", reason="the broker was mended")


def test_a_message_comes_back_as_it_was_staged(bench: Bench) -> None:
    staged = Message(
        id="m-1",
        topic="orders.created",
        payload=b"\x00\xff",
        content_type="application/x-order",
        headers=(("Trace", "ü1"), ("trace", "2")),
        ordering_key="order 1",
        available_at=NOW - 5,
    )

    bench.stage(staged)
    [entry] = bench.take("a")

    assert entry.message.payload == staged.payload
    assert (entry.message.id, entry.message.topic) == ("m-1", "orders.created")
    assert (entry.message.headers, entry.message.content_type) == (staged.headers, staged.content_type)
    assert entry.message.ordering_key == "order 1"
    assert (entry.state, entry.attempts, entry.taken_by) == (MessageState.PENDING, 1, "a")
    assert entry.available_at == NOW + LEASE_US


def test_what_is_taken_is_nobody_elses_until_its_lease_ends(bench: Bench) -> None:
    bench.stage(message("one"), message("two"))

    assert names(bench.take("a", limit=1)) == ["one"]
    assert names(bench.take("b")) == ["two"]
    bench.pass_seconds(29)
    assert bench.take("c") == []
    bench.pass_seconds(1)
    assert names(bench.take("c")) == ["one", "two"]


def test_a_relay_that_slept_past_its_lease_cannot_speak_for_its_successor(bench: Bench) -> None:
    """F114: neither for what the successor has, nor for what it has marked."""
    bench.stage(message("one"))
    sleeper = bench.take("a")
    bench.pass_seconds(30)
    successor = bench.take("b")

    assert bench.mark("a", sleeper, MessageState.PUBLISHED) == frozenset()
    assert bench.states() == {"one": MessageState.PENDING}
    assert bench.mark("b", successor, MessageState.PARKED) == {successor[0].sequence}
    assert bench.mark("a", sleeper, MessageState.PUBLISHED) == frozenset()
    assert bench.states() == {"one": MessageState.PARKED}


def test_a_relay_that_is_late_but_unfollowed_is_believed(bench: Bench) -> None:
    bench.stage(message("one"))
    taken = bench.take("a")
    bench.pass_seconds(300)

    assert bench.mark("a", taken, MessageState.PUBLISHED) == {taken[0].sequence}


def test_what_is_not_due_waits(bench: Bench) -> None:
    bench.stage(message("later", available_at=NOW + 10 * SECOND_US), message("now"))

    assert names(bench.take("a")) == ["now"]
    bench.pass_seconds(10)
    assert names(bench.take("a")) == ["later"]


def test_one_key_is_taken_in_order_and_by_one_relay(bench: Bench) -> None:
    """F110: nobody else gets what follows."""
    bench.stage(message("k1", "k"), message("free"), message("k2", "k"), message("k3", "k"), message("l1", "l"))

    first = names(bench.take("a", limit=3))
    second = names(bench.take("b"))

    run = [name for name in first if name.startswith("k")]
    assert run in (["k1"], ["k1", "k2"])
    assert not any(name.startswith("k") for name in second)


def test_a_message_that_backs_off_holds_back_its_key_and_no_other(bench: Bench) -> None:
    bench.stage(message("k1", "k"), message("k2", "k"), message("l1", "l"))
    taken = bench.take("a")
    postponed = [entry for entry in taken if entry.message.ordering_key == "k"]
    bench.mark("a", postponed[:1], MessageState.PENDING, pause_us=5 * SECOND_US)
    bench.mark("a", postponed[1:], MessageState.PENDING)

    assert bench.take("b") == []
    bench.pass_seconds(5)
    assert names(bench.take("b")) == ["k1", "k2"]


def test_a_parked_message_holds_back_its_key_until_a_person_decides(bench: Bench) -> None:
    bench.stage(message("k1", "k"), message("k2", "k"), message("free"))
    bench.mark("a", [entry for entry in bench.take("a") if entry.message.id == "k1"], MessageState.PARKED)
    bench.pass_seconds(30)

    assert names(bench.take("b")) == ["free"]
    discarded = bench.run(bench.outbox.decide("k1", MessageState.DISCARDED, SIGNED, now=bench.now))
    assert discarded.state is MessageState.DISCARDED
    assert names(bench.take("b")) == ["k2"]


def test_a_person_retries_what_is_parked_and_not_what_a_relay_has(bench: Bench) -> None:
    bench.stage(message("one"), message("two"))
    taken = bench.take("a")
    bench.mark("a", taken[:1], MessageState.PARKED)

    retried = bench.run(bench.outbox.decide("one", MessageState.PENDING, SIGNED, now=bench.now))
    refused = bench.run(bench.outbox.decide("two", MessageState.DISCARDED, SIGNED, now=bench.now))
    absent = bench.run(bench.outbox.decide("three", MessageState.PENDING, SIGNED, now=bench.now))

    assert (retried.state, retried.attempts) == (MessageState.PENDING, 0)
    assert refused is None
    assert absent is None
    assert names(bench.take("b")) == ["one"]


def test_an_id_that_is_known_is_staged_once(bench: Bench) -> None:
    bench.stage(message("one"))
    bench.mark("a", bench.take("a"), MessageState.PUBLISHED)

    bench.stage(message("one"), message("two"))

    assert names(bench.take("a")) == ["two"]


def test_old_messages_are_purged_in_portions_and_pending_ones_never(bench: Bench) -> None:
    bench.stage(*(message(f"old {number}") for number in range(5)))
    bench.mark("a", bench.take("a"), MessageState.PUBLISHED)
    bench.pass_seconds(100)
    bench.stage(message("new"))

    def purge() -> int:
        purged: int = bench.run(bench.outbox.purge(keep_us=100 * SECOND_US, limit=3, now=bench.now))
        return purged

    assert (purge(), purge(), purge()) == (3, 2, 0)
    assert bench.states() == {"new": MessageState.PENDING}


def test_depth_tells_what_waits_and_since_when(bench: Bench) -> None:
    bench.stage(message("parked"), message("late"), message("future", available_at=NOW + 1000 * SECOND_US))
    taken = {entry.message.id: entry for entry in bench.take("a")}
    bench.mark("a", [taken["parked"]], MessageState.PARKED)
    bench.pass_seconds(40)

    depth = bench.run(bench.outbox.depth(now=bench.now))

    assert depth == Depth(pending=2, parked=1, oldest_pending_us=NOW, now=bench.now)


def test_entries_are_read_in_pages_by_state_and_topic(bench: Bench) -> None:
    bench.stage(message("one"), message("two", topic="mails"), message("three"))
    bench.mark("a", bench.take("a")[:1], MessageState.PUBLISHED)

    def read(**query: object) -> list[str]:
        return names(bench.run(bench.outbox.entries(EntryQuery(**query))))  # type: ignore[arg-type]

    assert read(states=(MessageState.PENDING,)) == ["two", "three"]
    assert read(states=(MessageState.PENDING, MessageState.PUBLISHED), limit=2) == ["one", "two"]
    assert read(topic="mails") == ["two"]
    [first] = bench.run(bench.outbox.entries(EntryQuery(limit=1)))
    assert read(after=first.sequence) == ["two", "three"]
    assert bench.run(bench.outbox.find("two")).message.topic == "mails"
    assert bench.run(bench.outbox.find("four")) is None


@pytest.fixture
def postgres_bench(postgres_url: str) -> Iterator[Bench]:
    opened = open_blocking(postgres_url)
    opened.sessions.run(opened.store.migrate())
    yield Bench(opened)
    opened.sessions.close()


def test_a_transaction_that_commits_late_is_not_skipped_f109(postgres_bench: Bench, postgres_url: str) -> None:
    """Its number is lower than that of what was published long before."""
    bench = postgres_bench
    columns = "message_id, topic, content_type, headers, payload, created_at, available_at"
    with psycopg.connect(postgres_url) as late:
        late.execute(f"INSERT INTO nebis_outbox ({columns}) VALUES ('late', 'orders', 'x', '[]', '', 1, 1)".encode())
        bench.stage(message("early"))
        bench.mark("a", bench.take("a"), MessageState.PUBLISHED)
        assert bench.take("a") == []
    [entry] = bench.take("a")

    assert entry.message.id == "late"
    assert bench.states() == {"late": MessageState.PENDING, "early": MessageState.PUBLISHED}


def test_many_takers_at_once_never_split_a_key(postgres_bench: Bench) -> None:
    """F110: the statement itself keeps the order, whatever else is locked meanwhile."""
    bench = postgres_bench
    bench.stage(*(message(f"{key}-{number}", f"key {key}") for number in range(20) for key in range(5)))
    taken: list[list[str]] = []

    def take(relay: str) -> None:
        taken.extend(names(bench.take(relay, limit=7)) for _ in range(4))

    threads = [threading.Thread(target=take, args=(f"relay {number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    for key in range(5):
        [run] = filter(None, ([name for name in batch if name.startswith(f"{key}-")] for batch in taken))
        assert run == [f"{key}-{number}" for number in range(len(run))]


def test_taking_costs_the_same_however_much_was_published(postgres_bench: Bench, postgres_url: str) -> None:
    statement = postgres_dialect().outbox.take
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO nebis_outbox (message_id, topic, content_type, ordering_key, headers, payload, created_at, "
            "available_at, state, ended_at) SELECT n, 't', 'x', 'k' || n % 10, '[]', '', n, n, 2, n "
            "FROM generate_series(1, 20000) AS n"
        )
        postgres_bench.stage(*(message(f"{number}", f"k{number % 10}") for number in range(50)))
        connection.execute("ANALYZE nebis_outbox")
        values = {"now": NOW, "taken_by": "a", "limit": 10, "lease_us": 1}
        plan = connection.execute(f"EXPLAIN (ANALYZE, BUFFERS) {statement.pyformat}".encode(), values).fetchall()

    text = "\n".join(line for (line,) in plan)
    assert "Seq Scan on nebis_outbox" not in text
    assert "nebis_outbox_available_at" in text


def test_staging_is_part_of_the_transaction_that_is_open(bench: Bench) -> None:
    def break_off() -> Flow[None]:
        yield from bench.outbox.stage([message("never")])
        raise LookupError

    with pytest.raises(LookupError):
        bench.run(in_transaction(break_off()))

    assert bench.states() == {}
