"""What a failure means for its key: one table for all frameworks (O4, F085, F086)."""

from __future__ import annotations

import pytest

from nebis.testing.http_conformance.client import new_key
from nebis.testing.http_conformance.service import Service


class TestFailures:
    @pytest.mark.parametrize("path", ["/local", "/declared"])
    def test_a_corrected_body_runs_after_a_validation_error(self, service: Service, path: str) -> None:
        key = new_key()

        wrong = service.client().post(path, {"act": "invalid", "tag": key}, key=key)
        corrected = service.client().post(path, {"act": "invalid", "tag": key, "amount": 1}, key=key)

        assert wrong.status == 422
        assert corrected.status == 201
        assert not corrected.is_replay

    @pytest.mark.parametrize(("act", "status"), [("raise-forbidden", 403), ("raise-limited", 429)])
    @pytest.mark.parametrize("path", ["/local", "/declared"])
    def test_a_refusal_for_the_moment_records_nothing(self, service: Service, path: str, act: str, status: int) -> None:
        """F086."""
        key = new_key()

        refused = service.client().post(path, {"act": act, "tag": key}, key=key)
        later = service.client().post(path, {"tag": key}, key=key)

        assert (refused.status, later.status) == (status, 201)
        assert not later.is_replay

    def test_a_rejection_that_does_not_bind_runs_again(self, service: Service) -> None:
        key = new_key()

        replies = [service.client().post("/lenient", {"act": "declined", "tag": key}, key=key) for _ in range(2)]

        assert [reply.status for reply in replies] == [402, 402]
        assert [reply.is_replay for reply in replies] == [False, False]
        assert replies[0].body != replies[1].body
        assert service.scenarios.runs[key] == 2

    @pytest.mark.parametrize("path", ["/local", "/declared"])
    def test_a_handler_that_says_try_again_is_believed(self, service: Service, path: str) -> None:
        key = new_key()

        replies = [service.client().post(path, {"act": "retryable", "tag": key}, key=key) for _ in range(2)]

        assert [(reply.status, reply.code) for reply in replies] == [(503, "retryable")] * 2
        assert int(str(replies[0].header("retry-after"))) >= 1
        assert service.scenarios.runs[key] == 2

    @pytest.mark.parametrize("act", ["crash", "unwell"])
    @pytest.mark.parametrize("path", ["/local", "/declared"])
    def test_a_crash_without_effects_leaves_the_key_free(self, service: Service, path: str, act: str) -> None:
        """F085, G3."""
        key = new_key()

        replies = [service.client().post(path, {"act": act, "tag": key}, key=key) for _ in range(2)]

        assert [reply.status for reply in replies] == [500, 500]
        assert service.scenarios.runs[key] == 2

    @pytest.mark.parametrize("act", ["crash", "unwell"])
    def test_a_crash_of_an_opaque_endpoint_is_in_doubt_and_never_runs_again(self, service: Service, act: str) -> None:
        """F085, G4."""
        key = new_key()

        replies = [service.client().post("/opaque", {"act": act, "tag": key}, key=key) for _ in range(2)]

        assert [(reply.status, reply.code) for reply in replies] == [(409, "outcome-unknown")] * 2
        assert all(int(str(reply.header("retry-after"))) >= 1 for reply in replies)
        assert replies[0].json()["operation_id"] == replies[1].json()["operation_id"]
        assert b"secret" not in replies[0].body
        assert service.scenarios.runs[key] == 1

    def test_a_rejection_tells_its_reason(self, service: Service) -> None:
        key = new_key()

        reply = service.client().post("/local", {"act": "rejected", "tag": key}, key=key)

        assert (reply.status, reply.code) == (422, "rejected")
        assert reply.json()["reason"] == "card-declined"
