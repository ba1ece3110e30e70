"""Wrong configurations: each gets one clear message, and several get all of them at once."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from nebis import AsyncNebis, Attempt, ConfigError, Declared, FingerprintRule, FingerprintVersions, Local, Nebis
from nebis.errors import NebisError
from tests.engine.faces import AsyncFace, BlockingFace, Face
from tests.engines.binaries import find_binaries
from tests.engines.postgres import PostgresServer


@dataclass
class Order:
    sku: str


def pay(attempt: Attempt, command: str) -> int:
    return len(command)


def without_annotations(attempt, command):  # type: ignore[no-untyped-def]
    return command


def without_parameters() -> int:
    return 1


async def coroutine(command: str) -> int:
    return len(command)


def faults_of(declare: Callable[[Nebis], object]) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as told:
        declare(Nebis("memory://"))
    assert all(fault in str(told.value) for fault in told.value.faults)
    return told.value.faults


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "effects=Local"),
        ({"effects": "local"}, "effects=Local"),
        ({"lease": timedelta(seconds=29)}, "at least three renewals"),
        ({"effect_timeout": timedelta(seconds=30)}, "below the lease"),
        ({"renewal": timedelta(0)}, "between 1 ms and ten years"),
        ({"lease": timedelta.max, "retention": timedelta(days=1)}, "wrong value"),
        ({"lease": None}, "wrong value"),
        ({"lease": 30}, "wrong value"),
        ({"leese": timedelta(seconds=30)}, "leese"),
        ({"retention": timedelta(minutes=4)}, "could expire"),
        ({"waiters_limit": 0}, "waiters_limit must be at least 1"),
    ],
)
def test_wrong_policy_is_one_clear_message(options: dict[str, Any], says: str) -> None:
    """F058: nothing of it waits for the first request."""
    chosen = options if not options or "effects" in options else {"effects": Local, **options}

    [fault] = faults_of(lambda nebis: nebis.operation("pay", **chosen)(pay))

    assert fault.startswith("operation 'pay': ")
    assert says in fault


def test_two_operations_of_one_name_are_refused() -> None:
    def twice(nebis: Nebis) -> None:
        nebis.operation("pay", effects=Local)(pay)
        nebis.operation("pay", effects=Local)(pay)

    [fault] = faults_of(twice)

    assert "declared twice" in fault


@pytest.mark.parametrize("name", ["", "two words", "x" * 101, "tab\t"])
def test_name_that_cannot_be_stored_is_refused(name: str) -> None:
    [fault] = faults_of(lambda nebis: nebis.operation(name, effects=Local)(pay))

    assert "visible characters" in fault


def test_handler_without_annotations_is_refused_with_both_places() -> None:
    first, second = faults_of(lambda nebis: nebis.operation("pay", effects=Local)(without_annotations))

    assert "command" in first
    assert "return" in second


def test_handler_of_the_wrong_kind_is_sent_to_the_other_facade() -> None:
    [fault] = faults_of(lambda nebis: nebis.operation("pay", effects=Local)(coroutine))
    with pytest.raises(ConfigError) as told:
        AsyncNebis("memory://").operation("pay", effects=Local)(pay)  # type: ignore[arg-type]  # The point.

    assert "AsyncNebis" in fault
    [other] = told.value.faults
    assert "declare it on Nebis" in other


def test_fingerprint_rule_with_a_misspelt_field_is_refused() -> None:
    def place(command: Order) -> int:
        return len(command.sku)

    rules = FingerprintVersions(newest=FingerprintRule(exclude=("skuu",)))

    [fault] = faults_of(lambda nebis: nebis.operation("place", effects=Local, fingerprint=rules)(place))

    assert "skuu" in fault


def test_all_faults_are_reported_at_once() -> None:
    faults = faults_of(
        lambda nebis: nebis.operation(
            "", effects=Declared, lease=timedelta(seconds=1), waiters_limit=0, single_transaction=True
        )(without_annotations)
    )

    assert len(faults) >= 6


def test_handler_that_takes_nothing_is_refused() -> None:
    faults = faults_of(lambda nebis: nebis.operation("pay", effects=Local)(without_parameters))  # type: ignore[arg-type]  # The point.

    assert any("must take (command) or (attempt, command)" in fault for fault in faults)


@pytest.fixture(params=[BlockingFace, AsyncFace])
def opening(request: pytest.FixtureRequest) -> Iterator[Callable[[str], NebisError]]:
    """Opens a store that cannot be opened and returns what is told."""
    faces: list[Face] = []

    def opened(url: str) -> NebisError:
        faces.append(request.param(url))
        with pytest.raises(NebisError) as told:
            faces[-1].open()
        return told.value

    yield opened
    for made in faces:
        made.close()


def only_fault(error: NebisError) -> str:
    assert isinstance(error, ConfigError)
    [fault] = error.faults
    return fault


def test_unknown_scheme_lists_the_known_ones(opening: Callable[[str], NebisError]) -> None:
    fault = only_fault(opening("mysql://root:hunter2@localhost/shop"))

    assert "mysql://" in fault
    assert "postgresql://" in fault
    assert "hunter2" not in fault


def test_location_that_is_no_url_says_what_a_url_is(opening: Callable[[str], NebisError]) -> None:
    assert "URL" in only_fault(opening("shop.db"))


def test_directory_instead_of_a_file_is_refused(opening: Callable[[str], NebisError], tmp_path: Path) -> None:
    assert "directory" in only_fault(opening(f"sqlite:///{tmp_path}"))


def test_file_in_a_directory_that_does_not_exist_is_refused(
    opening: Callable[[str], NebisError], tmp_path: Path
) -> None:
    assert str(tmp_path) in only_fault(opening(f"sqlite:///{tmp_path}/missing/nebis.db"))


def test_file_that_is_no_database_is_refused(opening: Callable[[str], NebisError], tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("This is a text file, long enough to be looked at as a database header would be. " * 20)

    assert "not a SQLite database" in only_fault(opening(f"sqlite:///{path}"))


@pytest.fixture(scope="module")
def guarded_server() -> Iterator[PostgresServer]:
    """A server that asks for a password."""
    with PostgresServer(find_binaries(), password="correct horse") as server:
        yield server


@pytest.mark.parametrize(
    ("make", "scheme"),
    [(BlockingFace, "postgresql"), (AsyncFace, "postgresql"), (AsyncFace, "postgresql+asyncpg")],
)
def test_wrong_password_is_one_clear_message(
    make: Callable[[str], Face], guarded_server: PostgresServer, scheme: str
) -> None:
    url = guarded_server.url().replace("correct%20horse", "battery%20staple").replace("postgresql", scheme, 1)
    face = make(url)

    with pytest.raises(NebisError) as told:
        face.open()
    face.close()

    assert "password" in only_fault(told.value)
    assert "battery" not in str(told.value)


def test_asyncpg_is_refused_for_blocking_code() -> None:
    with pytest.raises(ConfigError, match="blocking"):
        Nebis("postgresql+asyncpg://localhost/shop").open()


def test_server_that_is_not_there_is_told_with_its_place_and_without_its_password(
    opening: Callable[[str], NebisError],
) -> None:
    error = opening("postgresql://role:hunter2@127.0.0.1:1/shop")

    assert "127.0.0.1:1" in str(error)
    assert "hunter2" not in str(error)


@pytest.mark.parametrize(
    ("driver", "url", "extra"),
    [
        ("psycopg", "postgresql://localhost/shop", "nebis[postgres]"),
        ("asyncpg", "postgresql+asyncpg://localhost/shop", "nebis[asyncpg]"),
    ],
)
def test_missing_driver_says_what_to_install(driver: str, url: str, extra: str) -> None:
    script = f"""
import sys, asyncio
sys.modules[{driver!r}] = None
from nebis import AsyncNebis, ConfigError
try:
    asyncio.run(AsyncNebis({url!r}).open())
except ConfigError as error:
    [fault] = error.faults
    print(fault)
"""
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout

    assert extra in told
