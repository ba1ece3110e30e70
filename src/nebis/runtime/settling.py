"""What is said last in a transaction, in both worlds."""

from __future__ import annotations

from collections.abc import Callable

from nebis.core.answers import Answer, Locked
from nebis.core.verbs import Complete
from nebis.flow import Flow
from nebis.ports.asks import TransactionSettle
from nebis.ports.inbox import Inbox
from nebis.ports.outbox import outbox_of
from nebis.ports.store import Store


def settling(
    ask: TransactionSettle, store: Store, beside: Callable[[Inbox], Flow[None]] | None
) -> Flow[Answer | Locked]:
    """Write the outcome with its messages, and whatever an intake keeps beside it."""
    if beside is not None and isinstance(ask.verb, Complete):
        yield from beside(store)
    if ask.messages:
        return (yield from outbox_of(store).apply_and_stage(ask.verb, ask.messages))
    [answer] = yield from store.apply([ask.verb])
    return answer
