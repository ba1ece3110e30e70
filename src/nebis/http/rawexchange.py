"""An answer whose headers are bytes, as ASGI has them: stored and sent again without a detour over text.

It says in fewer steps what `exchange` says: the same bytes are stored, and the same are sent.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias

from nebis.core.quick import maker
from nebis.errors import ResultUnstorable
from nebis.http.exchange import (
    FRAMING,
    HEADS_REMEMBERED,
    NEVER_STORED,
    WITHOUT_BODY,
    Exchange,
    Storage,
    cut,
    head_of,
    kept,
    prefix_of,
)
from nebis.http.headers import decoded, encoded

HeaderList: TypeAlias = list[tuple[bytes, bytes]]

_NEVER_STORED: Final = frozenset(name.encode() for name in NEVER_STORED)


@dataclass(slots=True, eq=False, repr=False)
class RawExchange:
    """An answer as an application sends it, or as it is sent on."""

    status: int
    headers: HeaderList
    body: bytes
    sealed: bytes | None = None
    """What was given to the store for it, if anything was."""
    _first_told: HeaderList | None = None

    def exchange(self) -> Exchange:
        """Return the same answer with headers as text."""
        return Exchange(status=self.status, headers=decoded(self.headers), body=self.body)

    def freeze(self, storage: Storage) -> bytes:
        """Render it to its stored bytes, as `exchange.freeze` does; note beside them what the first caller gets."""
        if len(self.body) > storage.limit_bytes:
            raise ResultUnstorable(f"it has {len(self.body)} bytes, {storage.limit_bytes} are allowed")
        stored, passing = [], []
        names = storage.raw_names
        for name, value in self.headers:
            lowered = name.lower()
            if lowered in names:
                stored.append((lowered, value))
            elif lowered not in _NEVER_STORED:
                passing.append((lowered, value))
        prefix, told = _stored(self.status, tuple(stored), storage.has_body)
        self._first_told = [*told, *passing]
        return prefix + self.body if storage.has_body else prefix

    def first_told(self) -> RawExchange:
        """Return what the first caller gets, once the store has confirmed what was frozen; as `first_told` has it."""
        assert self._first_told is not None
        return _framed(int(self.status), [*self._first_told], self.body)


make_raw: Final = maker(RawExchange)


def raw(exchange: Exchange) -> RawExchange:
    """Return an answer as it is sent."""
    return make_raw(exchange.status, encoded(exchange.framed()), exchange.body)


def replayed(payload: bytes, mark: bytes) -> RawExchange:
    """Read a stored answer back, marked by a header as given before; or raise `RecordCorrupt`."""
    head, body = cut(payload)
    status, headers = _marked(head, mark, bool(body))
    return _framed(status, [*headers], body)


def _framed(status: int, headers: HeaderList, body: bytes) -> RawExchange:
    """Add the length of the body to headers that have no framing yet."""
    if status not in WITHOUT_BODY:  # What is stored is no 1xx.
        headers.append((b"content-length", b"%d" % len(body)))
    return make_raw(status, headers, body)


class _Stored(NamedTuple):
    """What is stored before a body, and the same headers as they are sent."""

    prefix: bytes
    headers: tuple[tuple[bytes, bytes], ...]


@lru_cache(maxsize=HEADS_REMEMBERED)
def _stored(status: int, headers: tuple[tuple[bytes, bytes], ...], has_body: bool) -> _Stored:  # noqa: FBT001 - by position, as that is remembered for less.
    pairs = decoded(headers)
    return _Stored(prefix_of(status, pairs, is_whole=has_body), tuple(encoded(kept(pairs))))


@lru_cache(maxsize=HEADS_REMEMBERED)
def _marked(head: bytes, mark: bytes, has_body: bool) -> tuple[int, tuple[tuple[bytes, bytes], ...]]:  # noqa: FBT001 - alike.
    """Return the status and the headers, without framing, that a stored head is sent again with."""
    status, headers, _, _, _ = head_of(head, has_body=has_body)
    unframed = Exchange(status=status, headers=tuple([pair for pair in headers if pair[0].lower() not in FRAMING]))
    marked = unframed.with_headers((mark.decode("latin-1"), "true"))
    return status, tuple(encoded(marked.headers))
