"""Whether a request is a replay, told from as little of the record as that takes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from hmac import compare_digest
from typing import Final

from nebis.core.quick import maker
from nebis.core.record import Told


@dataclass(frozen=True, slots=True)
class Ended:
    """A completed record, as far as a replay needs it."""

    told: Told
    fingerprint_version: int
    fingerprint: bytes
    read_at: int
    """When it was read, on the store's clock."""

    def answers(self, fingerprints: Iterable[tuple[int, bytes]]) -> bool:
        """Tell whether `claim` answers a request with these fingerprints with `Replay`."""
        if self.read_at >= self.told.expires_at:
            return False
        for version, digest in fingerprints:
            if version == self.fingerprint_version:
                return compare_digest(digest, self.fingerprint)
        return False


make_ended: Final = maker(Ended)
