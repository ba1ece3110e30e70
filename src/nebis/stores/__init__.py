"""Stores: siblings that fulfil the store port, and `open_blocking` / `open_async`, which pick one by URL scheme."""
