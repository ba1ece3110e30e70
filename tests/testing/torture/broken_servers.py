"""Shops that each break one promise, and say which checks may notice."""

import json
import select
import socket
import time
from typing import Any

from tests.testing.torture.shop import Answer, Entry, Handler, Json, Refused, Shop

_CUTS = frozenset(
    f"network.{name}"
    for name in (
        "hang-up",
        "hang-up-slow",
        "reset",
        "cut-answer",
        "half-close",
        "retry-storm",
        "keep-alive",
        "pipelined",
    )
)
_TWINS = frozenset(
    f"concurrency.{name}"
    for name in ("twins-effect", "twins-answers", "staggered", "parallel-keys", "racing-bodies", "racing-tenants")
)
_REPEATS = (
    _CUTS
    | _TWINS
    | {
        "semantics.replay-effect",
        "semantics.replay-bytes",
        "semantics.replay-marked",
        "semantics.reuse-refused",
        "semantics.reuse-effect",
        "semantics.spelling",
        "semantics.rejection",
        "semantics.late-failure",
        "network.shared-connection",
        "network.slow-body",
        "input.longest-key",
        "input.quoted-key",
        "input.content-type",
    }
)
"""What notices that a retry is a new request."""


class NoIdempotency(Shop):
    """Takes keys, and does nothing with them."""

    own = "semantics.replay-effect"
    also = _REPEATS

    def claim(self, identity: object, fingerprint: str, key: str) -> Answer | None:
        self.entries[identity] = Entry(fingerprint)
        return None

    def failing(self, identity: object, command: Json) -> None:
        """Remember nothing."""


class RaceWindow(Shop):
    """Looks, and writes a moment later."""

    own = "concurrency.twins-effect"
    also = _TWINS | {"network.hang-up-slow", "network.hang-up", "network.reset", "network.retry-storm"}

    def claim(self, identity: object, fingerprint: str, key: str) -> Answer | None:
        entry = self.entries.get(identity)
        if entry is not None:
            return self.compared(entry, fingerprint, key)
        time.sleep(0.01)
        self.entries[identity] = Entry(fingerprint)
        return None


class ForgetsBodies(Shop):
    """Does not compare what is asked for."""

    own = "semantics.reuse-refused"
    also = frozenset({"concurrency.racing-bodies"})

    def fingerprint(self, command: Json) -> str:
        return ""


class SharesKeys(Shop):
    """Has one room for the keys of all tenants."""

    own = "security.other-tenant"
    also = frozenset({"concurrency.racing-tenants", "network.shared-connection", "security.no-oracle"})

    def identity(self, tenant: str, handler: Handler, key: str) -> object:
        return handler.path, key


class SharesOperations(Shop):
    """Has one room for the keys of all operations."""

    own = "semantics.other-operation"

    def identity(self, tenant: str, handler: Handler, key: str) -> object:
        return tenant, key


class RendersAnew(Shop):
    """Makes the answer again for each retry."""

    own = "semantics.replay-bytes"
    also = (
        _CUTS
        | _TWINS
        | {"semantics.spelling", "semantics.rejection", "input.longest-key", "input.quoted-key", "network.slow-body"}
        | {"network.shared-connection"}
    )

    def replayed(self, answer: Answer) -> Answer:
        return super().replayed(Answer(answer.status, {**answer.body, "at": time.time_ns()}, answer.headers))


class RemembersFailures(Shop):
    """Stores a failure as if it were an answer."""

    own = "semantics.passing-failure"

    def failing(self, identity: object, command: Json) -> None:
        self.entries[identity].answer = Answer(500, {"error": "unwell"})


class ForgetsAfterFailure(Shop):
    """Frees the key on any failure, also one that came after the effect."""

    own = "semantics.late-failure"

    def failing(self, identity: object, command: Json) -> None:
        del self.entries[identity]


class ForgetsRejections(Shop):
    """Keeps only what succeeded."""

    own = "semantics.rejection"

    def complete(self, handler: Handler, identity: object, answer: Answer) -> None:
        if answer.status == 402:
            del self.entries[identity]
        else:
            super().complete(handler, identity, answer)


class TellsTooMuch(Shop):
    """Shows the stored answer, and what was asked, to whoever has the key and another body."""

    own = "security.echoed-body"

    def compared(self, entry: Entry, fingerprint: str, key: str) -> Answer:
        if entry.fingerprint != fingerprint and entry.answer is not None:
            return Answer(422, {"error": "reused", "was": json.loads(entry.fingerprint), "answer": entry.answer.body})
        return super().compared(entry, fingerprint, key)


class ForgetsAfterHangUp(Shop):
    """Drops the key if the client is gone when its answer is ready."""

    own = "network.hang-up-slow"
    also = frozenset({"network.hang-up", "network.reset", "network.retry-storm", "network.half-close"})

    def complete(self, handler: Handler, identity: object, answer: Answer) -> None:
        if _is_gone(handler.connection):
            del self.entries[identity]
        else:
            super().complete(handler, identity, answer)


def _is_gone(connection: socket.socket) -> bool:
    readable, _, _ = select.select([connection], [], [], 0)
    if not readable:
        return False
    try:
        return connection.recv(1, socket.MSG_PEEK) == b""
    except OSError:
        return True


class TakesTwoHeaders(Shop):
    """Takes the first key of several."""

    own = "input.two-headers"

    def key(self, handler: Handler) -> str:
        given = handler.headers.get_all("idempotency-key") or []
        del handler.headers["idempotency-key"]
        for key in given[:1]:
            handler.headers["Idempotency-Key"] = key
        return super().key(handler)


class EchoesKeys(Shop):
    """Repeats the key in what it says about it."""

    own = "security.echoed-key"

    def refusal(self, status: int, what: str, key: str) -> Refused:
        return Refused(status, f"{what}: {key}")


class CutsKeys(Shop):
    """Keeps keys in a column of 64 characters."""

    own = "input.truncated-key"

    def identity(self, tenant: str, handler: Handler, key: str) -> object:
        return tenant, handler.path, key[:64]


class FoldsCase(Shop):
    """Compares keys as a database does that knows no case."""

    own = "input.case"

    def identity(self, tenant: str, handler: Handler, key: str) -> object:
        return tenant, handler.path, key.lower()


class TakesEmptyKeys(Shop):
    """Takes a header without a value for a key."""

    own = "input.empty-key"

    def key(self, handler: Handler) -> str:
        return "" if handler.headers.get_all("idempotency-key") == [""] else super().key(handler)


class RemembersPerConnection(Shop):
    """Keeps what it knows with the connection: a retry on another one is news."""

    own = "network.keep-alive"
    also = _REPEATS - {"network.shared-connection"}

    def identity(self, tenant: str, handler: Handler, key: str) -> object:
        return super().identity(tenant, handler, key), handler.client_address


class ClaimsEarly(Shop):
    """Claims the key before it has read the body."""

    own = "network.half-body"
    also = frozenset({"network.slow-body"})

    def post(self, handler: Handler) -> Answer:
        tenant = self.tenant(handler)
        with self.lock:
            try:
                identity = self.identity(tenant, handler, self.key(handler))
            except Refused:
                handler.read_body()
                raise
            entry = self.entries.get(identity)
            if entry is None:
                self.entries[identity] = Entry("")
        if entry is not None and not entry.fingerprint:
            handler.read_body()
            return self.in_flight()
        try:
            return super().post(handler)
        except Refused:
            if entry is None:
                del self.entries[identity]
            raise

    def claim(self, identity: object, fingerprint: str, key: str) -> Answer | None:
        with self.lock:
            entry = self.entries[identity]
            if not entry.fingerprint:
                entry.fingerprint = fingerprint
                return None
        return self.compared(entry, fingerprint, key)


class AnswersBeforeAuthentication(Shop):
    """Looks into its memory before it asks who is there."""

    own = "security.nobody"
    also = frozenset({"security.impostor"})

    def tenant(self, handler: Handler) -> str:
        try:
            return super().tenant(handler)
        except Refused:
            key = handler.headers.get("idempotency-key")
            if not any(key in known for known in self.entries if isinstance(known, tuple)):
                raise
            handler.close_connection = False
            return "acct_1"


class OffersToCaches(Shop):
    """Lets others be given what it says."""

    own = "security.cached"

    def run(self, tenant: str, command: Json) -> Answer:
        answer = super().run(tenant, command)
        return Answer(answer.status, answer.body, {"Cache-Control": "public, max-age=60"})


class ReplaysCookies(Shop):
    """Stores the session of the first caller with the answer."""

    own = "security.cookies"

    def complete(self, handler: Handler, identity: object, answer: Answer) -> None:
        super().complete(handler, identity, answer)
        answer.headers["Set-Cookie"] = "session=of-the-first"

    def post(self, handler: Handler) -> Answer:
        answer = super().post(handler)
        if answer.status == 201:
            answer.headers["Set-Cookie"] = "session=of-the-first"
        return answer


class FallsIntoHoles(Shop):
    """Reads JSON as far down as it goes."""

    own = "input.deep-json"

    def command(self, body: bytes) -> Json:
        if body.count(b"[") > 5000 or body.count(b"{") > 5000:
            raise Refused(500, "RecursionError")
        return super().command(body)


class ReadsNamesTwice(Shop):
    """Takes the last of two values of one name."""

    own = "input.duplicate-names"

    def command(self, body: bytes) -> Json:
        try:
            found: Any = json.loads(body)
        except (ValueError, RecursionError):
            raise Refused(400, "that is no JSON") from None
        return super().command(json.dumps(found).encode()) if isinstance(found, dict) else super().command(body)


class NeverSaysWhen(Shop):
    """Tells twins to come back, and not when."""

    own = "concurrency.twins-retry-after"

    def in_flight(self) -> Answer:
        return Answer(409, {"error": "in flight"})


class ShowsOthers(Shop):
    """Lets everybody look up everything."""

    own = "security.lookup"

    def read(self, handler: Handler) -> Answer:
        _, made = self.payments.get(handler.path.rpartition("/")[2], ("", {}))
        return Answer(200, made) if made else super().read(handler)


BROKEN: list[type[Shop]] = [
    found
    for found in list(globals().values())
    if isinstance(found, type) and issubclass(found, Shop) and found is not Shop
]
