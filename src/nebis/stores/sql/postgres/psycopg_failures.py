"""What the exceptions of psycopg say."""

from __future__ import annotations

import psycopg
import psycopg_pool
from psycopg import errors
from psycopg.transaction import OutOfOrderTransactionNesting

from nebis.stores.sql.postgres.failures import Proof, Trouble, server_trouble

# Exceptions that psycopg makes up itself. Exact classes: a new one must be decided upon, not inherited, and a test
# compares this table with the driver.
CLIENT_PROOFS: dict[type[BaseException], Proof] = {
    psycopg.Warning: Proof.NONE,
    psycopg.Error: Proof.NONE,
    psycopg.DatabaseError: Proof.NONE,
    psycopg.InterfaceError: Proof.NONE,
    psycopg.OperationalError: Proof.NONE,
    psycopg.IntegrityError: Proof.NONE,
    psycopg.InternalError: Proof.NONE,
    # These three are raised while values are rendered; `Unreadable` keeps those of reading an answer apart.
    psycopg.DataError: Proof.UNSENT,
    psycopg.ProgrammingError: Proof.UNSENT,
    psycopg.NotSupportedError: Proof.UNSENT,
    errors.ConnectionTimeout: Proof.NONE,
    errors.CancellationTimeout: Proof.NONE,
    errors.PipelineAborted: Proof.NONE,
    OutOfOrderTransactionNesting: Proof.NONE,
    psycopg_pool.PoolClosed: Proof.UNSENT,
    psycopg_pool.PoolTimeout: Proof.UNSENT,
    psycopg_pool.TooManyRequests: Proof.UNSENT,
}


class Unreadable(Exception):
    """An answer that arrived and could not be decoded: the statement was executed."""


def describe(error: Exception) -> Trouble:
    """Describe what was raised while a statement was being executed."""
    if isinstance(error, psycopg.Error) and error.sqlstate is not None:
        return server_trouble(
            sqlstate=error.sqlstate,
            # Not the translated severity, whose words depend on the server's language.
            severity=error.diag.severity_nonlocalized,
            name=type(error).__name__,
            message=error.diag.message_primary,
            constraint=error.diag.constraint_name,
        )
    proof = CLIENT_PROOFS.get(type(error), Proof.NONE)
    return Trouble(proof=proof, detail=f"psycopg lost the conversation with the server ({type(error).__name__})")
