"""Clients that hang up: the work goes on, happens once, and the retry finds it (F074, F093)."""

from __future__ import annotations

import json
import random
import socket
import time

from nebis.testing.http_conformance.client import Reply, new_key
from nebis.testing.http_conformance.service import Service

LONGEST_MOMENT_SECONDS = 0.03
PATIENCE_SECONDS = 20.0


class TestDisconnects:
    def test_a_client_that_hangs_up_while_its_request_runs_finds_the_answer_later(self, service: Service) -> None:
        key, client = new_key(), service.client()
        command = {"tag": key, "gate": True}
        with client.connect() as connection:
            connection.sendall(client.request("POST", "/opaque", json.dumps(command).encode(), key=key))
            assert service.scenarios.started(key).wait(PATIENCE_SECONDS)
        service.scenarios.gate(key).set()

        reply = _settled(service, "/opaque", command, key)

        assert (reply.status, reply.is_replay) == (201, True)
        assert service.scenarios.runs[key] == 1

    def test_a_client_that_hangs_up_at_any_moment_has_one_effect(self, service: Service) -> None:
        seed = random.SystemRandom().randrange(2**32)
        moments = random.Random(seed)  # noqa: S311 - moments, not secrets.
        for number in range(service.sizes.disconnects):
            path = ("/local", "/opaque")[number % 2]
            key, client = new_key(), service.client()
            command = {"tag": key}
            with client.connect() as connection:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
                connection.sendall(client.request("POST", path, json.dumps(command).encode(), key=key))
                # A moment of real time is what is tested: where in the life of the request the client hangs up.
                time.sleep(moments.random() * LONGEST_MOMENT_SECONDS)

            reply = _settled(service, path, command, key)

            assert reply.status == 201, f"seed {seed}, number {number}: {reply}"
            assert service.scenarios.runs[key] == 1, f"seed {seed}, number {number}"


def _settled(service: Service, path: str, command: object, key: str) -> Reply:
    """Retry as a client should: while it is told that the first is in flight, with the same key."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        reply = service.client().post(path, command, key=key)
        if reply.status != 409 or reply.code != "in-flight" or time.monotonic() > deadline:
            return reply
        time.sleep(0.01)  # As Retry-After asks, only sooner.
