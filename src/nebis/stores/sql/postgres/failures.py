"""What an error of PostgreSQL proves: that nothing changed, that somebody holds a lock, or nothing at all.

Drivers only describe an error (`Trouble`); what it means is decided here, once for all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from nebis.ports.store import DefiniteFailure, IndefiniteFailure, RowLocked, Spoilt, StoreFailure


class Unreachable(DefiniteFailure):
    """A connection that could not be had, so that nothing was sent."""

    def __init__(self, detail: str, *, is_misconfigured: bool = False) -> None:
        self.is_misconfigured = is_misconfigured
        super().__init__(detail)


def refused_admission(failure: StoreFailure) -> Unreachable:
    """Say what a failure on a new connection means to the caller, of whose flow nothing was sent yet."""
    return failure if isinstance(failure, Unreachable) else Unreachable(failure.detail)


class Stage(Enum):
    """How far a flow had come when something went wrong."""

    ALONE = auto()
    """In a statement that is a transaction of its own: the server commits it without being asked again."""
    INSIDE = auto()
    """Between BEGIN and COMMIT. Whatever happens here, nothing is ever committed."""
    COMMITTING = auto()


class Proof(Enum):
    """What a driver knows about an error."""

    REFUSED = auto()
    """The server answered with an error, rolled back, and waits for the next statement."""
    LOCKED = auto()
    """Refused, because somebody holds a lock."""
    UNSENT = auto()
    """Nothing left this process."""
    NONE = auto()
    """The connection broke, or nobody ever said what this error means."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """An error as its driver describes it."""

    proof: Proof
    detail: str
    sqlstate: str | None = None


# SQLSTATE classes in which an ERROR says that the server understood, refused and rolled back. Class 08 is missing on
# purpose: it is what poolers and drivers say when they lost the server.
_REFUSING_CLASSES = (
    frozenset({"03", "09", "0A", "0B", "0F", "0L", "0P", "0Z", "10", "20", "21", "22", "23", "24", "25", "26", "27"})
    | {"28", "2B", "2D", "2F", "34", "38", "39", "3B", "3D", "3F", "40", "42", "44", "53", "54", "55", "57", "58", "72"}
    | {"F0", "HV", "P0", "XX"}
)
_UNPROVING_CLASSES = frozenset(["00", "01", "02", "08"])

# A cancelled statement is refused like any other; every other member of class 57 announces the end of the connection.
_UNPROVING_STATES = frozenset(["40003", "57000", "57P01", "57P02", "57P03", "57P04", "57P05"])

_LOCKED_STATES = frozenset(["40001", "40P01", "55P03"])

# What a server may answer to COMMIT itself: a deferred constraint, a serialization conflict, a cancellation. Anything
# else comes so late that nobody should bet on the order of its parts.
_REFUSING_COMMIT_CLASSES = frozenset(["23", "40"])
_REFUSING_COMMIT_STATES = frozenset(["55P03", "57014"])

# Data that does not fit, a constraint, a limit of the server: one row of several is to blame.
_CLASSES_ABOUT_A_ROW = frozenset(["21", "22", "23", "54"])

# In these classes PostgreSQL repeats the offending value, which may be somebody's payload.
_CLASSES_THAT_QUOTE_DATA = frozenset(["21", "22", "23", "P0"])


def is_classified(sqlstate: str) -> bool:
    """Say whether somebody decided what this state means, rather than leaving it to the cautious default."""
    return sqlstate[:2] in _REFUSING_CLASSES | _UNPROVING_CLASSES


def server_trouble(
    *, sqlstate: str, severity: str | None, name: str, message: str | None, constraint: str | None = None
) -> Trouble:
    """Describe an error that a server sent."""
    quotes_data = sqlstate[:2] in _CLASSES_THAT_QUOTE_DATA
    detail = f"PostgreSQL says {name} ({sqlstate})"
    if constraint:
        detail += f" on {constraint}"
    elif message and not quotes_data:
        detail += f": {message.splitlines()[0]}"
    return Trouble(proof=_proof(sqlstate, severity), detail=detail, sqlstate=sqlstate)


def _proof(sqlstate: str, severity: str | None) -> Proof:
    # FATAL ends the session and PANIC the server; either may come after the commit that it seems to refuse.
    if severity != "ERROR" or sqlstate in _UNPROVING_STATES or sqlstate[:2] not in _REFUSING_CLASSES:
        return Proof.NONE
    return Proof.LOCKED if sqlstate in _LOCKED_STATES else Proof.REFUSED


def judge(trouble: Trouble, stage: Stage) -> StoreFailure:
    """Turn a trouble into what its caller may rely on. Whatever is not proved is indefinite."""
    match trouble.proof:
        case Proof.UNSENT:
            return DefiniteFailure(trouble.detail)
        case Proof.LOCKED:
            return RowLocked(trouble.detail)
        case Proof.REFUSED if stage is not Stage.COMMITTING or _may_refuse_commit(trouble.sqlstate):
            is_about_a_row = (trouble.sqlstate or "")[:2] in _CLASSES_ABOUT_A_ROW
            return (Spoilt if is_about_a_row else DefiniteFailure)(trouble.detail)
        case _ if stage is Stage.INSIDE:
            # COMMIT was never sent, so the server can only roll back, however the connection ended.
            return DefiniteFailure(trouble.detail)
        case _:
            return IndefiniteFailure(trouble.detail)


def _may_refuse_commit(sqlstate: str | None) -> bool:
    return sqlstate is not None and (sqlstate[:2] in _REFUSING_COMMIT_CLASSES or sqlstate in _REFUSING_COMMIT_STATES)


def leaves_connection_usable(trouble: Trouble) -> bool:
    """Say whether the connection still stands at a known point of the conversation (F023)."""
    return trouble.proof is not Proof.NONE


def is_lost_replication(*, severity: str | None, sqlstate: str | None) -> bool:
    """Recognise the warning with which a server gives up waiting for its synchronous standby (F017).

    It confirms the commit all the same, and a failover then loses it. The text is translated, so the state decides.
    """
    return severity == "WARNING" and sqlstate in {"01000", "57P01"}
