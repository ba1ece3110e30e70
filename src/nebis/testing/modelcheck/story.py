"""A counterexample as numbered sentences: who did what, what came back, and what the world then shows."""

from __future__ import annotations

from nebis.core.record import EffectsMode, State
from nebis.testing.modelcheck.search import Finding, Search
from nebis.testing.modelcheck.surroundings import CLOCK, RESOLVER
from nebis.testing.modelcheck.table import Face, Renaming
from nebis.testing.modelcheck.world import NOBODY, Situation, Told, times_happened

DEEDS = {
    "request": "arrives as a request{about}",
    "worker": "comes by as a worker and finds the record in progress",
    "claim": "claims the key",
    "take_over": "asks to take the record over",
    "intend": "writes down that it will call {about}",
    "call": "calls the bank for {about}",
    "cannot call": "cannot reach the bank for {about}",
    "checkpoint": "reports {about}",
    "local": "reports {about}",
    "commit": "commits its rows and {about}",
    "transaction": "claims, writes its rows and completes with {about} in one transaction",
    "complete": "completes with {about}",
    "turn_back": "turns back",
    "suspend": "suspends",
    "release": "gives the key back",
    "withdraw": "withdraws its claim",
    "doubt": "says that it cannot tell",
    "die": "dies",
    "fail": "meets an error and stops",
    "reject": "finds a reason to reject the command",
    "cannot undo": "was refused its undo and stops",
    "read again": "reads the row again, behind its lock",
    "answer too early": "answers its client before anything is stored",
    "resolve": "says of the doubt: {about}",
    "expire": "ends the outcome's window",
    "purge": "purges the row",
    "forget": "forgets the tombstone",
    "forget keys": "ends the bank's memory of derived keys",
}
LETTERS = {"S": "success", "R": "a rejection", "U": "outcome unknown", "H": "happened", "N": "its call never left"}
WORDS = LETTERS | {
    "happened": "it happened",
    "rejected": "it was rejected",
    "not": "the bank shows nothing now",
    "not voided": "it did not happen, and the bank burnt its key",
    "not owner dead": "it did not happen, and nobody is left who could call",
    "again": "it may be called again",
}
SAID = {
    "H": "The bank answers that it happened.",
    "R": "The bank rejects it.",
    "stale": "The bank has seen a higher fence.",
    "": "",
}


class _Cast:
    """Everybody's name in the story, kept although the search renames them all the time."""

    def __init__(self) -> None:
        self._names: dict[int, str] = {}
        self._count = 0

    def name(self, number: int) -> str:
        if number not in self._names:
            self._names[number] = chr(ord("A") + self._count)
            self._count += 1
        return self._names[number]

    def rename(self, names: Renaming) -> None:
        self._names = {
            names[old]: name for old, name in self._names.items() if old < len(names) - 1 and names[old] != NOBODY
        }


def tell(search: Search, finding: Finding) -> str:
    """Return the shortest way to a broken promise as a story."""
    cast = _Cast()
    lines = [f"{finding.violation.name}: {finding.violation.value}. ({search.configuration.name})"]
    for place, (before, after) in enumerate(zip(finding.path, finding.path[1:], strict=False), start=1):
        for move in search.moves(before):
            number, names = search.led_to(move.situation)
            if number == after:
                deed = _deed(move.told, cast)
                cast.rename(names)
                shown = _shown(search, search.situations[after], cast)
                lines.append(f"{place:3}. {deed} {shown}".rstrip())
                break
    return "\n".join(lines)


def _deed(told: Told, cast: _Cast) -> str:
    who = {RESOLVER: "The resolver", CLOCK: "Time"}.get(told.who) or cast.name(told.who)
    what = told.what.removeprefix("late ")
    sentence = f"{who} {DEEDS[what].format(about=_about(what, told.about))}."
    if what != told.what:
        sentence = f"A message arrives late: {sentence}"
    if what == "call" and told.answer in SAID:
        return f"{sentence} {SAID[told.answer]}"
    return f"{sentence} [{told.answer}]" if told.answer else sentence


def _about(what: str, about: str) -> str:
    if what == "resolve":
        word, _, step = about.partition("/")
        return WORDS.get(word, word) + (f" ({_effect(step)})" if step else "")
    if what in ("checkpoint", "local"):
        return f"{_effect(about[:-1])}: {LETTERS[about[-1]]}"
    if what == "commit" and about not in LETTERS:
        return _effect(about[:-1])
    if what == "intend" and about.endswith("+"):
        return f"{_effect(about[:-1])} again"
    if what == "request":
        tenant, _, command = about.partition("/")
        return f" (tenant {tenant}, command {command})" if about != "0/0" else ""
    return LETTERS.get(about) or (_effect(about) if about else "")


def _effect(step: str) -> str:
    return f"the undo of effect {step[1:]}" if step.startswith("u") else f"effect {step}"


def _shown(search: Search, situation: Situation, cast: _Cast) -> str:
    """Say what the store, the bank and the clients show after a move."""
    is_opaque = search.plan.mode is EffectsMode.OPAQUE
    rows = [_row(search.table.faces[record], cast, is_opaque=is_opaque) for record in situation.records]
    parts = ["store: " + ", ".join(rows)]
    for life in sorted({entry.life for entry in situation.bank}):
        steps = sorted({entry.step for entry in situation.bank if entry.life == life})
        counts = ", ".join(f"{_effect(step)} x{times_happened(situation.bank, life, step)}" for step in steps)
        parts.append(f"bank for life {cast.name(life)}: {counts}")
    if situation.acks:
        told = [
            f"{LETTERS.get(ack.body.kind, 'nothing')} made by {cast.name(ack.body.author)}" for ack in situation.acks
        ]
        parts.append("clients were told: " + ", ".join(told))
    if situation.sent:
        underway = [f"{message.verb} of {cast.name(message.name)}" for message in situation.sent]
        parts.append("on the way: " + ", ".join(underway))
    return "| " + "; ".join(parts)


def _row(face: Face, cast: _Cast, *, is_opaque: bool) -> str:
    if face.state is None:
        return "no record"
    words = f"{face.state.value} (life {cast.name(face.life)}"
    if face.state is State.IN_PROGRESS:
        words += f", owner {cast.name(face.name)}"
    if face.view.strip(".") and not is_opaque:
        words += f", effects {face.view}"
    return words + ")"
