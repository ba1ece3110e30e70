"""The store port: a handful of verbs, each atomic, each answering exactly as the state machine does."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple, Protocol, TypeVar

from nebis.core.answers import Answer, Locked
from nebis.core.record import Record, RecordId, State
from nebis.core.replaying import Ended
from nebis.core.verbs import Verb
from nebis.flow import Flow
from nebis.ports.history import History
from nebis.ports.inbox import Inbox
from nebis.ports.velocity import Velocity

T = TypeVar("T")


class StoreFailure(Exception):
    """A store call that gave no answer. Never raised as such: it is definite or it is not."""

    def __init__(self, detail: str) -> None:
        self.detail = detail
        super().__init__(detail)


class DefiniteFailure(StoreFailure):
    """A store call of which it is certain that it changed nothing."""


class Spoilt(DefiniteFailure):
    """A batch that was rolled back because of what one of its members asks for; the others may go without it."""


class RowLocked(Spoilt):
    """A batch that was rolled back because somebody holds a lock that one of its members needs."""


class IndefiniteFailure(StoreFailure):
    """A store call that may have been applied, now or later. Every unclassified error is one of these."""


class Tier(StrEnum):
    """How much of the promise a store can carry."""

    FULL = "full"
    REDUCED = "reduced"
    GUARD_ONLY = "guard_only"


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What a store can do, asked by suites and start-up checks instead of its type."""

    name: str
    tier: Tier
    survives_restart: bool
    joins_transactions: bool
    wakes_other_processes: bool
    assumptions: tuple[str, ...] = ()
    """What must hold for the tier, in words that the start-up report prints."""
    has_leading_ids: bool = False
    """Whether it finds a record by its public id best if that begins with the first six bytes of its identity."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """One bounded page of records, in (lease end, identity) order, so that bad rows cannot block what follows."""

    states: tuple[State, ...] = ()
    tenant: str | None = None
    operation: str | None = None
    resource_type: str | None = None
    resource_id: str | None = None
    lapsed_only: bool = False
    created_before: int | None = None
    after: tuple[int, bytes] | None = None
    limit: int = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """How many records stand where, and how old the oldest unsettled ones are."""

    by_state: dict[State, int]
    lapsed: int
    oldest_in_progress_us: int | None
    oldest_in_doubt_us: int | None


class Tally(NamedTuple):
    """What is counted: a kind of event, of one operation."""

    name: str
    operation: str


class Swept(NamedTuple):
    """What one stride over the records did, and where it stands."""

    aged: int
    """How many records were due: outcomes that became tombstones, and records that were removed."""
    strides: int
    """How many strides a whole round takes."""
    ends_round: bool
    """Whether everything was looked at since the round began."""
    newest_fence: int
    """The highest fence so far: it grows by one with each attempt that the store lets in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretState:
    """What the store knows of secrets: its own, and check values of all that were used."""

    generated: bytes | None = field(repr=False)
    check_values: frozenset[bytes] = field(repr=False)


class Store(History, Inbox, Velocity, Protocol):
    """A durable memory of records. Every method is a flow of the store's own asks.

    `now` replaces the store's clock in tests; in production it is None and the store's own clock decides (I7).
    """

    @property
    def capabilities(self) -> Capabilities:
        """Say what this store can do."""
        ...

    def apply(self, verbs: Sequence[Verb], *, now: int | None = None) -> Flow[list[Answer | Locked]]:
        """Apply each verb to its own record, all in one commit, and answer in the order asked.

        An identity appears at most once. Each answer equals that of `core.transitions.transition`; a member whose row
        somebody else holds locked answers `Locked` and changes nothing, its neighbours are not delayed by it.
        Raises `DefiniteFailure` if nothing was applied, `IndefiniteFailure` if that is not known.
        """
        ...

    def sweep(self, *, limit: int, now: int | None = None) -> Flow[Swept]:
        """Let at most `limit` records age that are due: what is past its window becomes a tombstone, what is over goes.

        One stride: a small store is looked at as a whole, a large one goes on where the last stride ended.
        """
        ...

    def find(self, identity: bytes) -> Flow[Record | None]:
        """Read one record by its identity."""
        ...

    def expects_replay(self, identity: bytes) -> bool:
        """Tell at once whether the record has probably ended; a hint, by which nothing is decided."""
        ...

    def ended(self, identities: Sequence[bytes], *, now: int | None = None) -> Flow[dict[bytes, Ended]]:
        """Read those of these records that are completed, by identity, as they stand. Never waits."""
        ...

    def find_by_id(self, record_id: RecordId) -> Flow[Record | None]:
        """Read one record by its public id."""
        ...

    def scan(self, query: Scan, *, now: int | None = None) -> Flow[list[Record]]:
        """Read one page of records."""
        ...

    def count(self, *, now: int | None = None) -> Flow[Counts]:
        """Count records by state."""
        ...

    def hold(self, identity: bytes) -> Flow[Record | Locked | None]:
        """Lock a record until the surrounding transaction ends, and read it as it then stands. Never waits."""
        ...

    def barrier(self, identity: bytes) -> Flow[Record | Locked | None]:
        """Read a record that no earlier transaction can still change, whichever way that one ended.

        `Locked` while one is under way: a plain read would then prove nothing about a lost COMMIT.
        """
        ...

    def tally(self, tallies: Mapping[Tally, int]) -> Flow[None]:
        """Add to the counters that people read. Nothing is decided by them, so a lost one is only a lost count."""
        ...

    def tallies(self) -> Flow[dict[Tally, int]]:
        """Read all counters."""
        ...

    def clock(self) -> Flow[int]:
        """Read the store's clock, in microseconds."""
        ...

    def migrate(self) -> Flow[tuple[str, ...]]:
        """Bring the schema up to this version of the code; return the names of what was applied."""
        ...

    def verify(self) -> Flow[None]:
        """Raise `SchemaMismatch` unless this version of the code can work with the schema."""
        ...

    def secrets(self, candidate: bytes | None) -> Flow[SecretState]:
        """Read what is known of secrets. A `candidate` becomes the store's own if it has none yet; that one stays."""
        ...

    def admit_secret(self, check_value: bytes) -> Flow[None]:
        """Remember that a secret with this check value is in use."""
        ...

    def made_with(self, number: int) -> Flow[int]:
        """Count the records that were made with the secret of this number."""
        ...

    def retire_secret(self, check_value: bytes, number: int) -> Flow[int]:
        """Forget that a secret was in use, unless records made with it are left; return how many there are."""
        ...


class BlockingSessions(Protocol):
    """Blocking access to a store's connections; safe to share between threads."""

    def run(self, flow: Flow[T]) -> T:
        """Perform a store flow on one connection and give it back, or throw it away after anything indefinite."""
        ...

    def close(self) -> None:
        """Close every connection."""
        ...


class AsyncSessions(Protocol):
    """Asyncio access to a store's connections."""

    async def run(self, flow: Flow[T]) -> T:
        """Perform a store flow on one connection, shielded from the caller's cancellation."""
        ...

    def run_unshielded(self, flow: Flow[T]) -> Awaitable[T]:
        """Do the same for a task of ours that no caller can cancel, and save the shield."""
        ...

    async def close(self) -> None:
        """Close every connection."""
        ...


class BlockingTransaction(Protocol):
    """One transaction on one connection: ours, or the user's own. Never shared between threads."""

    @property
    def connection(self) -> Any:
        """Return what the application writes its own rows with."""
        ...

    def begin(self) -> None:
        """Start it; raise `MisuseError` for a connection that is already inside one that we could not commit."""
        ...

    def run(self, flow: Flow[T]) -> T:
        """Perform a store flow inside it; `Begin` and `Commit` of the flow are this transaction's own."""
        ...

    def settle(self, flow: Flow[T]) -> T | None:
        """Perform the last store flow inside it, or return None if somebody else ended it: then nothing is written."""
        ...

    def is_same(self) -> bool:
        """Tell whether the transaction that `begin` started is still the current one: nobody ended it meanwhile."""
        ...

    def commit(self) -> None:
        """Commit. Raises `DefiniteFailure` if the store refused, `IndefiniteFailure` for anything else."""
        ...

    def rollback(self) -> None:
        """Undo everything; never raises. A connection that cannot even do that is thrown away."""
        ...


class AsyncTransaction(Protocol):
    """The asyncio twin of `BlockingTransaction`; its commit is shielded from the caller's cancellation."""

    is_shielded: bool
    """Whether everything else is too, which may cost a task each time. A task that no caller can cancel does without;
    should it be cancelled all the same, the transaction is over and nothing of it stays."""

    @property
    def connection(self) -> Any:
        """Return what the application writes its own rows with."""
        ...

    async def begin(self) -> None:
        """Start it; raise `MisuseError` for a connection that is already inside one that we could not commit."""
        ...

    async def run(self, flow: Flow[T]) -> T:
        """Perform a store flow inside it; `Begin` and `Commit` of the flow are this transaction's own."""
        ...

    async def settle(self, flow: Flow[T]) -> T | None:
        """Perform the last store flow inside it, or return None if somebody else ended it: then nothing is written.

        What it stores may be committed with it, in one trip. So `commit` is asked for next, and what that may raise may
        be raised here.
        """
        ...

    async def is_same(self) -> bool:
        """Tell whether the transaction that `begin` started is still the current one: nobody ended it meanwhile."""
        ...

    async def commit(self) -> None:
        """Commit. Raises `DefiniteFailure` if the store refused, `IndefiniteFailure` for anything else."""
        ...

    async def rollback(self) -> None:
        """Undo everything; never raises. A connection that cannot even do that is thrown away."""
        ...


class BlockingLend(Protocol):
    """Performs a store flow inside a transaction that the application began and will end by itself."""

    def __call__(self, target: object, flow: Flow[T]) -> T:
        """Perform it; raise `MisuseError` for a connection on which none is open, or which leads elsewhere."""
        ...


class AsyncLend(Protocol):
    """The asyncio twin of `BlockingLend`."""

    async def __call__(self, target: object, flow: Flow[T]) -> T:
        """Perform it; raise `MisuseError` for a connection on which none is open, or which leads elsewhere."""
        ...


class Listener(Protocol):
    """A direct connection on which the store says which awaited records moved. A hint: polling is the truth."""

    def close(self) -> None:
        """Stop listening."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockingBackend:
    """A store together with blocking access to it."""

    store: Store
    sessions: BlockingSessions
    beat: Callable[[], BlockingSessions]
    """Opens the heartbeat's own connection: renewals must not queue behind the work that they keep alive (F095)."""
    transaction: Callable[[object | None], BlockingTransaction] | None = None
    """Opens a transaction on a connection of ours (None), or joins the one given; None where the store has none."""
    lend: BlockingLend | None = None
    listen: Callable[[Callable[[bytes], None]], Listener] | None = None
    """Calls back with an identity, from a thread of its own; None where the store cannot or must not."""
    lanes: int = 1
    """How many batches it can work on at the same time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AsyncBackend:
    """A store together with asyncio access to it."""

    store: Store
    sessions: AsyncSessions
    beat: Callable[[], BlockingSessions]
    """Blocking even here: the heartbeat runs on a thread, since a busy loop must not end a lease (F051)."""
    transaction: Callable[[object | None], AsyncTransaction] | None = None
    lend: AsyncLend | None = None
    listen: Callable[[Callable[[bytes], None]], Listener] | None = None
    lanes: int = 1
    """How many batches it can have at the same time: to work on, or to begin with when the one before is written."""
    reading_lanes: int = 1
    """How many batches of reads; one that reads on the loop itself gains nothing by more."""
