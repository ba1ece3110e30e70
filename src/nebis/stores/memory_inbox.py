"""What the reference store keeps for consumers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar
from uuid import UUID

from nebis.flow import Ask, Flow
from nebis.ports.history import AuditLine, Signed
from nebis.ports.inbox import ParkDecision, ParkedLetter, Place, Progress

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Touch(Ask[R]):
    """One indivisible look at, or change of, the memory."""

    name: str
    act: Callable[[], R]


class MemoryInbox:
    """The inbox part of a memory store."""

    _audits: list[AuditLine]

    def __init__(self) -> None:
        self._parked: dict[UUID, ParkedLetter] = {}
        self._progress: dict[tuple[str, str], Progress] = {}

    def _instant(self, now: int | None) -> int:
        raise NotImplementedError

    def park(self, parked: ParkedLetter, *, now: int | None = None) -> Flow[None]:
        """Keep a message, or give one that is kept already its new reason."""

        def act() -> None:
            instant = self._instant(now)
            known = self._parked.get(parked.letter.parked_id)
            self._parked[parked.letter.parked_id] = replace(
                parked,
                letter=parked.letter if known is None else known.letter,
                parked_at=instant if known is None else known.parked_at,
                updated_at=instant,
            )

        return (yield from Touch("park", act))

    def unpark(self, parked_id: UUID) -> Flow[bool]:
        """Let go of a parked message."""
        return (yield from Touch("unpark", lambda: self._parked.pop(parked_id, None) is not None))

    def decide_parked(
        self, parked_id: UUID, decision: ParkDecision, signed: Signed, *, now: int | None = None
    ) -> Flow[bool]:
        """Do what a person asked for and write it down."""

        def act() -> bool:
            known = self._parked.get(parked_id)
            if known is not None and decision is ParkDecision.RETRY:
                self._parked[parked_id] = replace(known, is_due=True, updated_at=0)
            elif known is not None:
                del self._parked[parked_id]
            answer = "absent" if known is None else "done"
            self._audits.append(AuditLine(at=self._instant(now), signed=signed, answer=answer))
            return known is not None

        return (yield from Touch("decide_parked", act))

    def find_parked(self, parked_id: UUID) -> Flow[ParkedLetter | None]:
        """Read one parked message."""
        return (yield from Touch("find_parked", lambda: self._parked.get(parked_id)))

    def list_parked(
        self, *, consumer: str | None = None, after: tuple[int, UUID] | None = None, limit: int = 100
    ) -> Flow[list[ParkedLetter]]:
        """Read one page of parked messages without their payloads."""

        def act() -> list[ParkedLetter]:
            page = sorted(
                (
                    parked
                    for parked in self._parked.values()
                    if (consumer is None or parked.letter.consumer == consumer)
                    and (after is None or _order(parked) > after)
                ),
                key=_order,
            )
            return [replace(parked, letter=replace(parked.letter, payload=None)) for parked in page[:limit]]

        return (yield from Touch("list_parked", act))

    def due_letters(self, consumer: str, *, before: int, limit: int = 100) -> Flow[list[UUID]]:
        """Read which messages are to be sent in again."""

        def act() -> list[UUID]:
            due = [
                (parked.updated_at, parked.letter.parked_id)
                for parked in self._parked.values()
                if parked.is_due and parked.letter.consumer == consumer and parked.updated_at < before
            ]
            return [parked_id for _, parked_id in sorted(due)[:limit]]

        return (yield from Touch("due_letters", act))

    def count_parked(self) -> Flow[dict[str, int]]:
        """Count parked messages by consumer."""

        def act() -> dict[str, int]:
            counts: dict[str, int] = {}
            for parked in self._parked.values():
                counts[parked.letter.consumer] = counts.get(parked.letter.consumer, 0) + 1
            return counts

        return (yield from Touch("count_parked", act))

    def progress(self, consumer: str, partition: str) -> Flow[Progress | None]:
        """Read how far a consumer has applied a partition."""
        return (yield from Touch("progress", lambda: self._progress.get((consumer, partition))))

    def progresses(self, consumer: str | None = None) -> Flow[list[Progress]]:
        """Read how far consumers are."""

        def act() -> list[Progress]:
            return [known for key, known in sorted(self._progress.items()) if consumer in (None, key[0])]

        return (yield from Touch("progresses", act))

    def advance(self, place: Place, *, now: int | None = None) -> Flow[None]:
        """Write down that an offset is applied."""

        def act() -> None:
            key = (place.consumer, place.partition)
            known = self._progress.get(key)
            if known is not None and place.offset <= known.last_offset:
                return
            is_gap = known is not None and place.offset > known.last_offset + 1
            self._progress[key] = Progress(
                consumer=place.consumer,
                partition=place.partition,
                last_offset=place.offset,
                gaps=(0 if known is None else known.gaps) + is_gap,
                gap=(known.last_offset + 1, place.offset - 1)
                if known is not None and is_gap
                else (None if known is None else known.gap),
                updated_at=self._instant(now),
            )

        return (yield from Touch("advance", act))


def _order(parked: ParkedLetter) -> tuple[int, UUID]:
    return (parked.parked_at, parked.letter.parked_id)
