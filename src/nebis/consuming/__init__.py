"""Consumers: operations that run once per message."""

from __future__ import annotations

from nebis.consuming.blocking import Consumer
from nebis.consuming.eventloop import AsyncConsumer
from nebis.consuming.intake import ATTEMPTS_LIMIT, Dedup, declare_consumer

__all__ = ["ATTEMPTS_LIMIT", "AsyncConsumer", "Consumer", "Dedup", "declare_consumer"]
