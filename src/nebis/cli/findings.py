"""What a doctor looks at: each finding is one line that says how it stands and what to do."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from nebis.cli.phrases import span
from nebis.cli.store import Place, journal_of, opened
from nebis.core.secret import Keyring, Secret
from nebis.errors import ConfigError, SchemaMismatch, StoreUnavailable
from nebis.flow import Flow
from nebis.ports.store import BlockingSessions, Store, StoreFailure
from nebis.stores.sql.dialect import Dialect
from nebis.stores.sql.migrations import refuse_unless_complete, survey
from nebis.stores.sql.postgres.backend import examine
from nebis.stores.sql.postgres.startup import ServerReport
from nebis.stores.sql.sqlite.journal import Journal, chosen_journal
from nebis.stores.sql.sqlite.location import check_location

_NOTABLE_CLOCK_DIFFERENCE_SECONDS = 1.0
"""Below it nobody who compares two logs is misled."""


_WORKER_SILENCE_US = 5 * 60 * 1_000_000
"""A worker says about once a minute that it is alive; one pass over a large backlog may take a few."""
_WITHOUT_A_WORKER = "a record whose owner died is recovered by the next request with its key, or by housekeeping"


class Status(StrEnum):
    """How serious a finding is."""

    OK = "ok"
    NOTE = "note"
    """Good to know; nothing has to be done."""
    WARN = "warn"
    """The promise holds only as long as something does not happen."""
    FAIL = "fail"
    """The promise is void, or the application cannot start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was looked at."""

    status: Status
    check: str
    text: str


def examined(place: Place) -> Iterator[Finding]:
    """Look at a store from the outside to the inside; stop where nothing further can be seen."""
    try:
        if place.dialect is None:
            yield _warn("store", "memory:// forgets everything when its process ends; use it in tests only")
        elif place.path is not None:
            yield from _of_file(place.path)
            yield from _of_contents(place, place.dialect, is_local=True)
        else:
            report = examine(place.url)
            yield from _of_server(report)
            if not report.faults():
                yield from _of_contents(place, place.dialect, is_local=False)
    except ConfigError as error:
        for fault in error.faults:
            yield _fail("store", fault)
    except (StoreUnavailable, StoreFailure) as error:
        yield _fail("store", error.detail)


def _of_server(report: ServerReport) -> Iterator[Finding]:
    for fault in report.faults():
        yield _fail("store", fault)
    if not report.faults():
        yield _ok(
            "store",
            f"PostgreSQL {report.version // 10_000} is the primary of database {report.database!r}, "
            f"reached as role {report.role!r}",
        )
    for line in report.losses():
        yield _fail("durability", line)
    for line in report.risks():
        yield _warn("durability", line)
    if not report.losses() and report.synchronous_commit != "off":
        yield _ok("durability", f"fsync and full_page_writes are on, synchronous_commit is {report.synchronous_commit}")
    if report.has_synchronous_standby:
        yield _ok("standbys", "commits wait for the standbys that synchronous_standby_names lists")
    elif not report.asynchronous_standbys:
        yield _note("standbys", "none is attached; what a restored backup lacks would be run again")


def _of_file(path: Path) -> Iterator[Finding]:
    check_location(path)
    if not path.exists():
        return
    mode = path.stat().st_mode & 0o777
    if mode & 0o077:
        yield _warn(
            "store",
            f"{path} has mode {mode:o}, but holds the secret and every stored answer; "
            "take it away from other users: chmod 600",
        )
    else:
        yield _ok("store", f"{path} belongs to one user (mode {mode:o}) on a local disk")
    journal = chosen_journal(journal_of(path))
    is_exposed = journal is Journal.WAL_GUARDED
    yield Finding(status=Status.WARN if is_exposed else Status.OK, check="journal", text=journal.assumption)
    yield _ok("durability", "every connection of nebis sets synchronous = FULL and fullfsync = ON")


def _of_contents(place: Place, dialect: Dialect, *, is_local: bool) -> Iterator[Finding]:
    if place.path is not None and not place.path.exists():
        yield _fail("schema", f"{place.path} is not there yet; run `nebis migrate apply`, or start the application")
        return
    with opened(place) as (store, sessions):
        has_schema = True
        for finding in _attempted("schema", lambda: _of_schema(dialect, sessions)):
            has_schema = has_schema and finding.status is not Status.FAIL
            yield finding
        if has_schema:
            yield from _attempted("secret", lambda: _of_secret(store, sessions))
        if not is_local:
            yield from _attempted("clock", lambda: _of_clock(store.clock(), sessions))
        if has_schema:
            yield from _of_worker(store, sessions)


def _attempted(check: str, look: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
    """Let one look fail without hiding the others."""
    try:
        yield from look()
    except StoreFailure as failure:
        yield _fail(check, f"it could not be read ({failure.detail}); check what this role may read")


def _of_schema(dialect: Dialect, sessions: BlockingSessions) -> Iterator[Finding]:
    try:
        found = sessions.run(survey(dialect))
        refuse_unless_complete(found)
    except SchemaMismatch as mismatch:
        yield _fail("schema", mismatch.detail)
        return
    if found.newer:
        yield _note(
            "schema",
            f"it is newer than this code and has {', '.join(found.newer)}, with which this version may go on; "
            "install the newer version when its roll-out is done",
        )
    else:
        yield _ok("schema", f"it is what this version needs, up to {found.applied[-1]}")


def _of_secret(store: Store, sessions: BlockingSessions) -> Iterator[Finding]:
    known = sessions.run(store.secrets(None))
    if known.generated is None:
        yield _note("secret", "there is none yet; the first start makes the one that the store keeps for itself")
        return
    own = Secret(known.generated).check_value()
    text = os.environ.get("NEBIS_SECRET", "")
    try:
        held = {secret.check_value() for secret in Keyring.parse(text)} if text else {own}
    except ConfigError as error:
        for fault in error.faults:
            yield _fail("secret", f"NEBIS_SECRET: {fault}")
        return
    # As at start: the store's own secret need not be listed, whether or not it was ever used alone.
    missing = len(known.check_values - held - {own})
    if missing:
        told = "NEBIS_SECRET lacks" if text else "NEBIS_SECRET is not set and lacks"
        yield _fail(
            "secret",
            f"{told} {missing} of the secrets that records of this store were made with, and no process will start; "
            "to rotate, list the new one first and keep the old one: new,old",
        )
    elif text:
        yield _ok("secret", "NEBIS_SECRET covers every secret in use")
    else:
        yield _ok("secret", "the store keeps the only one, which was made at the first start; NEBIS_SECRET is not set")


def _of_worker(store: Store, sessions: BlockingSessions) -> Iterator[Finding]:
    try:
        seen_at = sessions.run(store.worker_seen_at())
        now = sessions.run(store.clock())
    except StoreFailure as failure:
        # Nothing that is promised depends on a worker, so this alone is no failure.
        yield _note("worker", f"whether one is alive could not be read ({failure.detail})")
        return
    if seen_at is None:
        yield _note("worker", f"none was ever seen; {_WITHOUT_A_WORKER}")
        return
    silent_us = max(0, now - seen_at)
    if silent_us > _WORKER_SILENCE_US:
        yield _note("worker", f"none was seen for {span(silent_us)}; start one again, or else {_WITHOUT_A_WORKER}")
    else:
        yield _ok("worker", f"one was seen {span(silent_us)} ago")


def _of_clock(clock: Flow[int], sessions: BlockingSessions) -> Iterator[Finding]:
    before_us = time.time_ns() // 1000
    store_us = sessions.run(clock)
    after_us = time.time_ns() // 1000
    seconds = (store_us - (before_us + after_us) / 2) / 1e6
    blur_seconds = (after_us - before_us) / 2e6
    direction = "ahead of" if seconds > 0 else "behind"
    text = f"the store's is {abs(seconds):.3f} s {direction} this host's (give or take {blur_seconds:.3f} s)"
    if abs(seconds) - blur_seconds > _NOTABLE_CLOCK_DIFFERENCE_SECONDS:
        yield _note("clock", f"{text}; safety does not depend on it, but logs are hard to compare: synchronise both")
    else:
        yield _ok("clock", f"{text}; safety does not depend on it")


def _ok(check: str, text: str) -> Finding:
    return Finding(status=Status.OK, check=check, text=text)


def _note(check: str, text: str) -> Finding:
    return Finding(status=Status.NOTE, check=check, text=text)


def _warn(check: str, text: str) -> Finding:
    return Finding(status=Status.WARN, check=check, text=text)


def _fail(check: str, text: str) -> Finding:
    return Finding(status=Status.FAIL, check=check, text=text)
