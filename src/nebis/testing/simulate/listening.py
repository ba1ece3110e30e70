"""What HTTP clients may hear, judged by the bytes alone: by status, headers and body, and what was committed."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TypeAlias

from nebis.core.answers import Doubtful, Gone, Reused, Running, Unreadable
from nebis.core.record import OutcomeKind
from nebis.errors import ClaimLost, InDoubt, InFlight, NotYet
from nebis.flows.request import Ending, Failed, Finished, Vanished
from nebis.http.exchange import Exchange
from nebis.testing.simulate.promises import Call, Rule
from nebis.testing.simulate.web import Reply

Complain: TypeAlias = Callable[[Rule, str], None]

_MARK = "idempotency-replayed"
_FIRST_ONLY = frozenset({"x-request-id", "set-cookie"})
"""What the endpoints say to the first caller alone."""
_SOON = frozenset({409, 503})
"""Told to somebody who is to come back, and who has to know when."""


class Listener:
    """Hears what every HTTP client of a run is told."""

    def __init__(self, complain: Complain, *, ages: bool) -> None:
        self._complain = complain
        self._ages = ages
        self.answers = 0
        self._bytes: dict[object, tuple[int, tuple[tuple[str, str], ...], bytes]] = {}
        self._first_success: dict[object, tuple[float, str]] = {}

    def hear_refusal(self, exchange: Exchange) -> None:
        """Hear how something was refused that is no request."""
        self.answers += 1
        if exchange.status != 400 or b"urn:nebis:problem:" not in exchange.body:
            self._complain(Rule.HTTP_STATUS, f"what is no request was told {exchange.status}")

    def hear(
        self, call: Call, now: float, reply: Reply, stored: tuple[OutcomeKind, bytes] | None, turns: frozenset[str]
    ) -> None:
        """Hear an answer; `stored` is what the store holds of the life that it is about, `turns` are the call's own."""
        self.answers += 1
        exchange, what = reply.exchange, f"call {call.number} of {call.trade} was told {reply.exchange.status}"
        headers = {name.lower(): value for name, value in exchange.headers}
        if exchange.status not in _statuses(reply):
            self._complain(Rule.HTTP_STATUS, f"{what} for {_name(reply.end)}")
        if exchange.status in _SOON and not headers.get("retry-after", "").isdigit():
            self._complain(Rule.HTTP_STATUS, f"{what} without being told when to come back")
        if headers.get("cache-control") != "no-store" and exchange.status != 500:
            self._complain(Rule.HTTP_STATUS, f"{what}, and any cache may keep it")
        if isinstance(reply.end, Finished) and reply.end.outcome.kind is not OutcomeKind.UNKNOWN:
            self._hear_outcome(call, reply, headers, stored, turns)
        elif _MARK in headers:
            self._complain(Rule.REPLAY_MARK, f"{what} as a replay")
        # A twin that only looks holds a lock for a moment, behind which nothing can be read.
        if not isinstance(reply.end, InFlight):
            self._hear_other_command(call, now, exchange, what)

    def _hear_outcome(
        self,
        call: Call,
        reply: Reply,
        headers: dict[str, str],
        stored: tuple[OutcomeKind, bytes] | None,
        turns: frozenset[str],
    ) -> None:
        exchange, what = reply.exchange, f"call {call.number} of {call.trade}"
        assert isinstance(reply.end, Finished)
        # Without ageing a key has one answer for ever; else each of its lives has one.
        place = (call.place, str(reply.end.record_id) if self._ages else "")
        lasting = tuple(sorted((name, value) for name, value in headers.items() if name not in {_MARK, *_FIRST_ONLY}))
        told = (exchange.status, lasting, exchange.body)
        if self._bytes.setdefault(place, told) != told:
            self._complain(Rule.HTTP_BYTES_DIFFER, what)
        is_success = exchange.status < 300
        # The result of an operation is stored, and its route renders a refusal anew from the reason alone.
        if (is_success or reply.is_endpoint) and (stored is None or exchange.body not in stored[1]):
            self._complain(Rule.HTTP_NOT_STORED, what)
        if is_success:
            # Whoever had to read its own answer back may be told that it was one before.
            is_own, is_marked = receipt_in(exchange.body).rpartition("|")[2] in turns, _MARK in headers
            if not is_own and not is_marked:
                self._complain(Rule.REPLAY_MARK, f"{what}, which another call was told first")
            if is_marked and not _FIRST_ONLY.isdisjoint(headers):
                self._complain(Rule.REPLAY_MARK, f"{what}, with what was meant for the first caller alone")

    def _hear_other_command(self, call: Call, now: float, exchange: Exchange, what: str) -> None:
        if exchange.status < 300:
            self._first_success.setdefault(call.place, (now, call.command))
        told_at, command = self._first_success.get(call.place, (now, call.command))
        if self._ages or command == call.command or told_at >= call.at:
            return
        is_reuse = exchange.status == 422 and b"problem:key-reused" in exchange.body
        # A store that cannot be reached, or whose record this version of the code cannot read, says nothing.
        if not is_reuse and exchange.status != 503:
            self._complain(Rule.HTTP_STATUS, f"{what}, under a key that answered another command before")


def receipt_in(body: bytes) -> str:
    """Return the receipt that a successful answer carries."""
    told = json.loads(body)
    return str(told["receipt"] if isinstance(told, dict) else told)


def _statuses(reply: Reply) -> frozenset[int]:
    """Return what may be told: the published table, written down once more."""
    match reply.end:
        case Finished():
            return _OF_OUTCOMES[reply.end.outcome.kind]
        case Failed() if reply.end.doubt_reason is not None:
            return frozenset({409})
        case Failed():
            # Its own word for a failure that leaves the key free: never a success.
            return frozenset({402, 409, 412, 422, 500, 503})
        case Running() | Doubtful() | InFlight() | InDoubt():
            return frozenset({409})
        case Reused():
            return frozenset({422})
        case Gone():
            return frozenset({410})
        case Unreadable() | Vanished() | NotYet() | ClaimLost():
            return frozenset({503})
        case _:
            return frozenset()


_OF_OUTCOMES = {
    OutcomeKind.SUCCEEDED: frozenset({200, 201}),
    OutcomeKind.REJECTED: frozenset({402, 422}),
    OutcomeKind.UNSTORABLE: frozenset({500}),
    OutcomeKind.UNKNOWN: frozenset({500}),
}


def _name(end: Ending | Exception) -> str:
    if isinstance(end, Finished):
        return f"Finished ({end.outcome.kind})"
    return f"Failed ({type(end.error).__name__})" if isinstance(end, Failed) else type(end).__name__
