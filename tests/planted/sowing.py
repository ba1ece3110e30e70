"""How each mistake is put into the code that runs. Only ever in a process of its own: nothing is put right again."""

from typing import Any, cast

from nebis.core import ageing, claiming, owning, transitions
from nebis.core.answers import Grant, Granted, Refusal, Refused
from nebis.core.record import Effect, Fence, Outcome, OutcomeKind, Record, State
from nebis.core.step import Edge, Step, refuse
from nebis.flow import Flow
from nebis.flows import effect, guarded, reconcile, settle, undo
from nebis.flows.request import Disposition, Ending, Finished, Request
from nebis.ports.asks import CallEffect, Elapsed
from nebis.stores.sql import dialect
from nebis.testing.simulate import trades
from nebis.testing.simulate.bank import Memory, Order


def _put(owner: object, name: str, mistake: object) -> None:
    """Put a mistake in the place of what is there. What is not there any more, nobody would run."""
    assert hasattr(owner, name), f"{owner} has no {name} to be mistaken about; plant it where the code has gone"
    setattr(owner, name, mistake)


def _replace_texts(*changes: tuple[str, str]) -> None:
    """Change the SQL that the stores read."""
    read = dialect._text_of

    def changed(source: Any) -> str:
        text = read(source)
        for old, new in changes:
            text = text.replace(old, new)
        return text

    _put(dialect, "_text_of", changed)


def no_unique_index() -> None:
    _replace_texts(
        ("    CONSTRAINT record_identity_is_unique PRIMARY KEY (identity),\n", ""),
        ("ON CONFLICT (identity) DO NOTHING\nRETURNING identity, fence", "RETURNING identity, fence"),
    )


def sql_without_fence() -> None:
    _replace_texts(
        ("AND fence = :fence\nAND nonce = :nonce\n", ""),
        ("    AND nebis_record.fence = member.fence\n    AND nebis_record.nonce = member.nonce\n", ""),
    )


def owner_without_fence() -> None:
    def owned(record: Record | None, ownership: Any, *states: State) -> Record | Step[Refused]:
        if record is None:
            return refuse(None, Refusal.ABSENT)
        if record.record_id != ownership.record_id or record.state not in states:
            return refuse(record, Refusal.OTHER_LIFE)
        return record

    _put(owning, "_owned", owned)


def no_comparison() -> None:
    claiming.compare = lambda _record, _verb: None  # type: ignore[assignment]


def identity_without_tenant() -> None:
    from nebis import subject
    from nebis.core.identity import begun_identity as real

    _put(subject, "begun_identity", lambda secret, *, tenant, scope: real(secret, tenant="all", scope=scope))


def running_twin_runs() -> None:
    def running(record: Record, verb: Any, now: int, fence: Fence) -> Step[Any]:
        owned = claiming._resumed(record, verb.nonce, now + verb.lease_us, fence)
        return Step(record=owned, answer=Granted(record=owned, how=Grant.TAKEN_OVER), edge=Edge.CLAIM_TAKEN_OVER)

    _put(claiming, "_claim_running", running)


def _told(record: Record, outcome: Outcome) -> Finished:
    return Finished(record_id=record.record_id, outcome=outcome, is_replay=False)


def answer_unstored() -> None:
    def complete(_request: Request, record: Record, outcome: Outcome) -> Flow[Ending]:
        yield from Elapsed()
        return _told(record, outcome)

    _put(settle, "complete", complete)


def loser_answers() -> None:
    real = settle.complete

    def complete(request: Request, record: Record, outcome: Outcome) -> Flow[Ending]:
        yield from real(request, record, outcome)
        return _told(record, outcome)

    _put(settle, "complete", complete)


def lost_commit_is_done() -> None:
    _put(guarded, "_decide", lambda *_: None)


def timeout_is_a_no() -> None:
    real = settle.classified

    def classified(request: Request, error: Exception) -> tuple[Exception, Disposition]:
        return (error, Disposition.REJECT) if isinstance(error, OSError) else real(request, error)

    _put(settle, "classified", classified)


def call_before_intent() -> None:
    real = effect._intend

    def intend(record: Record, policy: Any, plan: Any, name: str, *, is_again: bool) -> Flow[Effect]:
        guessed = Effect(
            name=name,
            effect_class=plan.effect_class,
            derived_key=plan.derived_key,
            digest=plan.digest,
            is_outstanding=False,
            recall_until=None,
        )
        yield from CallEffect(plan.call, guessed)
        return (yield from real(record, policy, plan, name, is_again=is_again))

    _put(effect, "_intend", intend)


def key_per_attempt() -> None:
    def charge(
        memory: str, life: str, step: str, note: str | None = None, *, idempotency_key: str, fence: int = 0
    ) -> str:
        key = f"{idempotency_key} {fence}"
        return cast("str", Order(memory=Memory(memory), life=life, step=step, key=key, fence=fence))

    _put(trades, "charge", charge)


def no_undo() -> None:
    def skipped(request: Request, record: Record) -> Flow[Ending]:
        assert record.rejection is not None
        return (yield from settle.complete(request, record, Outcome(kind=OutcomeKind.REJECTED, body=record.rejection)))

    _put(undo, "undo", skipped)


def endless_doubt() -> None:
    def expire(_record: Record, _policy: Any) -> Flow[reconcile.Reconciled]:
        yield from Elapsed()
        return reconcile.Reconciled.STILL_IN_DOUBT

    _put(reconcile, "_expire", expire)


def reaper() -> None:
    def purge(record: Record | None, now: int) -> Step[Any]:
        if record is None or now < record.created_at + 30_000_000:
            return ageing.purge(record, now)
        return Step(record=None, answer=owning.KEPT, edge=Edge.PURGED)

    _put(transitions, "purge", purge)
