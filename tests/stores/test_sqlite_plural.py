"""Many members in one statement: each is told what it would be told by itself."""

import re
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nebis.core.answers import Granted, Kept
from nebis.core.record import Nonce, Outcome, OutcomeKind, Ownership, State
from nebis.core.verbs import Verb
from nebis.flow import Ask
from nebis.ports.store import BlockingBackend, Spoilt
from nebis.stores.sql.asks import Columns, Query, Statement, Write, Written, in_transaction
from nebis.stores.sql.at_once import FEWEST, MOST, MOST_BYTES
from nebis.stores.sql.dialect import sqlite_dialect
from nebis.stores.sql.members import claiming_all, completing_all
from nebis.stores.sql.sqlite.connection import Connection, open_connection
from nebis.stores.sql.sqlite.journal import chosen_journal
from nebis.stores.sql.sqlite.location import DatabaseFile
from nebis.stores.sql.sqlite.plural import WIDTHS, WIDTHS_OF_WRITES, bound_write, bytes_of, run_plural
from nebis.testing.conformance.specimens import START_US, claim, complete
from tests.stores.sql_backends import opened_sqlite

NUMBERS = sorted({number for width in WIDTHS for number in (width, width + 1)} | {2, 2 * WIDTHS[-1] + 3})
MANY = sorted({number for width in WIDTHS_OF_WRITES for number in (width - 1, width, width + 1)})
STATEMENTS = sqlite_dialect().statements


@pytest.fixture
def backend(tmp_path: Path) -> Iterator[BlockingBackend]:
    opened = opened_sqlite(tmp_path)
    yield opened
    opened.sessions.close()


def applied(backend: BlockingBackend, *verbs: Verb) -> list[object]:
    return list(backend.sessions.run(backend.store.apply(verbs, now=START_US)))


def owners(answers: list[object]) -> list[Ownership]:
    return [answer.record.ownership for answer in answers if isinstance(answer, Granted)]


@pytest.mark.parametrize("number", sorted({*NUMBERS, *MANY}))
def test_each_of_many_new_keys_is_granted_with_a_fence_of_its_own(backend: BlockingBackend, number: int) -> None:
    answers = applied(backend, *(claim(str(place)) for place in range(number)))

    fences = sorted(owner.fence for owner in owners(answers))
    assert fences == list(range(1, number + 1))
    for answer in answers:
        assert isinstance(answer, Granted)
        assert backend.sessions.run(backend.store.find(answer.record.identity)) == answer.record


def test_keys_that_are_there_already_are_told_from_new_ones(backend: BlockingBackend) -> None:
    applied(backend, *(claim(str(place), by="somebody") for place in range(0, 70, 3)))

    answers = applied(backend, *(claim(str(place), by="late") for place in range(70)))

    assert [isinstance(answer, Granted) for answer in answers] == [place % 3 != 0 for place in range(70)]
    fences = [owner.fence for owner in owners(answers)]
    assert len(set(fences)) == len(fences)
    assert min(fences) > 24


def test_a_claim_that_was_sent_before_is_not_taken_for_a_new_one(backend: BlockingBackend) -> None:
    verbs = [claim(str(place)) for place in range(3)]
    first = applied(backend, *verbs[:2])

    again = applied(backend, *verbs)

    assert owners(again)[:2] == owners(first)
    assert [answer.how for answer in again if isinstance(answer, Granted)][2].name == "NEW"


@pytest.mark.parametrize("number", sorted({*NUMBERS, *MANY}))
def test_each_of_many_owners_completes_once(backend: BlockingBackend, number: int) -> None:
    owned = owners(applied(backend, *(claim(str(place)) for place in range(number))))
    applied(backend, *(complete(owner) for owner in owned[::5]))

    answers = applied(backend, *(complete(owner) for owner in owned))

    assert answers == [Kept(is_repeated=place % 5 == 0) for place in range(number)]
    counts = backend.sessions.run(backend.store.count(now=START_US))
    assert counts.by_state[State.COMPLETED] == number


def test_an_owner_of_an_older_life_changes_nothing_among_others(backend: BlockingBackend) -> None:
    owned = owners(applied(backend, *(claim(str(place)) for place in range(9))))
    stale = [complete(owner) for owner in owned]
    with sqlite3.connect(_path(backend)) as connection:
        connection.execute("UPDATE nebis_record SET fence = 1000 WHERE key = '4'")
    connection.close()

    applied(backend, *stale)

    record = backend.sessions.run(backend.store.find(owned[4].identity))
    assert record is not None
    assert record.state is State.IN_PROGRESS
    counts = backend.sessions.run(backend.store.count(now=START_US))
    assert counts.by_state[State.COMPLETED] == 8


def test_one_that_is_refused_takes_all_with_it(backend: BlockingBackend) -> None:
    verbs = [claim(str(place)) for place in range(9)]

    with pytest.raises(Spoilt):
        applied(backend, *verbs, claim("spoilt", nonce=b"short"))

    assert sum(backend.sessions.run(backend.store.count(now=START_US)).by_state.values()) == 0
    assert len(owners(applied(backend, *verbs))) == 9


def test_one_that_is_refused_takes_nothing_of_the_application_with_it(backend: BlockingBackend) -> None:
    assert backend.transaction is not None
    transaction = backend.transaction(None)
    transaction.begin()
    transaction.connection.execute("CREATE TABLE payment (amount INTEGER)")
    transaction.connection.execute("INSERT INTO payment VALUES (7)")

    with pytest.raises(Spoilt):
        transaction.run(backend.store.apply([claim("fine"), claim("spoilt", nonce=b"short")], now=START_US))

    assert transaction.is_same()
    transaction.commit()
    with sqlite3.connect(_path(backend)) as connection:
        assert connection.execute("SELECT amount FROM payment").fetchall() == [(7,)]
        assert connection.execute("SELECT count(*) FROM nebis_record").fetchone() == (0,)
    connection.close()


def test_members_may_come_as_columns(backend: BlockingBackend, tmp_path: Path) -> None:
    owned = owners(applied(backend, *(claim(str(place)) for place in range(3))))
    connection = open_connection(DatabaseFile(tmp_path / "nebis.db"), chosen_journal("wal"), 1.0)
    identities: list[object] = [owner.identity for owner in owned]
    in_columns = Columns({"identity": identities, "position": [1, 2, 3]})

    rows = connection.perform(Query(STATEMENTS.read, {"now": 1}, in_columns))

    assert rows == connection.perform(Query(STATEMENTS.read, {"now": 1}, list(in_columns)))
    assert [row[0] for row in rows] == identities
    connection.close()


def test_what_all_members_share_is_bound_for_each(backend: BlockingBackend, tmp_path: Path) -> None:
    shared = claiming_all([claim("1"), claim("2")])
    assert shared.alike
    apart = Columns({name: [member[name] for member in shared] for name in shared[0]})
    (tmp_path / "elsewhere").mkdir()
    elsewhere = opened_sqlite(tmp_path / "elsewhere")

    for opened, members in ((backend, shared), (elsewhere, apart)):
        assert len(performed(opened, Query(STATEMENTS.claim, {"now": START_US}, members))) == 2

    for identity in shared.by_name["identity"]:
        found = [opened.sessions.run(opened.store.find(identity)) for opened in (backend, elsewhere)]
        assert found[0] == found[1] is not None
    elsewhere.sessions.close()


def test_columns_are_given_places_where_they_bring_none(backend: BlockingBackend) -> None:
    members = claiming_all([claim(str(place)) for place in range(3)])
    assert "position" not in members.by_name

    rows = performed(backend, Query(STATEMENTS.claim, {"now": START_US}, members))

    assert rows == [(identity, place, START_US) for place, identity in enumerate(members.by_name["identity"], start=1)]


@pytest.mark.parametrize("now", [None, START_US])
def test_what_many_claims_are_told_is_what_is_stored(backend: BlockingBackend, now: int | None) -> None:
    """Nobody reads it back: the fences and the time of many are known before they are written."""
    members = claiming_all([claim(str(place)) for place in range(5)])
    performed(backend, Query(STATEMENTS.claim, {"now": now}, members[1:2]))

    rows = performed(backend, Query(STATEMENTS.claim, {"now": now}, members))

    with sqlite3.connect(_path(backend)) as connection:
        stored = connection.execute("SELECT identity, fence, created_at FROM nebis_record WHERE key <> '1'").fetchall()
    connection.close()
    assert len(rows) == 4
    assert sorted(rows) == sorted(stored)


def test_bodies_are_weighed_in_either_shape() -> None:
    columns = Columns({"outcome": [b"four", None], "command": [None, b"seven.."], "key": ["is short", ""]})

    assert bytes_of(columns) == bytes_of(list(columns)) == 11
    assert bytes_of([{"identity": b"x"}]) == 0


@pytest.mark.parametrize("statement", [STATEMENTS.claim, STATEMENTS.complete, STATEMENTS.read], ids=lambda it: it.name)
def test_no_statement_makes_sqlite_read_the_whole_table(backend: BlockingBackend, statement: Statement) -> None:
    """Whatever it was told about the table when that was small."""
    plans: list[str] = []
    with sqlite3.connect(_path(backend)) as connection:
        connection.execute("ANALYZE")
        connection.execute("INSERT INTO sqlite_stat1 VALUES ('nebis_record', 'sqlite_autoindex_nebis_record_1', '1 1')")
    connection.close()
    connection = sqlite3.connect(_path(backend))

    def execute(text: str, values: Sequence[Any]) -> sqlite3.Cursor:
        plans.extend(row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {text}", values))
        return connection.execute("SELECT 1, 1 WHERE FALSE")

    def fetch(text: str, values: Sequence[Any]) -> list[Any]:
        execute(text, values)
        return [(1, 1)] if not statement.positional.startswith("SELECT") else []

    for number in NUMBERS:
        members = [dict.fromkeys(statement.parameters, place) for place in range(number)]
        run_plural(Query(statement, {"now": 1}, members), execute, fetch)
    connection.close()

    assert plans
    assert not [plan for plan in plans if (plan.startswith("SCAN") and "nebis_record" in plan) or "SCAN record" in plan]


@pytest.mark.parametrize("is_analyzed", [False, True])
@pytest.mark.parametrize("number", [FEWEST, MOST])
def test_no_write_at_once_makes_sqlite_read_the_whole_table(
    backend: BlockingBackend, number: int, is_analyzed: bool
) -> None:
    owned = owners(applied(backend, *(claim(str(place)) for place in range(number))))
    claimed = claiming_all([claim(f"other {place}") for place in range(number)])
    completed = completing_all([complete(owner) for owner in owned])
    connection = sqlite3.connect(_path(backend), isolation_level=None)
    if is_analyzed:  # When there was next to nothing in the table.
        connection.execute("ANALYZE")
        connection.execute("UPDATE sqlite_stat1 SET stat = '1 1' WHERE tbl = 'nebis_record'")
        connection.close()
        connection = sqlite3.connect(_path(backend), isolation_level=None)

    for statement, members in ((STATEMENTS.claim_all, claimed), (STATEMENTS.complete_all, completed)):
        assert statement is not None
        write = bound_write(Write(statement, START_US, members))
        plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {write.text}", write.values)]
        searched = [line for line in plan if "autoindex_nebis_record" in line]
        assert searched
        assert all(line.startswith("SEARCH") for line in searched)
        tables = re.compile(r"(?:SCAN|BLOOM FILTER ON) (?:record|owned|twin|nebis_record)\b")
        assert not [line for line in plan if tables.search(line)]
    connection.close()


@pytest.mark.parametrize("taken", [0, 5])
def test_a_write_at_once_is_for_all_or_for_nobody(backend: BlockingBackend, taken: int) -> None:
    """I2: what one of them does not own, none of them writes."""
    claims = [claim(str(place)) for place in range(9)]
    owned = owners(applied(backend, *claims[:taken]))

    claimed = _written(backend, STATEMENTS.claim_all, claiming_all(claims))

    assert claimed.number == (0 if taken else 9)
    counts = backend.sessions.run(backend.store.count(now=START_US))
    assert sum(counts.by_state.values()) == (taken or 9)
    owned = owners(applied(backend, *claims))
    strangers = [replace(owner, nonce=Nonce(bytes(16))) if place == 4 else owner for place, owner in enumerate(owned)]
    completions = completing_all([complete(owner) for owner in strangers])
    assert _written(backend, STATEMENTS.complete_all, completions).number == 0
    completions = completing_all([complete(owner) for owner in owned])
    assert _written(backend, STATEMENTS.complete_all, completions).number == 9
    assert _written(backend, STATEMENTS.complete_all, completions).number == 0


@pytest.mark.parametrize("now", [None, START_US])
def test_what_is_known_of_many_claims_at_once_is_what_is_stored(backend: BlockingBackend, now: int | None) -> None:
    """Nobody reads it back: the last row's number is its fence, whatever else was numbered before."""
    for place in range(3):
        applied(backend, claim(f"single {place}"))
    with sqlite3.connect(_path(backend)) as connection:
        connection.execute("UPDATE nebis_fence SET last = last + 20")
        connection.execute("DELETE FROM nebis_record WHERE key = 'single 2'")
    connection.close()

    written = _written(backend, STATEMENTS.claim_all, claiming_all([claim(str(place)) for place in range(9)]), now)
    single = applied(backend, claim("one more"))
    again = _written(backend, STATEMENTS.claim_all, claiming_all([claim(f"x{place}") for place in range(9)]), now)

    with sqlite3.connect(_path(backend)) as connection:
        stored = connection.execute("SELECT rowid, fence, created_at FROM nebis_record ORDER BY fence").fetchall()
    connection.close()
    assert [fence for _, fence, _ in stored[2:11]] == list(range(written.last_row - 8, written.last_row + 1))
    assert owners(single)[0].fence == written.last_row + 1
    assert [fence for _, fence, _ in stored[12:]] == list(range(again.last_row - 8, again.last_row + 1))
    assert {created_at for _, _, created_at in stored[2:11]} == {written.now}
    assert all(row <= fence for row, fence, _ in stored)
    [(clock,)] = performed(backend, Query(STATEMENTS.clock))
    assert written.now == START_US if now is not None else abs(clock - written.now) < 60_000_000


def test_what_all_share_and_what_each_brings_is_written_alike(backend: BlockingBackend, tmp_path: Path) -> None:
    shared = claiming_all([claim(str(place)) for place in range(9)])
    assert shared.alike
    apart = Columns({name: [member[name] for member in shared] for name in shared[0]})
    (tmp_path / "elsewhere").mkdir()
    elsewhere = opened_sqlite(tmp_path / "elsewhere")

    for opened, members in ((backend, shared), (elsewhere, apart)):
        assert _written(opened, STATEMENTS.claim_all, members).number == 9

    for identity in shared.by_name["identity"]:
        found = [opened.sessions.run(opened.store.find(identity)) for opened in (backend, elsewhere)]
        assert found[0] == found[1] is not None
    elsewhere.sessions.close()


def test_what_is_too_much_at_once_is_written_one_by_one(
    backend: BlockingBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[str] = []
    perform = Connection.perform

    def noted(connection: Connection, ask: Ask[Any]) -> Any:
        written.append(type(ask).__name__)
        return perform(connection, ask)

    monkeypatch.setattr(Connection, "perform", noted)
    long = bytes(MOST_BYTES // FEWEST + 1)

    owned = owners(applied(backend, *(claim(str(place), command=long) for place in range(FEWEST))))
    outcome = Outcome(kind=OutcomeKind.SUCCEEDED, body=long)
    applied(backend, *(complete(owner, outcome) for owner in owned))
    applied(backend, *(claim(f"other {place}") for place in range(MOST + 1)))

    assert len(owned) == FEWEST
    assert "Write" not in written
    counts = backend.sessions.run(backend.store.count(now=START_US))
    assert (counts.by_state[State.COMPLETED], counts.by_state[State.IN_PROGRESS]) == (FEWEST, MOST + 1)


def _written(
    backend: BlockingBackend, statement: Statement | None, members: Columns, now: int | None = START_US
) -> Written:
    assert statement is not None
    return backend.sessions.run(iter(Write(statement, now, members)))


def performed(backend: BlockingBackend, query: Query) -> list[tuple[Any, ...]]:
    return backend.sessions.run(in_transaction(iter(query)))


def _path(backend: BlockingBackend) -> Path:
    return Path(backend.sessions._file.path)  # type: ignore[attr-defined] # Sessions of SQLite know their file.
