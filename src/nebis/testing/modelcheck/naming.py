"""One form for all situations that differ only in names: who came first is no behaviour of its own."""

from __future__ import annotations

from typing import NamedTuple

from nebis.testing.modelcheck.table import Renaming, Table
from nebis.testing.modelcheck.theorems import Theorems
from nebis.testing.modelcheck.world import NOBODY, Ack, Attempt, Body, Entry, Message, Past, Situation


class _Actors(NamedTuple):
    """The part of a situation that decides all names, in canonical form."""

    records: tuple[int, ...]
    attempts: tuple[Attempt, ...]
    sent: tuple[Message, ...]
    names: Renaming
    fences: Renaming
    lives: frozenset[int]
    """The lives, by their old names, that anybody can still touch."""


class Naming:
    """The canonical form of situations over one table of records."""

    def __init__(self, table: Table, theorems: Theorems, *, keeps_fences: bool) -> None:
        self._table = table
        self._theorems = theorems
        self._keeps_fences = keeps_fences
        self._actors: dict[tuple[object, ...], _Actors] = {}

    def canonical(self, situation: Situation) -> tuple[Situation, Renaming]:
        """Return the situation with names in order of appearance and fences without gaps, and the new names.

        Only equality of names and the order of fences can be seen by anybody, so nothing is lost. What the bank and
        the clients know of a life that nobody can touch any more is dropped, unless it breaks a promise.
        """
        records, attempts, sent, bank, acks, past = situation
        bank_fences = tuple(entry.fence for entry in bank if entry.fence)
        wanted = (records, attempts, sent, bank_fences)
        actors = self._actors.get(wanted)
        if actors is None:
            actors = self._actors[wanted] = self._named(situation, bank_fences)
        fences = actors.fences
        if bank or acks or past:
            bank, acks, past = self._without_the_untouchable(situation, actors.lives)
        names = _with_bystanders(actors.names, bank, acks, past)
        if bank:
            bank = tuple(
                sorted([Entry(names[one[0]], one[1], names[one[2]], one[3], one[4], fences[one[5]]) for one in bank])
            )
        if acks:
            acks = tuple(
                sorted(
                    [
                        Ack(names[life], Body(body.kind, names[body.life], names[body.author]), fault)
                        for life, body, fault in acks
                    ]
                )
            )
        if past:
            past = tuple(sorted([Past(names[life], kind) for life, kind in past]))
        return Situation(actors.records, actors.attempts, actors.sent, bank, acks, past), names

    def _without_the_untouchable(
        self, situation: Situation, lives: frozenset[int]
    ) -> tuple[tuple[Entry, ...], tuple[Ack, ...], tuple[Past, ...]]:
        bank = tuple([one for one in situation.bank if one.life in lives])
        acks = tuple([one for one in situation.acks if one.life in lives])
        past = tuple([one for one in situation.past if one.life in lives])
        is_less = (len(bank), len(acks), len(past)) != (len(situation.bank), len(situation.acks), len(situation.past))
        if is_less and self._theorems.violation(situation) is not None:
            return situation.bank, situation.acks, situation.past
        return bank, acks, past

    def _named(self, situation: Situation, bank_fences: tuple[int, ...]) -> _Actors:
        faces = [self._table.faces[record] for record in situation.records]
        attempts = sorted(situation.attempts, key=lambda one: self._shape_of_attempt(situation, one))
        sent = sorted(situation.sent, key=lambda one: self._shape_of_message(situation, one))
        actors: list[Attempt | Message] = [*attempts, *sent]
        mentioned = [name for face in faces for name in face.names]
        for one in actors:
            mentioned += (one.life, one.name, one.key)
        names = _in_order_of_appearance(mentioned)
        fences = self._ranks({*bank_fences, *(face.fence for face in faces), *(one.fence for one in actors)})
        lives = frozenset({*(face.life for face in faces), *(one.life for one in actors)})
        records = tuple([self._table.renamed(record, names, fences) for record in situation.records])
        return _Actors(
            records=records,
            attempts=tuple(sorted([_renamed_attempt(one, names, fences) for one in attempts])),
            sent=tuple(sorted([_renamed_message(one, names, fences) for one in sent])),
            names=names,
            fences=fences,
            lives=lives,
        )

    def _ranks(self, fences: set[int]) -> Renaming:
        highest = max(fences)
        if self._keeps_fences:
            return tuple(range(highest + 1))
        ranks = [0] * (highest + 1)
        for rank, fence in enumerate(sorted({0, *fences})):
            ranks[fence] = rank
        return tuple(ranks)

    def _shape_of_attempt(self, situation: Situation, one: Attempt) -> tuple[object, ...]:
        """Return what tells an attempt from others without its name."""
        face = self._table.faces[situation.records[one.tenant]]
        return (*one[0:1], *one[3:9], one.name == face.name, one.life == face.life, one.name == one.life)

    def _shape_of_message(self, situation: Situation, one: Message) -> tuple[object, ...]:
        face = self._table.faces[situation.records[one.tenant]]
        return (*one[0:2], *one[4:6], one.command, one.name == face.name, one.life == face.life)


def _renamed_attempt(one: Attempt, names: Renaming, fences: Renaming) -> Attempt:
    at, name, life, fence, tenant, command, view, again, said, key = one
    return Attempt(at, names[name], names[life], fences[fence], tenant, command, view, again, said, names[key])


def _renamed_message(one: Message, names: Renaming, fences: Renaming) -> Message:
    verb, tenant, name, life, fence, about, key, command = one
    return Message(verb, tenant, names[name], names[life], fences[fence], about, names[key], command)


def _in_order_of_appearance(mentioned: list[int]) -> Renaming:
    """Return new names; the last place is that of nobody, so that the index -1 finds it."""
    order: dict[int, int] = {}
    for name in mentioned:
        if name != NOBODY:
            order.setdefault(name, len(order))
    names = [NOBODY] * (max(order, default=-1) + 2)
    for old, new in order.items():
        names[old] = new
    return tuple(names)


def _with_bystanders(
    names: Renaming, bank: tuple[Entry, ...], acks: tuple[Ack, ...], past: tuple[Past, ...]
) -> Renaming:
    """Return the names with those added that only the bank or a client still remembers."""
    mentioned = [name for entry in bank for name in (entry.life, entry.key)]
    mentioned += [name for ack in acks for name in (ack.life, ack.body.life, ack.body.author)]
    mentioned += [one.life for one in past]
    known = len(names) - 1
    missing = [name for name in mentioned if name >= known or names[name] == NOBODY]
    if not missing:
        return names
    extended = [*names[:-1], *([NOBODY] * (max(missing) + 2 - known))]
    following = max(extended) + 1
    for name in missing:
        if extended[name] == NOBODY:
            extended[name] = following
            following += 1
    return tuple(extended)
