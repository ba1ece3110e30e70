"""Whether a claim is a replay, told from as little of the record as that takes."""

from __future__ import annotations

from hmac import compare_digest

from nebis.core.verbs import Claim


def is_replay(verb: Claim, now: int, expires_at: int, fingerprint_version: int, fingerprint: bytes) -> bool:
    """Tell whether `claim` answers with `Replay` for a completed record of which this is known."""
    if now >= expires_at:
        return False
    for version, digest in verb.fingerprints:
        if version == fingerprint_version:
            return compare_digest(digest, fingerprint)
    return False
