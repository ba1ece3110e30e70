"""What a server is, found out before anything is entrusted to it."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from nebis.flow import Flow
from nebis.ports.store import DefiniteFailure
from nebis.stores.sql.asks import Query, Row, Statement
from nebis.stores.sql.postgres.failures import Unreachable

OLDEST_VERSION = 15


def _fixed(name: str, text: str) -> Statement:
    assert ":" not in text.replace("::", "")
    return Statement(name=name, text=text, parameters=(), positional=text, pyformat=text)


def _who(system_identifier: str) -> Statement:
    # The timeline comes from the name of the file that is being written: the control file learns of a promotion late.
    # The last column gives durability back to a session whose role or database has it switched off.
    return _fixed(
        "who",
        f"""
SELECT
    pg_is_in_recovery(),
    {system_identifier},
    CASE WHEN NOT pg_is_in_recovery() THEN substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) END,
    CASE WHEN current_setting('synchronous_commit') = 'off' THEN set_config('synchronous_commit', 'on', false) END
""",
    )


_WHO = _who("(SELECT system_identifier FROM pg_control_system())")
_WHO_WITHOUT_CLUSTER = _who("NULL::bigint")

# The sources are read, since our own sessions see what `_WHO` has just set. A role without pg_monitor sees that
# standbys are attached, but not how: then only a server without any synchronous one can be judged.
_WHAT = _fixed(
    "what",
    """
SELECT
    current_setting('server_version_num')::int,
    current_setting('fsync') = 'on',
    current_setting('full_page_writes') = 'on',
    (SELECT reset_val FROM pg_settings WHERE name = 'synchronous_commit'),
    current_setting('synchronous_standby_names') <> '',
    (
        SELECT count(*)
        FROM pg_stat_replication AS standby
        WHERE standby.state IS DISTINCT FROM 'backup'
            AND (standby.sync_state IN ('async', 'potential') OR current_setting('synchronous_standby_names') = '')
            AND NOT EXISTS (
                SELECT
                FROM pg_replication_slots AS slot
                WHERE slot.active_pid = standby.pid
                    AND slot.slot_type = 'logical'
            )
    ),
    current_user::text,
    current_database()::text
""",
)


class Primary:
    """The server that this process trusts: a writable one, of one cluster, on a timeline that never goes back."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.system_identifier: int | None = None
        self.timeline = 0

    def accept(self, *, is_replica: bool, system_identifier: int | None, timeline: int) -> None:
        """Remember whom we speak to, or raise `Unreachable` if records could be missing there (F030, F031)."""
        if is_replica:
            raise Unreachable(
                "this server is a replica, whose records lag behind; point the URL at the primary",
                is_misconfigured=True,
            )
        with self._lock:
            if None not in (self.system_identifier, system_identifier) and self.system_identifier != system_identifier:
                raise Unreachable(
                    "another database cluster answers at this address; "
                    "restart this process if it is meant to replace the former one"
                )
            if timeline < self.timeline:
                raise Unreachable(
                    f"a former primary answers (timeline {timeline}, but {self.timeline} was seen); shut it down"
                )
            self.system_identifier = system_identifier or self.system_identifier
            self.timeline = timeline


def admit(primary: Primary) -> Flow[None]:
    """Make sure that a new connection leads to the primary, and that what it commits is durable."""
    try:
        [row] = yield from Query(_WHO)
    except DefiniteFailure:  # Some providers keep the control file to themselves; the timeline must then be enough.
        [row] = yield from Query(_WHO_WITHOUT_CLUSTER)
    is_replica, system_identifier, timeline, _ = row
    primary.accept(
        is_replica=is_replica, system_identifier=system_identifier, timeline=int(timeline, 16) if timeline else 0
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerReport:
    """What a server says of itself, for the start-up report and for doctors."""

    version: int
    role: str
    database: str
    system_identifier: int | None
    timeline: int
    has_fsync: bool
    has_full_page_writes: bool
    synchronous_commit: str
    has_synchronous_standby: bool
    asynchronous_standbys: int

    def weaknesses(self) -> tuple[str, ...]:
        """Return a line for each way in which this server may forget what it acknowledged."""
        return (*self.losses(), *self.risks())

    def losses(self) -> tuple[str, ...]:
        """Return a line for each setting with which a crash of the machine takes records away."""
        lines: list[str] = []
        if not self.has_fsync:
            lines.append("fsync is off: a crash of the machine loses or corrupts records; set fsync = on")
        if not self.has_full_page_writes:
            lines.append("full_page_writes is off: a crash of the machine corrupts records; set full_page_writes = on")
        return tuple(lines)

    def risks(self) -> tuple[str, ...]:
        """Return a line for each other way to lose commits: on failover, or those of the application itself."""
        lines: list[str] = []
        if self.synchronous_commit == "off":
            lines.append(
                f"synchronous_commit is off for role {self.role!r}: Nebis switches it on for its own transactions, but "
                "a crash loses the last commits of yours; set synchronous_commit = on"
            )
        if self.synchronous_commit == "local" and self.has_synchronous_standby:
            lines.append(
                f"synchronous_commit is local for role {self.role!r}: a failover loses the last commits; set it to on"
            )
        if self.asynchronous_standbys:
            lines.append(
                f"asynchronous standbys are attached ({self.asynchronous_standbys}): the promise is void on failover, "
                "which loses the last commits; name one in synchronous_standby_names and promote no other"
            )
        return tuple(lines)

    def faults(self) -> tuple[str, ...]:
        """Return a line for each reason not to work with this server at all."""
        if self.version >= OLDEST_VERSION * 10_000:
            return ()
        return (f"PostgreSQL {self.version // 10_000} is too old; use {OLDEST_VERSION} or newer",)

    def assumptions(self) -> tuple[str, ...]:
        """Return what must hold for the promise, as the start-up report prints it."""
        standby = (
            "a commit is acknowledged by a synchronous standby, and no other is ever promoted"
            if self.has_synchronous_standby
            else "this server is never replaced by a standby or an older backup: no synchronous standby is configured"
        )
        return (standby, "a former primary is shut down before another is promoted", *self.weaknesses())


def inspect(primary: Primary) -> Flow[ServerReport]:
    """Ask a server for all that matters to the promise."""
    [row] = yield from Query(_WHAT)
    return _report(row, primary)


def _report(row: Row, primary: Primary) -> ServerReport:
    version, has_fsync, has_full_page_writes, synchronous_commit, has_synchronous_standby, *rest = row
    asynchronous_standbys, role, database = rest
    return ServerReport(
        version=version,
        role=role,
        database=database,
        system_identifier=primary.system_identifier,
        timeline=primary.timeline,
        has_fsync=has_fsync,
        has_full_page_writes=has_full_page_writes,
        synchronous_commit=synchronous_commit,
        has_synchronous_standby=has_synchronous_standby,
        asynchronous_standbys=asynchronous_standbys,
    )
