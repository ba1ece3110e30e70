"""Harnesses of the stores that ship with Nebis."""

from nebis.stores.memory import MemoryStore, open_blocking
from nebis.testing.conformance import Connection, Harness, connection_of


class MemoryHarness(Harness):
    def __init__(self) -> None:
        self._store = MemoryStore()

    def fresh(self) -> Connection:
        self._store = MemoryStore()
        return self.connect()

    def connect(self) -> Connection:
        return connection_of(open_blocking(self._store))
