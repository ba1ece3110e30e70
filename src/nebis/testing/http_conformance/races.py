"""Twins: one runs, the others are told to come back, wait, or are given the place to look (C3)."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from itertools import islice

import pytest

from nebis.testing.http_conformance.client import Reply, new_key
from nebis.testing.http_conformance.service import Service


class TestRaces:
    def test_of_simultaneous_twins_one_runs_and_the_others_are_told_to_come_back(self, service: Service) -> None:
        key = new_key()
        with ThreadPoolExecutor(service.sizes.twins) as threads:
            running = [threads.submit(self._gated, service, "/local", key) for _ in range(service.sizes.twins)]

            early = _ended(running, service.sizes.twins - 1)
            service.scenarios.gate(key).set()
            replies = [future.result() for future in running]

        assert {(reply.status, reply.code) for reply in early} == {(409, "in-flight")}
        assert all(int(str(reply.header("retry-after"))) >= 1 for reply in early)
        assert len({reply.json()["operation_id"] for reply in early}) == 1
        assert sorted(reply.status for reply in replies) == [201] + [409] * (service.sizes.twins - 1)
        assert service.scenarios.runs[key] == 1

    def test_waiting_twins_get_the_bytes_of_the_one_that_ran(self, service: Service) -> None:
        key = new_key()
        with ThreadPoolExecutor(service.sizes.twins) as threads:
            running = [threads.submit(self._gated, service, "/waiting", key) for _ in range(service.sizes.twins)]

            assert service.scenarios.started(key).wait(20)
            service.scenarios.gate(key).set()
            replies = [future.result() for future in running]

        assert {reply.status for reply in replies} == {201}
        assert len({reply.body for reply in replies}) == 1
        assert sum(not reply.is_replay for reply in replies) == 1
        assert service.scenarios.runs[key] == 1

    def test_an_accepting_route_tells_where_to_look(self, service: Service) -> None:
        """C3, R3."""
        key, client = new_key(), service.client()
        with ThreadPoolExecutor(1) as threads:
            first = threads.submit(self._gated, service, "/accepting", key)
            assert service.scenarios.started(key).wait(20)

            twin = self._gated(service, "/accepting", key)
            meanwhile = client.get(str(twin.header("location")))
            service.scenarios.gate(key).set()
            assert first.result().status == 201

        assert twin.status == 202
        assert int(str(twin.header("retry-after"))) >= 1
        assert meanwhile.json()["state"] == "in_progress"
        assert meanwhile.json()["operation_id"] == twin.json()["operation_id"]
        after = client.get(str(twin.header("location"))).json()
        assert (after["state"], after["outcome"]["status"]) == ("completed", 201)

    @pytest.mark.parametrize("path", ["/local", "/opaque"])
    def test_another_command_is_refused_while_the_first_runs(self, service: Service, path: str) -> None:
        """F105, F4."""
        key = new_key()
        with ThreadPoolExecutor(1) as threads:
            first = threads.submit(self._gated, service, path, key)
            assert service.scenarios.started(key).wait(20)

            other = service.client().post(path, {"tag": f"{key}-other"}, key=key)
            service.scenarios.gate(key).set()
            assert first.result().status == 201

        assert (other.status, other.code) == (422, "key-reused")
        assert service.scenarios.runs[f"{key}-other"] == 0

    @pytest.mark.parametrize("act", ["json", "declined", "rejected", "overflow"])
    def test_another_command_is_refused_after_the_first_ended(self, service: Service, act: str) -> None:
        """F4, P2."""
        key = new_key()
        service.client().post("/local", {"act": act, "tag": key}, key=key)

        other = service.client().post("/local", {"act": act, "tag": f"{key}-other"}, key=key)

        assert (other.status, other.code) == (422, "key-reused")
        assert key not in other.body.decode()
        assert service.scenarios.runs[f"{key}-other"] == 0

    def test_another_command_is_refused_while_the_first_is_in_doubt(self, service: Service) -> None:
        key = new_key()
        service.client().post("/opaque", {"act": "crash", "tag": key}, key=key)

        other = service.client().post("/opaque", {"tag": f"{key}-other"}, key=key)

        assert (other.status, other.code) == (422, "key-reused")

    @staticmethod
    def _gated(service: Service, path: str, key: str) -> Reply:
        return service.client().post(path, {"tag": key, "gate": True, "act": "json"}, key=key)


def _ended(running: list[Future[Reply]], count: int) -> list[Reply]:
    """Wait until that many have ended; the last one stands before its gate."""
    return [future.result() for future in islice(as_completed(running, timeout=20), count)]
