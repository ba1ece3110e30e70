"""A replay is what the first caller got: status, chosen headers, every byte of the body (I4, O2)."""

from __future__ import annotations

import pytest

from nebis.testing.http_conformance.application import SENSITIVE
from nebis.testing.http_conformance.client import new_key
from nebis.testing.http_conformance.service import Service

CHOSEN = ("content-type", "location", "x-chosen", "cache-control", "content-length")


class TestReplay:
    @pytest.mark.parametrize(
        ("act", "status"),
        [
            ("json", 201),
            ("binary", 200),
            ("latin", 200),
            ("large", 200),
            ("empty", 204),
            ("declined", 402),
            ("raise-declined", 402),
            ("rejected", 422),
        ],
    )
    @pytest.mark.parametrize("path", ["/local", "/declared", "/opaque"])
    def test_a_replay_is_equal_byte_for_byte(self, service: Service, path: str, act: str, status: int) -> None:
        key = new_key()

        first, *replays = [service.client().post(path, {"act": act, "tag": key}, key=key) for _ in range(3)]

        assert first.status == status, first
        assert not first.is_replay
        for replay in replays:
            assert (replay.status, replay.body) == (first.status, first.body)
            assert [replay.header(name) for name in CHOSEN] == [first.header(name) for name in CHOSEN]
            assert replay.is_replay
        assert service.scenarios.runs[key] == 1

    def test_cookies_credentials_and_tokens_reach_the_first_caller_only(self, service: Service) -> None:
        """SEC14, F087."""
        key = new_key()

        first, replay = [service.client().post("/local", {"act": "json", "tag": key}, key=key) for _ in range(2)]

        for name, value in SENSITIVE:
            assert first.header(name) == value
            assert replay.header(name) is None
        assert first.header("x-passing") == "for the first caller"
        assert replay.header("x-passing") is None

    def test_an_answer_is_never_left_to_a_shared_cache(self, service: Service) -> None:
        """SEC16."""
        key = new_key()

        replies = [service.client().post("/local", {"tag": key}, key=key) for _ in range(2)]

        assert [reply.header("cache-control") for reply in replies] == ["no-store", "no-store"]

    def test_a_replay_says_until_when_the_answer_is_kept(self, service: Service) -> None:
        key = new_key()

        first, replay = [service.client().post("/local", {"tag": key}, key=key) for _ in range(2)]

        assert first.header("idempotency-expires") is None
        assert str(replay.header("idempotency-expires")).endswith(" GMT")

    @pytest.mark.parametrize("path", ["/local", "/opaque"])
    def test_an_answer_above_its_cap_is_a_final_error_for_the_first_caller_too(
        self, service: Service, path: str
    ) -> None:
        """O6, F084."""
        key = new_key()

        replies = [service.client().post(path, {"act": "overflow", "tag": key}, key=key) for _ in range(2)]

        assert [(reply.status, reply.code) for reply in replies] == [(500, "response-unstorable")] * 2
        assert replies[0].body == replies[1].body
        assert service.scenarios.runs[key] == 1

    def test_an_answer_that_holds_a_secret_is_told_once(self, service: Service) -> None:
        key = new_key()

        first, replay = [service.client().post("/secretive", {"tag": key}, key=key) for _ in range(2)]

        assert first.json()["id"]
        assert (replay.status, replay.body, replay.is_replay) == (201, b"", True)
        assert service.scenarios.runs[key] == 1

    def test_an_answer_is_rebuilt_from_its_resource_in_the_shape_of_today(self, service: Service) -> None:
        """O3."""
        key = new_key()
        first = service.client().post("/rebuilt", {"tag": key}, key=key)
        made = first.json()["id"]
        service.scenarios.resources[made] = "paid"

        replay = service.client().post("/rebuilt", {"tag": key}, key=key)

        assert replay.json() == {"id": made, "state": "paid", "stored": "v2", "shape": "v3"}
        assert replay.is_replay
        assert service.scenarios.runs[key] == 1

    def test_a_deleted_resource_is_gone_and_nothing_runs_again(self, service: Service) -> None:
        """O6."""
        key = new_key()
        made = service.client().post("/rebuilt", {"tag": key}, key=key).json()["id"]
        del service.scenarios.resources[made]

        replay = service.client().post("/rebuilt", {"tag": key}, key=key)

        assert (replay.status, replay.code) == (410, "resource-gone")
        assert service.scenarios.runs[key] == 1

    def test_a_safe_method_ignores_the_key(self, service: Service) -> None:
        """F092."""
        reply = service.client().post("/operations/none", body=b"", key=new_key(), method="GET")

        assert reply.status == 404
