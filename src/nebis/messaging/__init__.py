"""Messages out of and into a service: relay, publishers, sources and consumers."""

from __future__ import annotations

from nebis.flows.relay import Relayed, RelayPolicy
from nebis.messaging.outbox import stage, stage_async
from nebis.messaging.relay import AsyncRelay, Relay
from nebis.ports.messages import Confirmed, Message, Publisher, PublishResult, Refused, Unknown

__all__ = [
    "AsyncRelay",
    "Confirmed",
    "Message",
    "PublishResult",
    "Publisher",
    "Refused",
    "Relay",
    "RelayPolicy",
    "Relayed",
    "Unknown",
    "stage",
    "stage_async",
]
