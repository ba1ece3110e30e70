"""Servers in processes of their own: one that cancels when a client hangs up, and one that is told to stop."""

import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nebis.testing.http_conformance import Client, Reply
from nebis.testing.http_conformance.client import new_key
from tests.integrations.slow_shop import EFFECTS, LEASE_SECONDS, STORE, WORK_SECONDS
from tests.tidy.repository import ROOT

PATIENCE_SECONDS = 20.0
APP = "tests.integrations.slow_shop:app"
UVICORN = ["-m", "uvicorn", APP, "--log-level", "critical", "--fd"]
# Cancels the application as soon as its client hangs up.
GUNICORN = ["-m", "gunicorn", APP, "-k", "asgi", "--no-control-socket", "--asgi-disconnect-grace-period", "0"]
NO_LINGER = b"\x01\x00\x00\x00\x00\x00\x00\x00"


class Shop:
    """The slow shop, its store and its effects, whichever process serves it."""

    def __init__(self, url: str, directory: Path) -> None:
        self._effects = directory / "effects"
        self._effects.touch()
        self._environment = {
            **os.environ,
            STORE: url,
            EFFECTS: str(self._effects),
            "PYTHONPATH": str(ROOT),
        }

    def effects(self) -> Counter[str]:
        return Counter(self._effects.read_text().split())

    @contextmanager
    def served(self, command: list[str]) -> Iterator[tuple[Client, "subprocess.Popen[bytes]"]]:
        """Serve while the block runs, on a socket of our own, so that no client comes before there is one."""
        with socket.create_server(("127.0.0.1", 0)) as listening:
            where = [str(listening.fileno())] if command is UVICORN else ["--bind", f"fd://{listening.fileno()}"]
            process = subprocess.Popen(
                [sys.executable, *command, *where],
                env=self._environment,
                pass_fds=[listening.fileno()],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            try:
                yield Client(listening.getsockname()[:2]), process
            finally:
                process.terminate()
                process.wait(PATIENCE_SECONDS)


@pytest.fixture
def shop(postgres_url: str, tmp_path: Path) -> Shop:
    return Shop(postgres_url, tmp_path)


def settled(client: Client, key: str) -> Reply:
    """Retry with the same key for as long as the first request is in flight."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        reply = client.post("/payments", {"tag": key}, key=key)
        if reply.status != 409 or reply.code != "in-flight" or time.monotonic() > deadline:
            return reply
        time.sleep(0.02)


@pytest.mark.parametrize("command", [UVICORN, GUNICORN], ids=["uvicorn", "gunicorn, which cancels"])
def test_a_client_that_hangs_up_at_any_moment_has_one_effect(shop: Shop, command: list[str]) -> None:
    """F074, A2: the request outlives its client on servers that let it run and on servers that cancel it."""
    seed = random.SystemRandom().randrange(2**32)
    moments = random.Random(seed)
    keys = [new_key() for _ in range(50)]
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


def test_no_key_is_stuck_after_a_server_is_told_to_stop_under_load(shop: Shop) -> None:
    """F077, F078, A5: attempts end before the process does, also those whose clients are gone."""
    keys = [new_key() for _ in range(30)]
    with shop.served(UVICORN) as (client, process):
        assert settled(client, warm := new_key()).status == 201

        def call(number: int) -> None:
            try:
                with client.connect() as connection:
                    body = json.dumps({"tag": keys[number]}).encode()
                    connection.sendall(client.request("POST", "/payments", body, key=keys[number]))
                    if number % 2:
                        connection.recv(1)
            except OSError:
                pass

        threads = [threading.Thread(target=call, args=[number]) for number in range(len(keys))]
        for number, thread in enumerate(threads):
            thread.start()
            if number == 2 * len(keys) // 3:
                time.sleep(WORK_SECONDS / 2)  # In the middle of what they do, which is a moment of real time.
                process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE_SECONDS)
    # Only now is our socket closed, so that whoever came too late to be accepted is hung up on.
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    before = shop.effects()

    with shop.served(UVICORN) as (client, _process):
        began = time.monotonic()
        replies = [settled(client, key) for key in keys]
        took_seconds = time.monotonic() - began

    assert sum(before.values()) > 1, "the server was stopped before anything happened"
    assert [reply.status for reply in replies] == [201] * len(keys)
    assert shop.effects() == Counter([warm, *keys])
    assert took_seconds < LEASE_SECONDS + len(keys) * 4 * WORK_SECONDS
