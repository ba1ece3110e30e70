"""Servers for the checks that no broken server has to fail: each is run against those checks alone."""

import time
from uuid import uuid4

from tests.testing.torture.shop import Answer, Entry, Handler, Json, Refused, Shop


class SaysSeenInstead(Shop):
    """Answers a retry with another status."""

    def replayed(self, answer: Answer) -> Answer:
        return Answer(200, answer.body)


class MakesKeysUp(Shop):
    """Gives a key to whoever has none."""

    def key(self, handler: Handler) -> str:
        return super().key(handler) if "idempotency-key" in handler.headers else str(uuid4())


class TakesAnyKey(Shop):
    """Looks at no key."""

    def key(self, handler: Handler) -> str:
        return str(handler.headers["idempotency-key"])


class ComparesBodiesOnly(Shop):
    """Tells requests apart by what they ask for."""

    def claim(self, identity: object, fingerprint: str, key: str) -> Answer | None:
        seen = next((entry for entry in self.entries.values() if entry.fingerprint == fingerprint), None)
        return super().claim(identity, fingerprint, key) if seen is None else seen.answer


class ReadsFromKeys(Shop):
    """Answers whatever comes with a known key."""

    def read(self, handler: Handler) -> Answer:
        entry = self.entries.get(("acct_1", handler.path, handler.headers.get("idempotency-key")))
        return entry.answer if entry is not None and entry.answer is not None else super().read(handler)


class FailsTwins(Shop):
    """Takes a duplicate for an accident."""

    def in_flight(self) -> Answer:
        return Answer(500, {"error": "duplicate row"})


class Overwhelmed(Shop):
    """Fails whoever comes tenth or later."""

    def run(self, tenant: str, command: Json) -> Answer:
        answer = super().run(tenant, command)
        return Answer(500, {"error": "pool exhausted"}) if len(self.effects) >= 10 else answer  # Two may come at once.


class SulksAfterCuts(Shop):
    """Does not get over a connection that was cut."""

    is_offended = False

    def cut(self) -> None:
        self.is_offended = True

    def post(self, handler: Handler) -> Answer:
        answer = super().post(handler)
        time.sleep(0.1)  # The cut is noticed by another thread, which must be given the time.
        return Answer(500, {"error": "offended"}) if self.is_offended else answer


class MisreadsChunks(Shop):
    """Takes a body without a length for none."""

    def post(self, handler: Handler) -> Answer:
        if "transfer-encoding" in handler.headers:
            handler.close_connection = True
            return Answer(422, {"error": "an order is needed"})
        return super().post(handler)


class Forgiving(Shop):
    """Makes something of whatever it gets."""

    def command(self, body: bytes) -> Json:
        try:
            return super().command(body)
        except Refused:
            return {"order": "any", "amount": 1}


class Fragile(Shop):
    """Fails on what it does not understand."""

    def command(self, body: bytes) -> Json:
        try:
            return super().command(body)
        except Refused:
            raise Refused(500, "ValueError") from None


class Boundless(Shop):
    """Has a limit, and does not keep to it."""

    def post(self, handler: Handler) -> Answer:
        try:
            return super().post(handler)
        except Refused as refused:
            return Answer(201, {}) if refused.answer.status == 413 else refused.answer


class ClaimsForStrangers(Shop):
    """Writes down a key before it knows whose it is."""

    def tenant(self, handler: Handler) -> str:
        try:
            return super().tenant(handler)
        except Refused:
            self.entries["acct_1", handler.path, handler.headers["idempotency-key"]] = Entry("of a stranger")
            raise


CARELESS: dict[str, type[Shop]] = {
    "semantics.replay-status": SaysSeenInstead,
    "semantics.missing-key": MakesKeysUp,
    "semantics.another-key": ComparesBodiesOnly,
    "semantics.safe-method": ReadsFromKeys,
    "concurrency.twins-statuses": FailsTwins,
    "concurrency.storm": Overwhelmed,
    "network.half-head": SulksAfterCuts,
    "network.chunked": MisreadsChunks,
    "input.long-key": TakesAnyKey,
    "input.control-characters": TakesAnyKey,
    "input.non-ascii": TakesAnyKey,
    "input.list-of-keys": TakesAnyKey,
    "input.broken-json": Forgiving,
    "input.odd-json": Fragile,
    "input.not-an-object": Fragile,
    "input.oversize": Boundless,
    "security.poisoning": ClaimsForStrangers,
}
