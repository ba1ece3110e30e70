"""Signatures of webhooks, as the Standard Webhooks specification has them.

`webhook-signature` holds `v1,` and the base64 of an HMAC-SHA256 over the id, the time in seconds and the body, joined
by dots; several, separated by spaces, while a secret is being replaced.
"""

from __future__ import annotations

import base64
import hmac
import time
from collections.abc import Mapping, Sequence

from nebis.core.secret import text_bytes
from nebis.errors import ConfigError

ID_HEADER = "webhook-id"
TIMESTAMP_HEADER = "webhook-timestamp"
SIGNATURE_HEADER = "webhook-signature"

_PREFIX = "whsec_"
_SHORTEST_SECRET_BYTES = 16
_LONGEST_SIGNATURE_HEADER = 2000


def keys_of(secrets: str | Sequence[str]) -> tuple[bytes, ...]:
    """Return the keys of secrets: base64 after `whsec_`, or any other text as it is."""
    keys = tuple(_key_of(secret) for secret in ([secrets] if isinstance(secrets, str) else secrets))
    if any(len(key) < _SHORTEST_SECRET_BYTES for key in keys):
        raise ConfigError(
            [f"a webhook secret is shorter than {_SHORTEST_SECRET_BYTES} bytes; make one with 'openssl rand'"]
        )
    return keys


def signature_headers(keys: Sequence[bytes], *, message_id: str, body: bytes, now: float) -> dict[str, str]:
    """Return the three headers for one try; a later try has another time and therefore another signature."""
    timestamp = str(int(now))
    signatures = [_signature(key, message_id, timestamp, body) for key in keys]
    return {ID_HEADER: message_id, TIMESTAMP_HEADER: timestamp, SIGNATURE_HEADER: " ".join(signatures)}


def verify_signature(
    secrets: str | Sequence[str],
    headers: Mapping[str, str],
    body: bytes,
    *,
    tolerance_seconds: float = 300,
    now: float | None = None,
) -> bool:
    """Tell whether this request was signed with one of the secrets, within the tolerance of the clock.

    A false answer is for a 401. Within the tolerance a copied request passes again: run the handler under the
    `Idempotency-Key`.
    """
    keys = keys_of(secrets)
    found = {name.lower(): value for name, value in headers.items()}
    message_id = found.get(ID_HEADER, "")
    timestamp = found.get(TIMESTAMP_HEADER, "")
    claimed = found.get(SIGNATURE_HEADER, "")[:_LONGEST_SIGNATURE_HEADER].split()
    if not (message_id and timestamp.isascii() and timestamp.isdecimal() and len(timestamp) < 16):
        return False
    if abs((time.time() if now is None else now) - int(timestamp)) > tolerance_seconds:
        return False
    # Every pair is compared, and each in constant time: how long it takes tells nothing about what would have fitted.
    matches = [
        hmac.compare_digest(_signature(key, message_id, timestamp, body).encode(), text_bytes(signature))
        for key in keys
        for signature in claimed
    ]
    return any(matches)


def _key_of(secret: str) -> bytes:
    if not secret.startswith(_PREFIX):
        return secret.encode()
    try:
        return base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    except ValueError:
        raise ConfigError(["a webhook secret begins with whsec_ and is not base64 after it; copy it again"]) from None


def _signature(key: bytes, message_id: str, timestamp: str, body: bytes) -> str:
    signed = b".".join((text_bytes(message_id), timestamp.encode(), body))
    return "v1," + base64.b64encode(hmac.digest(key, signed, "sha256")).decode()
