"""Fixtures that every test may ask for: real servers, started once per worker and only when asked for."""

from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests.engines.binaries import DEBIAN_15, find_binaries, find_binaries_of_15
from tests.engines.kafka import KafkaCluster
from tests.engines.nats import NatsServer
from tests.engines.postgres import PostgresServer
from tests.engines.rabbitmq import RabbitServer
from tests.engines.valkey import ValkeyServer

# No deadline: it would measure the machine, not the code. The blob reproduces a failure without the example database.
settings.register_profile("nebis", deadline=None, print_blob=True)
settings.load_profile("nebis")


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """One server per worker: sharing one among workers would save a second and cost a lock file."""
    with PostgresServer(find_binaries()) as server:
        yield server


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    """The URL of an empty database that only this test uses."""
    url = postgres_server.create_database()
    yield url
    postgres_server.drop_database(url)


@pytest.fixture(scope="session")
def postgres15_server() -> Iterator[PostgresServer]:
    """The oldest supported version, where present: no wheel carries it."""
    binaries = find_binaries_of_15()
    if binaries is None:
        pytest.skip(f"PostgreSQL 15 is not in {DEBIAN_15} (Debian 12: apt install postgresql)")
    with PostgresServer(binaries) as server:
        yield server


@pytest.fixture(scope="session")
def nats_server() -> Iterator[NatsServer]:
    """A broker on which each test has streams of its own; a test that ends it starts it again."""
    with NatsServer() as server:
        yield server


@pytest.fixture(scope="session")
def valkey_server() -> Iterator[ValkeyServer]:
    """The same for Valkey Streams."""
    with ValkeyServer() as server:
        yield server


@pytest.fixture(scope="session")
def rabbit_server() -> Iterator[RabbitServer]:
    """The same for RabbitMQ, which takes some seconds to start."""
    with RabbitServer() as server:
        yield server


@pytest.fixture(scope="session")
def kafka_cluster() -> Iterator[KafkaCluster]:
    """The same for Kafka, inside this process."""
    with KafkaCluster() as cluster:
        yield cluster
