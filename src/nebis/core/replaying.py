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
        told, version, fingerprint, now = self
        return is_replay(fingerprints, now, told.expires_at, version, fingerprint)


def is_replay(
    fingerprints: Iterable[tuple[int, bytes]],
    now: int,
    expires_at: int,
    fingerprint_version: int,
    fingerprint: bytes,
) -> bool:
    """Tell whether `claim` answers with `Replay` for a completed record of which this is known."""
    if now >= expires_at:
        return False
    for version, digest in fingerprints:
        if version == fingerprint_version:
            return compare_digest(digest, fingerprint)
    return False
