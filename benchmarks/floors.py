"""What must hold and what we are after, and whether this run reached it."""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.book import Book, Measured, Ratio
from benchmarks.contenders import CONTENDERS
from benchmarks.rows import NAIVE, NAIVE_ONE_CORE, NAIVE_SQLITE, NAIVE_THREADS, bare_range, share_of_bare

HTTP_CALLERS = 64
GROWTH_ROWS = 10_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One line of the table of floors."""

    what: str
    measured: float | None
    low: float | None = None
    high: float | None = None
    floor: float
    goal: float
    is_upper_bound: bool = False
    """Whether the figure must stay below instead of above."""
    tolerance_from: float | None = None
    """Where bare against bare begins: a share above it cannot be told from the bare application."""

    def reaches(self, target: float) -> bool | None:
        """Tell whether the median reaches a target; nothing where it was not measured."""
        if self.measured is None:
            return None
        if self.is_upper_bound:
            return self.measured <= target
        within_noise = self.tolerance_from is not None and self.measured >= self.tolerance_from
        return self.measured >= target or within_noise

    def as_dict(self) -> dict[str, Any]:
        """Return the line with its verdicts."""
        return {**asdict(self), "floor_reached": self.reaches(self.floor), "goal_reached": self.reaches(self.goal)}


def verdicts(book: Book) -> list[Verdict]:
    """Judge a run."""
    return [*_ratios(book), *_shares(book), *_against_peers(book), *_upkeep(book)]


def _ratios(book: Book) -> Iterator[Verdict]:
    naive = {callers: Measured(NAIVE, "postgres", "cycle", callers) for callers in (1, 64, 256)}
    naive_replay = Measured(NAIVE, "postgres", "replay", 64)
    naive_sqlite = Measured(NAIVE_SQLITE, "sqlite", "cycle", 64)
    table: list[tuple[str, Measured, Measured, float, float]] = [
        ("Postgres cycle, 64 callers, x naive psycopg", _nebis("cycle", 64), naive[64], 8, 12),
        (
            "Postgres cycle, 64 callers, x naive asyncpg",
            _nebis("cycle", 64),
            Measured("naive-asyncpg", "postgres", "cycle", 64),
            5,
            7,
        ),
        ("Postgres cycle, 256 callers, x naive psycopg", _nebis("cycle", 256), naive[256], 12, 18),
        ("Postgres cycle, 1 caller, x naive psycopg", _nebis("cycle", 1), naive[1], 1.0, 1.3),
        ("Postgres single transaction, 1 caller, x naive psycopg", _nebis("single_tx", 1), naive[1], 1.3, 1.8),
        ("Postgres replay, 64 callers, x naive psycopg", _nebis("replay", 64), naive_replay, 20, 45),
        ("SQLite cycle, 64 asyncio callers, x naive SQLite", _nebis("cycle", 64, "sqlite"), naive_sqlite, 7, 11),
        (
            "SQLite cycle, 64 threads, x naive SQLite",
            Measured("nebis-threads", "sqlite", "cycle", 64),
            naive_sqlite,
            4,
            6,
        ),
        ("SQLite replay, 64 callers, x naive Postgres replay", _nebis("replay", 64, "sqlite"), naive_replay, 20, 40),
        (
            "Postgres cycle, 64 blocking threads, x naive psycopg2 threads",
            Measured("nebis-threads", "postgres", "cycle", 64),
            Measured(NAIVE_THREADS, "postgres", "cycle", 64),
            3.5,
            6,
        ),
        (
            "the same, with both processes held to one core each",
            Measured("nebis-threads-one-core", "postgres", "cycle", 64),
            Measured(NAIVE_ONE_CORE, "postgres", "cycle", 64),
            3.5,
            6,
        ),
    ]
    for what, ours, baseline, floor, goal in table:
        yield _verdict(what, book.ratio(ours, baseline), floor, goal)


def _shares(book: Book) -> Iterator[Verdict]:
    bare = bare_range(book, HTTP_CALLERS)
    for store in ("postgres", "sqlite"):
        for case, words, floor, goal in (("http_new", "new keys", 0.5, 0.65), ("http_replay", "replays", 0.8, 0.95)):
            share = share_of_bare(book, Measured("nebis", store, case, HTTP_CALLERS))
            what = f"HTTP, {words}, {HTTP_CALLERS} callers, {store}, share of the bare application"
            yield _verdict(what, share, floor, goal, tolerance_from=bare.low if bare else None)


def _against_peers(book: Book) -> Iterator[Verdict]:
    """Take the fastest peer of all stores, and the slowest of our ratios to anybody."""
    ours = _nebis("cycle", 64)
    speeds = {
        theirs: speed
        for contender in CONTENDERS
        if contender.is_peer
        and (speed := book.per_second(theirs := Measured(contender.system, contender.store, "cycle", 64))) is not None
    }
    fastest = max(speeds, key=lambda theirs: speeds[theirs], default=None)
    name = f" ({fastest.system}, {fastest.store})" if fastest else ""
    ratio = book.ratio(ours, fastest) if fastest else None
    yield _verdict(f"Postgres cycle, 64 callers, x the fastest peer{name}", ratio, 4, 8)


def _upkeep(book: Book) -> Iterator[Verdict]:
    get: Callable[[str], float | None] = book.figures.get
    rows = f"{get('growth_rows') or GROWTH_ROWS:,.0f}"
    yield Verdict(
        what=f"growth: claim p50 at {rows} rows / in an empty table (meant for {GROWTH_ROWS:,})",
        measured=get("growth_ratio"),
        floor=1.25,
        goal=1.1,
        is_upper_bound=True,
    )
    yield Verdict(
        what="purge under load: cycles kept",
        measured=get("purge_kept"),
        low=get("purge_kept_low"),
        high=get("purge_kept_high"),
        floor=0.9,
        goal=0.97,
    )
    for what, name, floor, goal in (
        ("bytes per record, 300-byte body", "bytes_per_record", 900, 600),
        ("bytes of WAL per cycle", "wal_bytes_per_cycle", 1300, 950),
        ("fingerprint of 300 bytes of JSON, standard library, us", "fingerprint_us", 25, 15),
        # Installed where this is measured; a fingerprint has no use for it.
        ("fingerprint of 300 bytes of JSON, with orjson installed, us", "fingerprint_us", 6, 4),
        ("1,000 attempts in flight with 4 KB bodies, MB", "memory_megabytes", 60, 25),
    ):
        yield Verdict(what=what, measured=get(name), floor=floor, goal=goal, is_upper_bound=True)


def _nebis(case: str, callers: int, store: str = "postgres") -> Measured:
    return Measured("nebis", store, case, callers)


def _verdict(
    what: str, ratio: Ratio | None, floor: float, goal: float, *, tolerance_from: float | None = None
) -> Verdict:
    return Verdict(
        what=what,
        measured=None if ratio is None else ratio.median,
        low=None if ratio is None else ratio.low,
        high=None if ratio is None else ratio.high,
        floor=floor,
        goal=goal,
        tolerance_from=tolerance_from,
    )
