"""Everything that a store knows about one record, except what it must not show: its key, its command and its bodies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from nebis.cli.advice import Advice
from nebis.cli.phrases import (
    STATE_STYLES,
    STATE_WORDS,
    instant,
    key_hint,
    lease,
    resource_name,
    span,
    summary,
    timestamp,
    visible,
)
from nebis.core.answers import Grant
from nebis.core.claiming import DOUBT_LEASE_LAPSED, DOUBT_RECOVERIES_USED_UP
from nebis.core.record import Effect, EffectsMode, Record, State
from nebis.ports.history import AttemptNote, AuditLine, LateResult

_HOW: Final = {
    Grant.NEW: "began it",
    Grant.RUN_AGAIN: "began it anew",
    Grant.AVAILABLE: "started over, as nothing had happened",
    Grant.TAKEN_OVER: "started over, as nothing had happened",
    Grant.RESUMED: "went on from what was recorded",
    Grant.OWN: "began it",
}
_DOUBTED_BY_OTHERS: Final = frozenset({DOUBT_LEASE_LAPSED, DOUBT_RECOVERIES_USED_UP})
"""Every other doubt was the last word of the owner itself."""
_MODES: Final = {
    EffectsMode.LOCAL: "local: everything goes through its transaction",
    EffectsMode.DECLARED: "declared",
    EffectsMode.OPAQUE: "opaque: nothing is known of what it does",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Portrait:
    """A record and its history, at one instant of the store's clock."""

    record: Record
    now: int
    attempts: Sequence[AttemptNote] = ()
    late_results: Sequence[LateResult] = ()
    audits: Sequence[AuditLine] = ()

    @property
    def owner(self) -> AttemptNote | None:
        """Return who holds the record, or held it last, if that was written down."""
        return next((note for note in self.attempts if note.fence == self.record.fence), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One labelled line."""

    label: str
    text: str
    style: str = ""


def facts(portrait: Portrait) -> Iterator[Line]:
    """Say what the record is and who holds it."""
    record = portrait.record
    yield Line(label="operation", text=visible(record.operation), style="bold")
    yield Line(label="tenant", text=visible(record.tenant))
    yield Line(label="key", text=f"{key_hint(record.key)} in {visible(record.scope)}")
    yield Line(label="effects", text=_MODES[record.mode])
    if record.resource is not None:
        yield Line(label="resource", text=resource_name(record))
    by_workers = f", {record.recoveries} of them by workers" if record.recoveries else ""
    yield Line(label="attempts", text=f"{record.attempts}{by_workers}; fence {record.fence}")
    if record.is_undoing:
        yield Line(label="undoing", text="it was rejected half-way, and what happened is being undone", style="yellow")
    if record.state is State.IN_PROGRESS:
        yield Line(label="lease", text=lease(record, portrait.now), style="yellow" if _is_late(portrait) else "")
    if record.state in (State.IN_PROGRESS, State.IN_DOUBT):
        yield Line(label="owner", text=_owner(portrait))
    if record.state is State.IN_DOUBT:
        yield Line(label="calls", text=_calls(record, portrait.now))
    if record.outcome is not None and record.outcome_kind is not None:
        yield Line(label="outcome", text=f"{record.outcome_kind.value}, {len(record.outcome)} bytes stored")
    elif record.outcome_kind is not None:
        yield Line(label="outcome", text=f"{record.outcome_kind.value}; its answer is no longer kept")


def _is_late(portrait: Portrait) -> bool:
    return portrait.record.has_lapsed(portrait.now)


def _owner(portrait: Portrait) -> str:
    owner = portrait.owner
    if owner is None:
        return "not known: an attempt is written down once it has lived for a second"
    record = portrait.record
    heard_at = max(owner.started_at, min(record.lease_until - owner.lease_us, portrait.now))
    if record.doubt_since is not None and record.doubt_reason not in _DOUBTED_BY_OTHERS:
        heard_at = max(heard_at, record.doubt_since)
    ago = span(portrait.now - heard_at)
    return f"{visible(owner.host)}, pid {owner.pid}; last sign of life at {instant(heard_at)} at the latest, {ago} ago"


def _calls(record: Record, now: int) -> str:
    if record.mode is EffectsMode.OPAQUE:
        return "nobody knows when they end: the operation is opaque"
    ended = "ended" if record.has_lapsed(now) else "ends"
    return f"its effect timeout {ended} by {instant(record.lease_until)}; a process that was paused may call even later"


def effects(portrait: Portrait) -> Iterator[Line]:
    """Say what is known of each effect, in the order of their intents."""
    for effect in portrait.record.effects:
        is_settled = portrait.record.state in (State.COMPLETED, State.EXPIRED)
        style = "bold red" if effect.is_open and not is_settled else ""
        yield Line(label=visible(effect.name), text=_known(effect, portrait.now), style=style)


def _known(effect: Effect, now: int) -> str:
    kind = effect.effect_class.value.replace("_", "-")
    if effect.is_voided:
        return f"{kind}; did not happen, and its key was burnt downstream"
    if effect.verdict is not None:
        return f"{kind}; {effect.verdict.value.replace('_', ' ')}, {len(effect.result or b'')} bytes kept"
    told = f"{kind}; open since its intent: nobody knows whether it happened"
    if effect.is_outstanding:
        told += "; an earlier call may still land"
    if effect.recall_until is not None:
        tense = "remembers" if now < effect.recall_until else "remembered"
        told += f"; the downstream {tense} its key until {instant(effect.recall_until)}"
    return f"{told}; asked for under {visible(effect.derived_key)}"


def timeline(portrait: Portrait) -> list[Line]:
    """Return what happened, and what will, in order."""
    moments = sorted(_moments(portrait), key=lambda moment: moment[0])
    return [Line(label=instant(at), text=text, style=style) for at, text, style in moments]


def _moments(portrait: Portrait) -> Iterator[tuple[int, str, str]]:
    record, now = portrait.record, portrait.now
    yield record.created_at, "claimed", ""
    for note in portrait.attempts:
        yield note.started_at, f"{visible(note.host)}, pid {note.pid}, {_HOW[note.how]} (fence {note.fence})", ""
    if record.state is State.IN_PROGRESS:
        text = "lease ended, and nobody renewed it" if record.has_lapsed(now) else "lease ends, unless it is renewed"
        yield record.lease_until, text, "yellow" if record.has_lapsed(now) else "dim"
    if record.doubt_since is not None:
        yield record.doubt_since, f"in doubt: {visible(record.doubt_reason or '')}", "bold red"
    if record.completed_at is not None and record.outcome_kind is not None:
        yield record.completed_at, f"completed: {record.outcome_kind.value}", "green"
    yield from _left_behind(portrait.late_results, portrait.audits)
    yield from _retention(record, now)


def remains(late_results: Sequence[LateResult], audits: Sequence[AuditLine]) -> list[str]:
    """Return what is left of a record that is gone, as plain text."""
    moments = sorted(_left_behind(late_results, audits), key=lambda moment: moment[0])
    return [f"{instant(at)}  {text}" for at, text, _ in moments]


def _left_behind(late_results: Sequence[LateResult], audits: Sequence[AuditLine]) -> Iterator[tuple[int, str, str]]:
    for late in late_results:
        whose = "of the operation" if late.effect is None else f"of {visible(late.effect)!r}"
        text = f"result {whose} came too late from fence {late.fence}: {len(late.body)} bytes kept, not used"
        yield late.kept_at, text, "yellow"
    for line in audits:
        yield line.at, _audited(line), "magenta"


def _audited(line: AuditLine) -> str:
    signed = line.signed
    return (
        f"{visible(signed.who)}: {visible(signed.what)}: {line.answer.replace('_', ' ')} "
        f"(fence seen {signed.fence_seen or 'unknown'}; {visible(signed.reason)})"
    )


def _retention(record: Record, now: int) -> Iterator[tuple[int, str, str]]:
    if record.state is State.AVAILABLE:
        yield record.expires_at, "is removed, if nobody asks for it", "dim"
    if record.state in (State.COMPLETED, State.EXPIRED):
        yield record.expires_at, "answer expires" if now < record.expires_at else "answer expired", "dim"
        yield record.forget_at, "how it ended is forgotten too", "dim"


def lines(portrait: Portrait, advised: Sequence[Advice]) -> list[str]:
    """Return everything as plain text."""
    told = [f"{portrait.record.record_id}  {STATE_WORDS[portrait.record.state]}"]
    for title, section in _sections(portrait):
        width = max(len(line.label) for line in section)
        told += ["", title, *(f"  {line.label:<{width}}  {line.text}" for line in section)]
    told += ["", "what you can do next"]
    for each in advised:
        told.append(f"  {each.text}")
        if each.command is not None:
            told.append(f"    {each.command}")
    return told


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of what a terminal shows."""

    picture: RenderableType
    is_whole: bool = False
    """A command that is broken into lines cannot be copied."""


def painted(portrait: Portrait, advised: Sequence[Advice]) -> Iterator[Part]:
    """Return everything for a terminal."""
    heading = Text(f"{portrait.record.record_id}  ", style="bold")
    heading.append(STATE_WORDS[portrait.record.state], style=STATE_STYLES[portrait.record.state])
    yield Part(heading)
    for title, section in _sections(portrait):
        grid = Table.grid(padding=(0, 2))
        grid.add_column(no_wrap=True)
        grid.add_column(overflow="fold")
        for line in section:
            grid.add_row(Text(line.label, style="dim"), Text(line.text, style=line.style))
        yield Part(Text(f"\n{title}", style="bold"))
        yield Part(Padding(grid, (0, 0, 0, 2)))
    yield Part(Text("\nwhat you can do next", style="bold"))
    for each in advised:
        yield Part(Padding(Text(each.text), (0, 0, 0, 2)))
        if each.command is not None:
            yield Part(Text(f"    {each.command}", style="cyan"), is_whole=True)


def _sections(portrait: Portrait) -> Iterator[tuple[str, list[Line]]]:
    for title, section in (
        ("record", facts(portrait)),
        ("effects", effects(portrait)),
        ("timeline", timeline(portrait)),
    ):
        found = list(section)
        if found:
            yield title, found


def as_json(portrait: Portrait, advised: Sequence[Advice]) -> dict[str, object]:
    """Return everything for programs."""
    record = portrait.record
    return {
        **summary(record, portrait.now),
        "scope": record.scope,
        "is_undoing": record.is_undoing,
        "may_resume": record.may_resume(portrait.now),
        "completed_at": timestamp(record.completed_at),
        "expires_at": timestamp(record.expires_at),
        "forget_at": timestamp(record.forget_at),
        "outcome_bytes": None if record.outcome is None else len(record.outcome),
        "effect_list": [
            {
                "name": effect.name,
                "class": effect.effect_class.value,
                "verdict": effect.verdict,
                "is_outstanding": effect.is_outstanding,
                "recall_until": timestamp(effect.recall_until),
                "derived_key": effect.derived_key if effect.is_open else None,
                "result_bytes": None if effect.result is None else len(effect.result),
            }
            for effect in record.effects
        ],
        "attempt_list": [
            {
                "fence": note.fence,
                "started_at": timestamp(note.started_at),
                "host": note.host,
                "pid": note.pid,
                "how": note.how.value,
            }
            for note in portrait.attempts
        ],
        "late_results": [
            {"fence": late.fence, "effect": late.effect, "kept_at": timestamp(late.kept_at), "bytes": len(late.body)}
            for late in portrait.late_results
        ],
        "audit": [
            {
                "at": timestamp(line.at),
                "who": line.signed.who,
                "what": line.signed.what,
                "reason": line.signed.reason,
                "fence_seen": line.signed.fence_seen,
                "answer": line.answer,
            }
            for line in portrait.audits
        ],
        "next": [{"text": each.text, "command": each.command} for each in advised],
    }
