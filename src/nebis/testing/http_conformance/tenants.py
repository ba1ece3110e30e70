"""Whose key it is, and who may ask, is settled before anything is looked up (I12, SEC01-SEC04, SEC07, SEC10)."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

import pytest

from nebis.testing.http_conformance.client import Line, Reply, new_key
from nebis.testing.http_conformance.service import Service

_LINES = 4


class TestTenants:
    def test_two_tenants_never_meet_under_one_key(self, service: Service) -> None:
        """SEC01, SEC10: the same key and the same body are two requests of two tenants."""
        keys = [new_key() for _ in range(max(4, service.sizes.interleaved // 40))]
        calls = [(tenant, key) for key in keys for tenant in ("acct-a", "acct-b") for _ in range(20)]
        seed = random.SystemRandom().randrange(2**32)
        random.Random(seed).shuffle(calls)  # noqa: S311 - an order, not a secret.
        answers: dict[tuple[str, str], set[bytes]] = {}

        def call(share: list[tuple[str, str]]) -> list[tuple[tuple[str, str], Reply]]:
            line = Line(service.address)
            try:
                return [
                    (asked, line.post("/local", {"tag": asked[1]}, key=asked[1], caller=asked[0])) for asked in share
                ]
            finally:
                line.close()

        with ThreadPoolExecutor(_LINES) as threads:
            for replies in threads.map(call, [calls[number::_LINES] for number in range(_LINES)]):
                for asked, reply in replies:
                    assert reply.status in (201, 409), f"seed {seed}"
                    if reply.status == 201:
                        answers.setdefault(asked, set()).add(reply.body)

        told = [body for bodies in answers.values() for body in bodies]
        assert all(len(bodies) == 1 for bodies in answers.values()), f"seed {seed}"
        assert len(set(told)) == len(told) == 2 * len(keys), f"seed {seed}"
        assert all(service.scenarios.runs[key] == 2 for key in keys), f"seed {seed}"

    @pytest.mark.parametrize("path", ["/local", "/opaque"])
    def test_a_revoked_caller_is_not_told_what_was_stored(self, service: Service, path: str) -> None:
        """SEC03."""
        key, caller = new_key(), f"revoked-{new_key()}"
        first = service.client(caller).post(path, {"tag": key}, key=key)
        service.scenarios.revoked.add(caller)

        reply = service.client(caller).post(path, {"tag": key}, key=key)

        assert reply.status == 401
        assert first.json()["id"].encode() not in reply.body
        assert service.scenarios.runs[key] == 1

    def test_a_downgraded_caller_is_not_told_what_was_stored(self, service: Service) -> None:
        """SEC03."""
        key, caller = new_key(), f"downgraded-{new_key()}"
        first = service.client(caller).post("/local", {"tag": key}, key=key)
        service.scenarios.downgraded.add(caller)

        reply = service.client(caller).post("/local", {"tag": key}, key=key)

        assert reply.status == 403
        assert first.json()["id"].encode() not in reply.body

    def test_nobody_has_no_keys(self, service: Service) -> None:
        """SEC02."""
        key = new_key()

        reply = service.client(None).post("/local", {"tag": key}, key=key)

        assert reply.status == 401
        assert service.scenarios.runs[key] == 0

    def test_two_authorization_headers_run_nothing(self, service: Service) -> None:
        key = new_key()

        reply = service.client("acct-1").post(
            "/local", {"tag": key}, key=key, headers=[("Authorization", "Bearer acct-2")]
        )

        assert reply.status in (400, 401)
        assert service.scenarios.runs[key] == 0

    def test_an_unknown_operation_and_another_tenants_are_told_alike(self, service: Service) -> None:
        """SEC07."""
        operation_id = self._operation_id(service, "acct-a")

        own = service.client("acct-a").get(f"/operations/{operation_id}")
        others = [
            service.client("acct-b").get(f"/operations/{asked}") for asked in (operation_id, new_key(), "not-an-id")
        ]

        assert own.json()["operation_id"] == operation_id
        assert {(reply.status, reply.code, reply.body) for reply in others} == {
            (404, "operation-unknown", others[0].body)
        }

    def test_a_status_tells_how_it_ended_and_not_what_was_said(self, service: Service) -> None:
        """R3."""
        operation_id = self._operation_id(service, "acct-a")

        status = service.client("acct-a").get(f"/operations/{operation_id}").json()

        assert status["operation"] == "opaque"
        assert status["state"] == "in_doubt"
        assert status["outcome"] is None
        assert status["retry_after"] >= 1
        assert str(status["created_at"]).endswith("Z")

    @staticmethod
    def _operation_id(service: Service, caller: str) -> str:
        key = new_key()
        reply = service.client(caller).post("/opaque", {"act": "crash", "tag": key}, key=key)
        return str(reply.json()["operation_id"])
