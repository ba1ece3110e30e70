"""What the exceptions of asyncpg say."""

from __future__ import annotations

import asyncpg  # type: ignore[import-untyped]  # The driver ships no types.
from asyncpg.exceptions import _base as client  # type: ignore[import-untyped]

from nebis.stores.sql.postgres.failures import Proof, Trouble, server_trouble

# Exceptions that asyncpg makes up itself. Exact classes: a new one must be decided upon, not inherited, and a test
# compares this table with the driver.
CLIENT_PROOFS: dict[type[BaseException], Proof] = {
    client.PostgresError: Proof.NONE,
    client.FatalPostgresError: Proof.NONE,
    client.UnknownPostgresError: Proof.NONE,
    client.InterfaceError: Proof.NONE,
    client.ClientConfigurationError: Proof.UNSENT,
    # Both are raised while values are rendered, before the message that carries them is sent. The second one is also
    # the server's, but then it has a severity.
    client.DataError: Proof.UNSENT,
    asyncpg.DataError: Proof.UNSENT,
    client.UnsupportedClientFeatureError: Proof.NONE,
    client.UnsupportedServerFeatureError: Proof.NONE,
    client.InterfaceWarning: Proof.NONE,
    client.InternalClientError: Proof.NONE,
    client.ProtocolError: Proof.NONE,
    client.TargetServerAttributeNotMatched: Proof.UNSENT,
    # Raised while an answer is read: the statement was executed.
    client.OutdatedSchemaCacheError: Proof.NONE,
}


def describe(error: Exception) -> Trouble:
    """Describe what was raised while a statement was being executed."""
    # asyncpg raises some classes with a SQLSTATE itself, when it lost the server; those carry no severity.
    if isinstance(error, asyncpg.PostgresError) and error.sqlstate is not None and error.severity_en is not None:
        return server_trouble(
            sqlstate=error.sqlstate,
            severity=error.severity_en,
            name=type(error).__name__,
            message=error.message,
            constraint=error.constraint_name,
        )
    proof = CLIENT_PROOFS.get(type(error), Proof.NONE)
    return Trouble(proof=proof, detail=f"asyncpg lost the conversation with the server ({type(error).__name__})")
