"""Deadlines: nothing begins for which nobody waits any more (P15, C7)."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from nebis.testing.http_conformance.application import GATE_SECONDS
from nebis.testing.http_conformance.client import new_key
from nebis.testing.http_conformance.service import Service

_PASSED = [("Request-Deadline", "Sun, 06 Nov 1994 08:49:37 GMT"), ("Request-Timeout", "0")]
_MALFORMED = [("Request-Deadline", "soon"), ("Request-Timeout", "-1")]
_AHEAD = [("Request-Deadline", "2059-11-06T08:49:37Z"), ("Request-Timeout", "60")]


class TestDeadlines:
    @pytest.mark.parametrize("header", _PASSED, ids=str)
    def test_after_its_deadline_a_request_is_refused_and_leaves_no_trace(
        self, service: Service, header: tuple[str, str]
    ) -> None:
        key = new_key()

        late = service.client().post("/local", {"tag": "late"}, key=key, headers=[header])
        again = service.client().post("/local", {"tag": key}, key=key)

        assert (late.status, late.code) == (504, "deadline-passed")
        assert (again.status, again.is_replay) == (201, False)

    @pytest.mark.parametrize("header", _MALFORMED, ids=str)
    def test_a_deadline_that_cannot_be_read_is_refused(self, service: Service, header: tuple[str, str]) -> None:
        key = new_key()

        reply = service.client().post("/local", {"tag": key}, key=key, headers=[header])

        assert (reply.status, reply.code) == (400, "deadline-malformed")
        assert service.scenarios.runs[key] == 0

    @pytest.mark.parametrize("header", _AHEAD, ids=str)
    def test_before_its_deadline_a_request_runs(self, service: Service, header: tuple[str, str]) -> None:
        key = new_key()

        assert service.client().post("/local", {"tag": key}, key=key, headers=[header]).status == 201

    def test_nobody_waits_for_a_twin_beyond_the_deadline(self, service: Service) -> None:
        key = new_key()
        command = {"tag": key, "gate": True}
        with ThreadPoolExecutor(1) as threads:
            first = threads.submit(service.client().post, "/waiting", command, key=key)
            assert service.scenarios.started(key).wait(GATE_SECONDS)

            began = time.monotonic()
            twin = service.client().post("/waiting", command, key=key, headers=[("Request-Timeout", "200ms")])
            took_seconds = time.monotonic() - began
            service.scenarios.gate(key).set()

            assert (twin.status, twin.code) == (409, "in-flight")
            assert took_seconds < GATE_SECONDS / 2
            assert first.result().status == 201
        assert service.scenarios.runs[key] == 1
