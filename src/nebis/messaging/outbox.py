"""Staging outside of any attempt: a message in a transaction that the application begins and ends by itself."""

from __future__ import annotations

from datetime import datetime
from typing import TypedDict, Unpack
from uuid import uuid4

from nebis.aio import AsyncNebis
from nebis.errors import MisuseError, StoreUnavailable
from nebis.flows.stage import Headers, new_message
from nebis.ports.outbox import outbox_of
from nebis.ports.store import Store, StoreFailure
from nebis.sync import Nebis


class Details(TypedDict, total=False):
    """What may be said of a message besides its topic and payload."""

    headers: Headers | None
    content_type: str | None
    ordering_key: str | None
    available_at: datetime | None


def stage(
    nebis: Nebis,
    connection: object,
    topic: str,
    payload: object,
    *,
    id: str | None = None,  # noqa: A002 - the word of every broker.
    **details: Unpack[Details],
) -> str:
    """Have a message published once the connection's open transaction has committed; return its id.

    Code that may run twice gives the `id`: while the first message is remembered a second one with its id is not
    staged. Without one it is random. Raises `MisuseError` for what cannot be published and for a connection without a
    transaction, `StoreUnavailable` if the store refused; then the transaction can only be rolled back.
    """
    world, _ = nebis.opened()
    if world.backend.lend is None:
        raise _no_transactions(world.backend.store)
    message = new_message(topic, payload, id=str(uuid4()) if id is None else id, **details)
    try:
        world.backend.lend(connection, outbox_of(world.backend.store).stage([message]))
    except StoreFailure as failure:
        raise StoreUnavailable(failure.detail) from failure
    return message.id


async def stage_async(
    nebis: AsyncNebis,
    connection: object,
    topic: str,
    payload: object,
    *,
    id: str | None = None,  # noqa: A002 - the word of every broker.
    **details: Unpack[Details],
) -> str:
    """Do as `stage` does, on a connection of asyncio."""
    world, _ = await nebis.opened()
    if world.backend.lend is None:
        raise _no_transactions(world.backend.store)
    message = new_message(topic, payload, id=str(uuid4()) if id is None else id, **details)
    try:
        await world.backend.lend(connection, outbox_of(world.backend.store).stage([message]))
    except StoreFailure as failure:
        raise StoreUnavailable(failure.detail) from failure
    return message.id


def _no_transactions(store: Store) -> MisuseError:
    return MisuseError(f"The {store.capabilities.name} store has no transactions; use PostgreSQL or SQLite.")
