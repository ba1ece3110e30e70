"""Every broker that messages are published to."""

import uuid

import pytest

from tests.messaging.publishers.benches import Bench, KafkaBench, NatsBench, RabbitBench, ValkeyBench

BENCHES = {
    "nats": (NatsBench, "nats_server"),
    "valkey": (ValkeyBench, "valkey_server"),
    "rabbitmq": (RabbitBench, "rabbit_server"),
    "kafka": (KafkaBench, "kafka_cluster"),
}


@pytest.fixture(params=list(BENCHES))
def bench(request: pytest.FixtureRequest) -> Bench:
    """One broker after the other."""
    kind, fixture = BENCHES[request.param]
    made: Bench = kind(request.getfixturevalue(fixture))
    return made


@pytest.fixture
def topic() -> str:
    """A topic that no other test uses."""
    return f"orders.{uuid.uuid4().hex[:12]}"
