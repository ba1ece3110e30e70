"""Limits underneath the key, for clients that send a fresh one each time (P16)."""

from __future__ import annotations

from nebis.testing.http_conformance.application import CARD_LIMIT
from nebis.testing.http_conformance.client import new_key
from nebis.testing.http_conformance.service import Service


class TestVelocity:
    def test_fresh_keys_on_one_card_are_limited_and_replays_are_free(self, service: Service) -> None:
        card, keys = new_key(), [new_key() for _ in range(CARD_LIMIT + 1)]

        def paid(key: str, card: str = card, caller: str = "acct-1") -> tuple[int, bool]:
            reply = service.client(caller).post("/limited", {"tag": key, "card": card}, key=key)
            return reply.status, reply.is_replay

        first = [paid(key) for key in keys[:CARD_LIMIT]]
        one_too_many = service.client().post("/limited", {"tag": card, "card": card}, key=keys[-1])
        replayed = [paid(key) for key in keys[:CARD_LIMIT]]

        assert first == [(201, False)] * CARD_LIMIT
        assert (one_too_many.status, one_too_many.code) == (429, "too-fast")
        assert int(one_too_many.header("retry-after") or "0") > 0
        assert card not in one_too_many.body.decode()
        assert replayed == [(201, True)] * CARD_LIMIT
        # Nothing was recorded under the key: it is free for another command.
        assert paid(keys[-1], card=new_key()) == (201, False)
        assert paid(new_key(), caller="acct-2") == (201, False)
        assert service.scenarios.runs[card] == 0
