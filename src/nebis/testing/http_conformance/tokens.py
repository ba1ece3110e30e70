"""Tokens: keys that the service issued itself (P14)."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

from nebis.testing.http_conformance.application import BRIEFLY
from nebis.testing.http_conformance.client import new_key
from nebis.testing.http_conformance.service import Service

TWINS = 20


def issued(
    service: Service, operation: str = "issued", caller: str = "acct-1", where: str = "/idempotency-tokens"
) -> str:
    """Ask for a token, as a client would."""
    reply = service.client(caller).post(where, {"operation": operation})
    assert reply.status == 201, reply
    assert reply.header("cache-control") == "no-store"
    told = reply.json()
    assert set(told) == {"token", "expires_at"}
    assert len(told["token"]) <= 255
    assert told["expires_at"].endswith("Z")
    return str(told["token"])


class TestTokens:
    def test_a_token_is_a_key_like_any_other(self, service: Service) -> None:
        tag, token = new_key(), issued(service)

        first = service.client().post("/issued", {"tag": tag}, key=token)
        again = service.client().post("/issued", {"tag": tag}, key=f'"{token}"')
        other = service.client().post("/issued", {"tag": "another"}, key=token)

        assert (first.status, first.is_replay) == (201, False)
        assert (again.body, again.is_replay) == (first.body, True)
        assert (other.status, other.code) == (422, "key-reused")
        assert service.scenarios.runs[tag] == 1

    def test_whatever_is_wrong_with_a_token_is_told_alike(self, service: Service) -> None:
        """SEC07: who tries tokens learns nothing about whose they are."""
        tag, token = new_key(), issued(service)
        tokens = {
            "forged": token[:-1] + ("A" if token[-1] != "A" else "B"),
            "of another moment": token[:8] + ("B" if token[8] != "B" else "C") + token[9:],
            "made up": new_key(),
            "foreign": issued(service, caller="acct-2"),
            "for another operation": issued(service, "issued-too"),
        }

        replies = {name: service.client().post("/issued", {"tag": tag}, key=key) for name, key in tokens.items()}

        assert {(reply.status, reply.code) for reply in replies.values()} == {(400, "token-invalid")}
        assert len({reply.body for reply in replies.values()}) == 1
        assert service.scenarios.runs[tag] == 0

    def test_a_token_that_expired_unused_begins_nothing(self, service: Service) -> None:
        tag, token = new_key(), issued(service, where="/brief-tokens")
        foreign = service.client("acct-2").post("/issued", {"tag": tag}, key=token)
        # Its end is a moment of the clock that the service has, too; there is no event to wait for.
        time.sleep(BRIEFLY.total_seconds())

        replies = [service.client().post("/issued", {"tag": tag}, key=token) for _ in range(2)]
        still_foreign = service.client("acct-2").post("/issued", {"tag": tag}, key=token)

        assert [(reply.status, reply.code) for reply in replies] == [(410, "token-expired")] * 2
        # Nobody learns from a token of others whether it has expired.
        assert (foreign.status, foreign.code, foreign.body) == (400, "token-invalid", still_foreign.body)
        assert service.scenarios.runs[tag] == 0

    def test_where_a_token_is_demanded_no_request_goes_without(self, service: Service) -> None:
        reply = service.client().post("/issued", {"tag": new_key()})

        assert (reply.status, reply.code) == (400, "key-missing")

    def test_of_twins_with_one_token_one_runs(self, service: Service) -> None:
        tag, token = new_key(), issued(service)

        with ThreadPoolExecutor(TWINS) as threads:
            posts = [threads.submit(service.client().post, "/issued", {"tag": tag}, key=token) for _ in range(TWINS)]
            replies = [post.result() for post in posts]

        assert service.scenarios.runs[tag] == 1
        assert {reply.status for reply in replies} <= {201, 409}
        assert len({reply.body for reply in replies if reply.status == 201}) == 1

    def test_a_token_is_issued_for_an_operation_that_takes_one(self, service: Service) -> None:
        bodies = [b'{"operation": "local"}', b'{"operation": "nobody knows it"}', b'{"operation": 17}', b"[]"]

        replies = [service.client().post("/idempotency-tokens", body=body) for body in bodies]

        assert {(reply.status, reply.code) for reply in replies} == {(400, "body-refused")}

    def test_a_stranger_is_issued_nothing(self, service: Service) -> None:
        """SEC02."""
        assert service.client(None).post("/idempotency-tokens", {"operation": "issued"}).status in (401, 403)
