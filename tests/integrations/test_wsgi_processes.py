"""gunicorn in processes of its own, forking its workers: clients that hang up, and a server that is told to stop."""

import json
import random
import signal
import socket
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest

from nebis.testing.http_conformance.client import new_key
from tests.integrations.slow_shop import LEASE_SECONDS, WORK_SECONDS
from tests.integrations.test_asgi_processes import NO_LINGER, PATIENCE_SECONDS, Shop, settled

# The application is imported once and then forked, which is the harder case for a store and the faster one for a test.
APP = ["-m", "gunicorn", "tests.integrations.slow_flask_shop:app", "--preload", "--no-control-socket"]
THREADED = [*APP, "-k", "gthread", "--workers", "2", "--threads", "16"]
SYNC = [*APP, "-k", "sync", "--workers", "3"]
SERVERS = pytest.mark.parametrize("command", [THREADED, SYNC], ids=["gthread", "sync"])


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(f"sqlite:///{tmp_path / 'shop.db'}", tmp_path)


@SERVERS
def test_a_client_that_hangs_up_at_any_moment_has_one_effect(shop: Shop, command: list[str]) -> None:
    """F074, A2, F094: workers are forked from one process, and each opens the store by itself."""
    seed = random.SystemRandom().randrange(2**32)
    moments = random.Random(seed)
    keys = [new_key() for _ in range(12)]
    with shop.served(command) as (client, _process):
        assert settled(client, warm := new_key()).status == 201
        for key in keys:
            with client.connect() as connection:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)
                body = json.dumps({"tag": key}).encode()
                connection.sendall(client.request("POST", "/payments", body, key=key))
                # A moment of real time is what is tested: where in the life of the request the client hangs up.
                time.sleep(moments.random() * 1.2 * WORK_SECONDS)

        replies = [settled(client, key) for key in keys]

    assert [reply.status for reply in replies] == [201] * len(keys), f"seed {seed}"
    assert shop.effects() == Counter([warm, *keys]), f"seed {seed}"


@SERVERS
def test_no_key_is_stuck_after_a_server_is_told_to_stop_under_load(shop: Shop, command: list[str]) -> None:
    """F077, F078: attempts end before their workers do, also those whose clients are gone."""
    keys = [new_key() for _ in range(12)]
    with shop.served(command) as (client, process), ExitStack() as waiting:
        assert settled(client, warm := new_key()).status == 201
        for number, key in enumerate(keys):
            connection = client.connect()
            connection.sendall(client.request("POST", "/payments", json.dumps({"tag": key}).encode(), key=key))
            if number % 2:
                connection.close()
            else:
                waiting.callback(connection.close)
        time.sleep(WORK_SECONDS / 2)  # In the middle of what they do, which is a moment of real time.
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE_SECONDS)
    before = shop.effects()

    with shop.served(command) as (client, _process):
        assert settled(client, warm_again := new_key()).status == 201
        began = time.monotonic()
        replies = [settled(client, key) for key in keys]
        took_seconds = time.monotonic() - began

    assert sum(before.values()) > 1, "the server was stopped before anything happened"
    assert [reply.status for reply in replies] == [201] * len(keys)
    assert shop.effects() == Counter([warm, warm_again, *keys])
    assert took_seconds < LEASE_SECONDS + len(keys) * 4 * WORK_SECONDS
