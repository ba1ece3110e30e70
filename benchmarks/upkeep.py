"""What a table costs as it grows: growth, purge, bytes per record and WAL per cycle. Nebis on PostgreSQL only."""

from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import psycopg
from psycopg import sql

from benchmarks.book import Book, Measured, Ratio
from benchmarks.child import Child
from benchmarks.contender import Places
from benchmarks.plan import Plan
from benchmarks.rounds import POSTGRES_SETTINGS, Stage
from tests.engines.binaries import find_binaries
from tests.engines.postgres import PostgresServer

NAME = "nebis@postgres"
CALLERS = 64
_TABLE = "nebis_record"
# What is different in each record; everything else is copied from one that was made by a call.
_OWN = {
    "identity": "own.identity",
    # As they are drawn: with the beginning of the identity.
    "record_id": "(substring(encode(own.identity, 'hex') FOR 12) || substring(md5(i::text) FOR 20))::uuid",
    "nonce": "substring(sha256(convert_to(i::text, 'UTF8')) FOR octet_length(one.nonce))",
    "key": "gen_random_uuid()::text",
    "fence": "i",
}
# What is due where keys come and go: for each record that arrives, one loses its outcome and one tombstone is removed.
_DUE = {
    "created_at": "1",
    "completed_at": "2",
    "expires_at": "3",
    "state": "CASE i % 2 WHEN 0 THEN 'C' ELSE 'E' END",
    "outcome": "CASE i % 2 WHEN 0 THEN one.outcome END",
    "forget_at": f"CASE i % 2 WHEN 0 THEN {2**60} ELSE 4 END",
}
AGED_PER_CYCLE = 2.0
"""What keeps the table from growing for ever."""


def growth(plan: Plan, stage: Stage, book: Book) -> None:
    """Compare claims of one caller in tables of every size, in the same rounds."""
    with ExitStack() as stack:
        workers: dict[int, Child] = {}
        for rows in (0, *plan.growth_rows):
            places = stage.places()
            workers[rows] = stack.enter_context(Child("worker", NAME, places, stage.log))
            workers[rows].ask(do="claims", seconds=0.3)
            if rows:
                book.progress(f"growth, filling a table with {rows:,} rows")
                fill(places, rows)
        medians: dict[int, list[float]] = {rows: [] for rows in workers}
        for turn in range(plan.rounds):
            book.progress(f"growth, round {turn + 1} of {plan.rounds}, tables of {[*workers]} rows")
            for rows, worker in workers.items():
                answer = worker.ask(do="claims", seconds=max(plan.seconds, 0.5))
                if book.add(Measured("nebis", "postgres", f"growth@{rows}", 1), NAME, turn, answer):
                    medians[rows].append(answer["p50_ms"])
        largest = max(workers)
        ratio = Ratio.of([grown / empty for grown, empty in zip(medians[largest], medians[0], strict=False)])
        if ratio is not None:
            book.figures.update(growth_ratio=ratio.median, growth_rows=largest)
            book.samples[Measured("nebis", "postgres", "growth", 1)] = book.samples.pop(
                Measured("nebis", "postgres", f"growth@{largest}", 1)
            )


def purge(plan: Plan, stage: Stage, book: Book) -> None:
    """Compare cycles beside the housekeeping of a table full of what is due with cycles without it."""
    places = stage.places()
    with Child("worker", NAME, places, stage.log) as worker:
        # A few: the sweep begins where the table does, and a second goes by for each stride in which nothing is due.
        worker.ask(do="measure", case="cycle", callers=1, seconds=0.05)
    book.progress(f"purge, filling a table with {plan.purge_rows:,} rows that are due")
    fill(places, plan.purge_rows, _DUE)
    # Opened only now: its own housekeeping begins half a minute later, and must not run in the half without.
    with Child("worker", NAME, places, stage.log) as worker, Child("purger", NAME, places, stage.log) as purger:
        seconds, kept, aged, cycles = plan.purge_seconds, [], 0, 0.0
        for turn in range(plan.rounds):
            book.progress(f"purge, round {turn + 1} of {plan.rounds}")
            speeds: dict[bool, dict[str, Any]] = {}
            # Every other round begins with the other half, as what comes later meets a larger table.
            for is_purged in (False, True) if turn % 2 == 0 else (True, False):
                if is_purged:
                    purger.tell(seconds=seconds)
                speeds[is_purged] = worker.ask(do="measure", case="cycle", callers=CALLERS, seconds=seconds)
                if is_purged:
                    aged += purger.hear().get("aged", 0)
            during, without = speeds[True], speeds[False]
            if not book.add(Measured("nebis", "postgres", "purge", CALLERS), NAME, turn, during):
                return
            kept.append(during["per_second"] / without["per_second"])
            cycles += during["per_second"] * seconds
        ratio = Ratio.of(kept)
        if ratio is not None:
            book.figures.update(purge_kept=ratio.median, purge_kept_low=ratio.low, purge_kept_high=ratio.high)
        book.figures["purge_aged_per_second"] = aged / (seconds * plan.rounds)
        book.figures["purge_cycles_per_second"] = cycles / (seconds * plan.rounds)
        if aged < AGED_PER_CYCLE * cycles:
            book.note(NAME, f"purge does not keep pace: {aged / cycles:.2f} records aged for each that came")


def storage(plan: Plan, stage: Stage, book: Book) -> None:
    """Run cycles on a server of their own, whose log nobody else writes to, and see what they left behind."""
    with PostgresServer(find_binaries(), settings=POSTGRES_SETTINGS) as server:
        _storage(plan, stage, book, replace(stage.places(), postgres_url=server.create_database()))


def _storage(plan: Plan, stage: Stage, book: Book, places: Places) -> None:
    with Child("worker", NAME, places, stage.log) as worker, _connected(places) as connection:
        worker.ask(do="measure", case="cycle", callers=CALLERS, seconds=0.2)
        connection.execute("CHECKPOINT")
        first_rows, logged = _rows(connection), 0
        while (rows := _rows(connection)) - first_rows < plan.storage_cycles:
            book.progress(f"storage, {rows - first_rows:,} of {plan.storage_cycles:,} cycles")
            before = _log_position(connection)
            worker.ask(do="measure", case="cycle", callers=CALLERS, seconds=2.0)
            logged += _log_position(connection) - before
            connection.execute("VACUUM")  # As autovacuum does in hours, so that space is used again.
        book.figures["wal_bytes_per_cycle"] = logged / (rows - first_rows)
        book.figures["bytes_per_record"] = _size(connection) / rows


def fill(places: Places, rows: int, changes: dict[str, str] | None = None) -> None:
    """Copy one completed record so many times, with a key of its own each."""
    own = {**_OWN, **(changes or {})}
    with _connected(places) as connection:
        columns = [
            str(name)
            for (name,) in connection.execute(
                "SELECT column_name FROM information_schema.columns WHERE table_name = %s ORDER BY ordinal_position",
                (_TABLE,),
            )
        ]
        values = [
            sql.SQL(own[name]) if name in own else sql.SQL("one.{}").format(sql.Identifier(name)) for name in columns
        ]
        connection.execute(
            sql.SQL(
                "INSERT INTO {table} ({columns}) SELECT {values}"
                " FROM (SELECT * FROM {table} WHERE state = 'C' LIMIT 1) AS one, generate_series(1, {rows}) AS i,"
                " LATERAL (SELECT sha256(convert_to(i::text || clock_timestamp(), 'UTF8')) AS identity) AS own"
            ).format(
                table=sql.Identifier(_TABLE),
                columns=sql.SQL(", ").join(map(sql.Identifier, columns)),
                values=sql.SQL(", ").join(values),
                rows=sql.Literal(rows),
            )
        )
        connection.execute("VACUUM ANALYZE")
        connection.execute("CHECKPOINT")


def _connected(places: Places) -> "psycopg.Connection[tuple[object, ...]]":
    return psycopg.connect(places.postgres_url, autocommit=True)


def _rows(connection: "psycopg.Connection[tuple[object, ...]]") -> int:
    return _number(connection, "SELECT count(*) FROM nebis_record")


def _log_position(connection: "psycopg.Connection[tuple[object, ...]]") -> int:
    return _number(connection, "SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint")


def _size(connection: "psycopg.Connection[tuple[object, ...]]") -> int:
    """Return heap and indexes of every table that a cycle writes to."""
    return _number(
        connection,
        "SELECT sum(pg_total_relation_size(oid))::bigint FROM pg_class"
        " WHERE relkind = 'r' AND relname LIKE 'nebis%%' AND pg_total_relation_size(oid) > 100000",
    )


def _number(connection: "psycopg.Connection[tuple[object, ...]]", query: str) -> int:
    row = connection.execute(query.encode()).fetchone()
    assert row is not None
    return int(str(row[0]))
