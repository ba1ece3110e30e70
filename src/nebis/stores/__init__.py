"""Stores: siblings that fulfil the store port, and `open_blocking` / `open_async`, which pick one by URL scheme."""

from nebis.stores.open import open_async, open_blocking

__all__ = ["open_async", "open_blocking"]
