"""One form for all situations that differ only in names: who came first is no behaviour of its own."""

from __future__ import annotations

from nebis.testing.modelcheck.table import Renaming, Table
from nebis.testing.modelcheck.world import NOBODY, Ack, Attempt, Body, Entry, Message, Past, Situation


class Naming:
    """The canonical form of situations over one table of records."""

    def __init__(self, table: Table, *, keeps_fences: bool) -> None:
        self._table = table
        self._keeps_fences = keeps_fences

    def canonical(self, situation: Situation) -> tuple[Situation, Renaming]:
        """Return the situation with names in order of appearance and fences without gaps, and the new names.

        Only equality of names and the order of fences can be seen by anybody, so nothing is lost. What the bank and
        the clients know of a life that nobody can touch any more is dropped: the theorems held for it until here.
        """
        situation = self._without_the_untouchable(situation)
        fences = self._fences(situation)
        shaped = situation._replace(
            attempts=tuple(sorted(situation.attempts, key=lambda one: self._shape_of_attempt(situation, one))),
            sent=tuple(sorted(situation.sent, key=lambda one: self._shape_of_message(situation, one))),
        )
        names = self._names(shaped)
        if _is_identity(names) and _is_identity(fences):
            return _sorted(shaped), names
        return _sorted(self._renamed(shaped, names, fences)), names

    def _without_the_untouchable(self, situation: Situation) -> Situation:
        faces = self._table.faces
        lives = {faces[record].life for record in situation.records}
        lives.update(attempt.life for attempt in situation.attempts)
        lives.update(message.life for message in situation.sent)
        return situation._replace(
            bank=tuple(entry for entry in situation.bank if entry.life in lives),
            acks=tuple(ack for ack in situation.acks if ack.life in lives),
            past=tuple(past for past in situation.past if past.life in lives),
        )

    def _fences(self, situation: Situation) -> Renaming:
        faces = self._table.faces
        fences = {faces[record].fence for record in situation.records}
        fences.update(attempt.fence for attempt in situation.attempts)
        fences.update(message.fence for message in situation.sent)
        fences.update(entry.fence for entry in situation.bank)
        fences.add(0)
        if self._keeps_fences:
            return tuple(range(max(fences) + 1))
        ranks = [0] * (max(fences) + 1)
        for rank, fence in enumerate(sorted(fences)):
            ranks[fence] = rank
        return tuple(ranks)

    def _shape_of_attempt(self, situation: Situation, one: Attempt) -> tuple[object, ...]:
        face = self._table.faces[situation.records[one.tenant]]
        return (*one[0:1], *one[3:9], one.name == face.name, one.life == face.life, one.name == one.life)

    def _shape_of_message(self, situation: Situation, one: Message) -> tuple[object, ...]:
        face = self._table.faces[situation.records[one.tenant]]
        return (*one[0:2], *one[4:6], one.command, one.name == face.name, one.life == face.life)

    def _names(self, situation: Situation) -> Renaming:
        seen: dict[int, int] = {}
        for record in situation.records:
            for name in self._table.faces[record].names:
                seen.setdefault(name, len(seen))
        for attempt in situation.attempts:
            for name in (attempt.life, attempt.name, attempt.key):
                if name != NOBODY:
                    seen.setdefault(name, len(seen))
        for message in situation.sent:
            for name in (message.life, message.name, message.key):
                if name != NOBODY:
                    seen.setdefault(name, len(seen))
        for entry in situation.bank:
            seen.setdefault(entry.key, len(seen))
        for ack in situation.acks:
            seen.setdefault(ack.body.life, len(seen))
            seen.setdefault(ack.body.author, len(seen))
        names = [NOBODY] * (max(seen, default=-1) + 1)
        for old, new in seen.items():
            names[old] = new
        return tuple(names)

    def _renamed(self, situation: Situation, names: Renaming, fences: Renaming) -> Situation:
        def new(name: int) -> int:
            return NOBODY if name == NOBODY else names[name]

        return Situation(
            records=tuple(self._table.renamed(record, names, fences) for record in situation.records),
            attempts=tuple(
                one._replace(name=new(one.name), life=new(one.life), key=new(one.key), fence=fences[one.fence])
                for one in situation.attempts
            ),
            sent=tuple(
                one._replace(name=new(one.name), life=new(one.life), key=new(one.key), fence=fences[one.fence])
                for one in situation.sent
            ),
            bank=tuple(
                Entry(new(one.life), one.step, new(one.key), one.count, one.memory, fences[one.fence])
                for one in situation.bank
            ),
            acks=tuple(
                Ack(new(one.life), Body(one.body.kind, new(one.body.life), new(one.body.author)), one.fault)
                for one in situation.acks
            ),
            past=tuple(Past(new(one.life), one.kind) for one in situation.past),
        )


def _is_identity(renaming: Renaming) -> bool:
    return all(old == new for old, new in enumerate(renaming))


def _sorted(situation: Situation) -> Situation:
    return situation._replace(
        attempts=tuple(sorted(situation.attempts)),
        sent=tuple(sorted(situation.sent)),
        bank=tuple(sorted(situation.bank)),
        acks=tuple(sorted(situation.acks)),
        past=tuple(sorted(situation.past)),
    )
