"""Whether a request is a replay, told from as little of the record as that takes."""

from __future__ import annotations

from collections.abc import Iterable
from hmac import compare_digest
from typing import NamedTuple

from nebis.core.record import Told


class Ended(NamedTuple):
    """A completed record, as far as a replay needs it."""

    told: Told
    fingerprint_version: int
    fingerprint: bytes
    read_at: int
    """When it was read, on the store's clock."""

    def answers(self, fingerprints: Iterable[tuple[int, bytes]]) -> bool:
        """Tell whether `claim` answers a request with these fingerprints with `Replay`."""
        told, made_with, fingerprint, now = self
        if now >= told.expires_at:
            return False
        for version, digest in fingerprints:
            if version == made_with:
                return compare_digest(digest, fingerprint)
        return False
