"""How the asks of relays and consumers are performed, each as a message that may befall what the fault list says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nebis.delivery import Delivery
from nebis.flow import Ask, Flow, drive
from nebis.messaging.wire import MESSAGE_ID
from nebis.ports.inbox import AskInbox
from nebis.ports.messages import Confirmed, Message, PublishResult, Refused, Unknown
from nebis.ports.outbox import MarkMessages, MessageState, PublishMessages, ResetPublishers, TakeMessages
from nebis.stores.memory_inbox import MemoryInbox, Touch
from nebis.testing.simulate.broker import Broker, MailBooks
from nebis.testing.simulate.cast import Process
from nebis.testing.simulate.faults import Trouble
from nebis.testing.simulate.mail import (
    RELAYING,
    Acknowledge,
    Consumption,
    Habits,
    ReadNext,
    WriteEntry,
    intake_of,
    read,
)
from nebis.testing.simulate.performing import TO_A_MESSAGE, TO_A_NODE, WAITING, Performer
from nebis.testing.simulate.world import World

_TO_BROKER = TO_A_NODE | TO_A_MESSAGE | {Trouble.SWALLOWED, Trouble.UNCONFIRMED, Trouble.BELATED}
_TO_READER = TO_A_NODE | {Trouble.TWICE}
_STRUCK = 0.7
"""How many messages of a batch share the trouble of their batch."""


class SimulatedInbox(MemoryInbox):
    """The reference inbox, on the clock of the simulated store."""

    def __init__(self, clock: Callable[[], int]) -> None:
        super().__init__()
        self._clock = clock

    def _instant(self, now: int | None) -> int:
        return self._clock() if now is None else now


class Mail:
    """Everything about messages in one world."""

    def __init__(self, world: World, performer: Performer, habits: Habits) -> None:
        self.habits = habits
        self.broker = Broker()
        self.books: MailBooks = world.oracle.books
        self._world = world
        self._performer = performer
        self._inbox = SimulatedInbox(world.clock)
        world.store.outbox.takes_heads_first = habits.takes_heads_first
        performer.learn(
            {
                TakeMessages: self._take,
                MarkMessages: self._mark,
                PublishMessages: self._publish,
                ResetPublishers: lambda _, __: (True, None),
                AskInbox: lambda process, ask: performer.send(process, lambda: self._touch(ask.act)),
                ReadNext: self._read_next,
                Acknowledge: self._acknowledge,
                WriteEntry: self._write_entry,
            }
        )

    @property
    def is_carried(self) -> bool:
        """Tell whether every message was published, and every log read to its end."""
        return all(
            entry.state is MessageState.PUBLISHED for entry in self._world.store.outbox.entries.values()
        ) and all(self.broker.done[log] == len(messages) for log, messages in self.broker.logs.items())

    def readers(self) -> list[Flow[None]]:
        """Return a new reader for each log, from where the broker knows that it was read."""
        intake = intake_of(self.habits)
        return [read(log, self.broker.done[log], intake) for log in list(self.broker.logs)]

    def _take(self, process: Process, ask: TakeMessages) -> tuple[bool, Any]:
        outbox = self._world.store.outbox
        return self._performer.send(process, lambda: outbox.take(process.name, limit=ask.limit, lease_us=ask.lease_us))

    def _mark(self, process: Process, ask: MarkMessages) -> tuple[bool, Any]:
        return self._performer.send(process, lambda: self._world.store.outbox.mark(process.name, ask.marks))

    def _touch(self, act: Callable[[Any], Any]) -> Any:
        def perform(ask: Ask[Any]) -> Any:
            assert isinstance(ask, Touch)
            return ask.act()

        return drive(act(self._inbox), perform)

    def _publish(self, process: Process, ask: PublishMessages) -> tuple[bool, Any]:
        """Carry a batch to the broker; of each message the relay is told what it can know."""
        world, chance = self._world, self._world.chance
        fault = self._performer.befallen(process, _TO_BROKER)
        if not process.is_alive:
            return WAITING
        timeout_seconds = RELAYING.publish_timeout.total_seconds()
        waits = world.moment() + world.moment()
        results: list[PublishResult] = []
        for message in ask.messages:
            is_struck = fault is not None and chance.random() < _STRUCK
            trouble = fault.trouble if fault is not None and is_struck else None
            seconds = fault.seconds if fault is not None else 0.0
            match trouble:
                case Trouble.LOST | Trouble.SWALLOWED:
                    results.append(Unknown(reason="no answer"))
                case Trouble.REFUSED:
                    results.append(Refused(reason="not now"))
                case Trouble.LATE | Trouble.SLOW | Trouble.BELATED:
                    results.append(Unknown(reason="no answer"))
                    self._send_at(seconds, message)
                case Trouble.REPLY_LOST | Trouble.UNCONFIRMED:
                    results.append(Unknown(reason="no answer"))
                    self._send_at(world.moment(), message)
                case _:
                    results.append(Confirmed())
                    # In the order of the batch, as it went over one connection.
                    self._send_at(waits / 2, message)
        if fault is not None and fault.trouble is Trouble.CRASH_AFTER:
            world.later(waits / 2, lambda: world.crash(process.node) if process.is_alive else None)
        elif any(isinstance(result, Unknown) for result in results):
            world.reply(process, timeout_seconds, results)
        else:
            world.reply(process, waits, results)
        return WAITING

    def _send_at(self, seconds: float, message: Message) -> None:
        def arrive() -> None:
            self.books.arrived(message)
            self.broker.append(message)

        self._world.later(seconds, arrive)

    def _read_next(self, process: Process, ask: ReadNext) -> tuple[bool, Any]:
        fault = self._performer.befallen(process, _TO_READER)
        if not process.is_alive:
            return WAITING
        log, offset = self.broker.logs[ask.partition], ask.offset
        if fault is not None and log:
            offset = self._world.chance.randrange(min(offset + 1, len(log)))
        delivery = None if offset >= len(log) else self._delivery(ask.partition, offset, log[offset])
        self._world.reply(process, self._world.moment(), delivery)
        return WAITING

    def _delivery(self, partition: str, offset: int, message: Message) -> Delivery:
        deliveries = self.broker.deliveries
        deliveries[(partition, offset)] += 1
        return Delivery(
            payload=message.payload,
            topic=message.topic,
            id=message.id,
            content_type=message.content_type,
            headers={**dict(message.headers), MESSAGE_ID: message.id},
            partition=partition,
            offset=offset,
            redeliveries=deliveries[(partition, offset)] - 1 if self.habits.counts else None,
        )

    def _acknowledge(self, process: Process, ask: Acknowledge) -> tuple[bool, Any]:
        return self._performer.send(process, lambda: self.broker.acknowledge(ask.partition, ask.offset))

    def _write_entry(self, process: Process, ask: WriteEntry) -> tuple[bool, Any]:
        opened, world = process.transaction, self._world
        assert opened is not None
        self._performer.befallen(process, TO_A_NODE)
        incoming = ask.incoming
        opened.write(lambda: self.books.written(incoming.id, incoming.payload))
        consumption = process.turn
        assert isinstance(consumption, Consumption)
        beside = consumption.intake.declaration.beside(incoming)
        if beside is not None:
            opened.write(lambda: self._touch(beside))
        world.reply(process, world.moment())
        return WAITING
