"""A Django project in a process of its own: clients that hang up, and a server that is told to stop."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nebis.testing.http_conformance import Client, Reply
from nebis.testing.http_conformance.client import new_key
from tests.integrations.slow_shop import EFFECTS, STORE, WORK_SECONDS
from tests.tidy.repository import ROOT

PATIENCE_SECONDS = 20.0
NO_LINGER = b"\x01\x00\x00\x00\x00\x00\x00\x00"


@contextmanager
def served(directory: Path) -> Iterator[tuple[Client, "subprocess.Popen[bytes]"]]:
    """Serve while the block runs, on a socket of our own, so that no client comes before there is one."""
    environment = {
        **os.environ,
        STORE: f"sqlite:///{directory / 'shop.db'}",
        EFFECTS: str(directory / "effects"),
        "PYTHONPATH": str(ROOT),
    }
    app = "tests.integrations.django_slow_shop:app"
    with socket.create_server(("127.0.0.1", 0)) as listening:
        number = str(listening.fileno())
        process = subprocess.Popen(
            [sys.executable, "-m", "uvicorn", app, "--log-level", "critical", "--fd", number],
            env=environment,
            pass_fds=[listening.fileno()],
        )
        try:
            yield Client(listening.getsockname()), process
        finally:
            process.terminate()
            process.wait(PATIENCE_SECONDS)


def settled(client: Client, where: str, key: str) -> Reply:
    """Retry with the same key for as long as the first request is in flight."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        reply = client.post(where, {"tag": key}, key=key)
        if reply.status != 409 or reply.code != "in-flight" or time.monotonic() > deadline:
            return reply
        time.sleep(0.02)


@pytest.mark.parametrize("where", ["/plain", "/async"])
def test_what_a_client_that_is_gone_has_asked_for_ends_before_the_server_does(where: str, tmp_path: Path) -> None:
    """F074, F077, A5: Django cancels an async view with its client, and knows nothing of shutdown."""
    keys = [new_key() for _ in range(6)]
    with served(tmp_path) as (client, process):
        assert settled(client, where, warm := new_key()).status == 201
        for key in keys:
            with client.connect() as connection:
                body = json.dumps({"tag": key}).encode()
                connection.sendall(client.request("POST", where, body, key=key))
                # A moment of real time is what is tested: the request has begun, and is not over.
                time.sleep(WORK_SECONDS / 3)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE_SECONDS)

    with served(tmp_path) as (client, _process):
        replies = [settled(client, where, key) for key in keys]

    assert [reply.status for reply in replies] == [201] * len(keys)
    assert Counter((tmp_path / "effects").read_text().split()) == Counter([warm, *keys])
    assert all(reply.is_replay for reply in replies[:-1])
