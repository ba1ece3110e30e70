"""Where a person's decision about a record is taken, written down and told."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from typing import Final, NoReturn

import typer

from nebis.cli.output import complain, say, say_json
from nebis.cli.phrases import STATE_WORDS, instant
from nebis.cli.showing import suffix_for
from nebis.cli.signature import signed_by_this_person
from nebis.cli.store import Place
from nebis.core.answers import Answer, Kept, Locked, Refusal, Refused
from nebis.core.record import Nonce, Record, RecordId, Retention, State
from nebis.core.verbs import Resolve, TakeOver, Verdict
from nebis.ports.history import PersonVerb
from nebis.ports.store import BlockingSessions, IndefiniteFailure, Store, StoreFailure

_TRIES: Final = 5
_PAUSE_SECONDS: Final = 0.2

WHY: Final = {
    Refusal.ABSENT: "there is no such record, or no longer",
    Refusal.OTHER_LIFE: "its key has begun a new life; look at it again",
    Refusal.MOVED_ON: "the record moved on since it was looked at; look at it again",
    Refusal.IN_PROGRESS: "it is not in doubt but in progress; if its owner is gone, the next request or worker decides",
    Refusal.AVAILABLE: "it is not in doubt: nothing has happened, and the next request with its key runs it",
    Refusal.COMPLETED: "it is not in doubt: it has an outcome, which never changes",
    Refusal.EXPIRED: "it is not in doubt: it ended, and its answer was dropped",
    Refusal.IN_DOUBT: "it is in doubt already; resolve it",
    Refusal.NO_PROOF: "that a downstream shows nothing now is no proof, as a call that is still on its way would land "
    "beside the next one; make sure that the process is dead and its call is over, then add --owner-is-dead",
    Refusal.LEASE_LIVE: "its lease has not ended, so its owner may be alive and its call may land; wait until then",
    Refusal.NOT_RESUMABLE: "going on could make an effect twice, as its downstream does not recognise the key, or no "
    "longer; find out whether it happened, and say so with --happened or --did-not-happen",
    Refusal.EFFECT_NOT_OPEN: "no effect is open, so there is no result of one to give",
    Refusal.NOT_DEFINITE: "an earlier call may still land, so this is not the last word",
    Refusal.UNDOING: "it is being undone, so it cannot end with a result; mend what stopped it and use --retry",
}
"""Why a person was refused, and what to do."""

_AND_THEN: Final = {
    State.IN_PROGRESS: "the next request with its key, or a worker, goes on with it at once",
    State.AVAILABLE: "the next request with its key runs it anew",
    State.COMPLETED: "every retry gets this answer from now on",
    State.IN_DOUBT: "nothing runs under its key until it is resolved",
}


class Desk:
    """One person's dealings with one record."""

    def __init__(
        self, store: Store, sessions: BlockingSessions, place: Place, *, what: str, reason: str, is_json: bool
    ) -> None:
        self._store = store
        self._sessions = sessions
        self._place = place
        self._signed = signed_by_this_person(what=what, reason=reason)
        self._is_json = is_json

    def find(self, record_id: RecordId, fence: int | None = None) -> Record:
        """Read the record as it stands; what is decided about it counts only while that is what a person saw."""
        found = self._sessions.run(self._store.find_by_id(record_id))
        seen = fence if fence is not None or found is None else found.fence
        self._signed = replace(self._signed, record_id=record_id, fence_seen=seen)
        if found is None:
            self.refuse(Refusal.ABSENT, None)
        return found

    def now(self) -> int:
        """Read the store's clock."""
        return self._sessions.run(self._store.clock())

    def refuse(self, reason: Refusal, found: Record | None) -> NoReturn:
        """Write down that this was asked for and not even tried; nothing else changes."""
        self._sessions.run(self._store.audit(self._signed, reason.value))
        self._end(reason, found)

    def resolve(self, record: Record, verdict: Verdict, effect: str | None) -> None:
        """Let the state machine decide on a verdict, and write it down in the same commit."""
        assert self._signed.fence_seen is not None
        verb = Resolve(
            identity=record.identity,
            record_id=record.record_id,
            fence_seen=self._signed.fence_seen,
            nonce=Nonce(os.urandom(16)),
            verdict=verdict,
            effect_seen=record.open_effect_name if effect is None else effect,
            # As long as the operation promised when it began: a command knows no policy.
            retention=Retention(
                outcome_us=record.expires_at - record.created_at, metadata_us=record.forget_at - record.expires_at
            ),
        )
        answer = self._decided(verb)
        assert isinstance(answer, Kept | Refused)
        if isinstance(answer, Refused):
            self._end(answer.reason, answer.found)
        self.tell(self._became(record.record_id))

    def put_in_doubt(self, record: Record) -> None:
        """Say, for an owner that is gone, that nobody can tell what it did."""
        verb = TakeOver(
            identity=record.identity,
            record_id=record.record_id,
            fence_seen=record.fence,
            nonce=Nonce(os.urandom(16)),
            lease_us=1,
            recoveries_limit=0,
        )
        answer = self._decided(verb)
        if isinstance(answer, Refused):
            self._end(answer.reason, answer.found)
        self.tell(f"{self._became(record.record_id)}; see how: {self._look()}")

    def tell(self, text: str, *, is_done: bool = True) -> None:
        """Say what became of it."""
        if self._is_json:
            say_json({"done": is_done, "refusal": None, "text": text})
        else:
            say(text)

    def _decided(self, verb: PersonVerb) -> Answer:
        """Send it until it is answered: to the store, copies with one nonce are one."""
        failure: StoreFailure | None = None
        for _ in range(_TRIES):
            failure = None
            try:
                answer = self._sessions.run(self._store.decide(verb, self._signed))
            except IndefiniteFailure as unknown:
                failure = unknown
            else:
                if not isinstance(answer, Locked):
                    return answer
            time.sleep(_PAUSE_SECONDS)
        if failure is not None:
            raise failure
        complain("somebody's transaction holds the record, so nothing was decided; try again")
        raise typer.Exit(1)

    def _became(self, record_id: RecordId) -> str:
        found = self._sessions.run(self._store.find_by_id(record_id))
        if found is None:
            return f"{record_id} is gone by now"
        return f"{record_id} is {STATE_WORDS[found.state]}: {_AND_THEN.get(found.state, 'it has ended')}"

    def _end(self, reason: Refusal, found: Record | None) -> NoReturn:
        why = WHY.get(reason, f"it is not possible now ({reason.value})")
        if reason is Refusal.LEASE_LIVE and found is not None:
            why = f"{why} ({instant(found.lease_until)})"
        if self._is_json:
            say_json({"done": False, "refusal": reason.value, "text": why})
        else:
            complain(f"refused, and nothing changed: {why} [{self._look()}]")
        raise typer.Exit(1)

    def _look(self) -> str:
        return f"nebis show {self._signed.record_id}{suffix_for(self._place)}"
