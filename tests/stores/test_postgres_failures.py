"""Every exception that a driver can raise has a meaning that somebody decided upon."""

import inspect
from collections.abc import Iterator

import asyncpg.exceptions  # type: ignore[import-untyped]
import psycopg
import psycopg_pool
import pytest
from asyncpg.exceptions import _base as asyncpg_base

from nebis.ports.store import DefiniteFailure, IndefiniteFailure, RowLocked, Spoilt, StoreFailure
from nebis.stores.sql.postgres import asyncpg_failures, psycopg_failures
from nebis.stores.sql.postgres.failures import Proof, Stage, Trouble, is_classified, judge, server_trouble


def _subclasses(root: type[BaseException]) -> Iterator[type[BaseException]]:
    yield root
    for child in root.__subclasses__():
        yield from _subclasses(child)


def _psycopg_classes() -> list[type[BaseException]]:
    assert issubclass(psycopg_pool.PoolTimeout, psycopg.Error)
    found = {*_subclasses(psycopg.Error), psycopg.Warning}
    # A private class never leaves the driver; if one did, it would count as unclassified.
    return sorted(
        (kind for kind in found if _belongs(kind, "psycopg") and not kind.__name__.startswith("_")),
        key=lambda kind: kind.__name__,
    )


def _asyncpg_classes() -> list[type[BaseException]]:
    found = {
        kind
        for module in (asyncpg.exceptions, asyncpg_base)
        for kind in vars(module).values()
        if inspect.isclass(kind) and issubclass(kind, BaseException)
    }
    return sorted(found, key=lambda kind: (kind.__name__, kind.__module__))


def _belongs(kind: type, package: str) -> bool:
    return kind.__module__.partition(".")[0] in {package, f"{package}_pool"}


def _sqlstate(kind: type[BaseException]) -> str | None:
    state: str | None = getattr(kind, "sqlstate", None)
    return state


def test_the_walk_finds_the_whole_trees() -> None:
    assert len(_psycopg_classes()) > 250
    assert len(_asyncpg_classes()) > 250


@pytest.mark.parametrize("kind", _psycopg_classes(), ids=lambda kind: kind.__name__)
def test_every_exception_of_psycopg_is_classified(kind: type[BaseException]) -> None:
    state = _sqlstate(kind)

    assert kind in psycopg_failures.CLIENT_PROOFS if state is None else is_classified(state)


@pytest.mark.parametrize("kind", _asyncpg_classes(), ids=lambda kind: kind.__name__)
def test_every_exception_of_asyncpg_is_classified(kind: type[BaseException]) -> None:
    state = _sqlstate(kind)

    assert kind in asyncpg_failures.CLIENT_PROOFS if state is None else is_classified(state)


def _server_says(sqlstate: str, severity: str = "ERROR") -> Trouble:
    return server_trouble(sqlstate=sqlstate, severity=severity, name="Anything", message="words")


@pytest.mark.parametrize(
    ("sqlstate", "alone", "committing"),
    [
        ("23505", Spoilt, Spoilt),
        ("22021", Spoilt, IndefiniteFailure),
        ("54000", Spoilt, IndefiniteFailure),
        ("42P01", DefiniteFailure, IndefiniteFailure),
        ("53200", DefiniteFailure, IndefiniteFailure),
        ("57014", DefiniteFailure, DefiniteFailure),
        ("55P03", RowLocked, RowLocked),
        ("40P01", RowLocked, RowLocked),
        ("40001", RowLocked, RowLocked),
        ("40003", IndefiniteFailure, IndefiniteFailure),
        ("57P01", IndefiniteFailure, IndefiniteFailure),
        ("08006", IndefiniteFailure, IndefiniteFailure),
        ("08P01", IndefiniteFailure, IndefiniteFailure),
        ("ZZ999", IndefiniteFailure, IndefiniteFailure),
    ],
)
def test_a_refusal_of_the_server_is_definite_and_of_a_commit_only_some(
    sqlstate: str, alone: type[StoreFailure], committing: type[StoreFailure]
) -> None:
    trouble = _server_says(sqlstate)

    assert type(judge(trouble, Stage.ALONE)) is alone
    assert type(judge(trouble, Stage.COMMITTING)) is committing


@pytest.mark.parametrize("severity", ["FATAL", "PANIC", None])
def test_what_ends_the_session_proves_nothing_even_with_a_definite_state(severity: str) -> None:
    failure = judge(_server_says("23505", severity), Stage.ALONE)

    assert type(failure) is IndefiniteFailure


@pytest.mark.parametrize("proof", Proof)
def test_nothing_that_happens_before_commit_is_sent_can_be_applied(proof: Proof) -> None:
    failure = judge(Trouble(proof=proof, detail="anything"), Stage.INSIDE)

    assert isinstance(failure, DefiniteFailure)


@pytest.mark.parametrize("describe", [psycopg_failures.describe, asyncpg_failures.describe])
@pytest.mark.parametrize("error", [OSError(), RuntimeError(), TimeoutError(), MemoryError()])
def test_what_no_driver_declares_is_indefinite(describe: object, error: Exception) -> None:
    assert callable(describe)
    trouble = describe(error)

    assert type(judge(trouble, Stage.ALONE)) is IndefiniteFailure


def test_a_state_that_asyncpg_made_up_itself_is_not_the_servers_word() -> None:
    lost = asyncpg.exceptions.ConnectionDoesNotExistError("connection was closed in the middle of operation")
    invented = asyncpg.exceptions.UniqueViolationError("without a severity no server has sent it")

    assert asyncpg_failures.describe(lost).proof is Proof.NONE
    assert asyncpg_failures.describe(invented).proof is Proof.NONE


def test_a_message_that_may_quote_a_row_is_left_out() -> None:
    trouble = server_trouble(
        sqlstate="22P02", severity="ERROR", name="InvalidTextRepresentation", message='invalid input: "4111 1111"'
    )

    assert "4111" not in trouble.detail
    assert "22P02" in trouble.detail
