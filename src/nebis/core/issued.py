"""Issued keys: idempotency keys that the service made itself, for one tenant and one operation, until a moment.

Neither the tenant nor the operation is in the text, only in its mark, so that a forged key, another tenant's and one
for another operation cannot be told apart.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Iterable
from typing import Final

from nebis.core.secret import Purpose, Secret, text_bytes
from nebis.errors import TokenInvalid

RANDOM_BYTES: Final = 16
_PREFIX: Final = "nk1"
_CONTEXT: Final = b"nebis/issued-key/1"
_MOMENT_BYTES: Final = 5
# Both lengths are multiples of three, so that each text has one spelling only.
_CONTENT_LENGTH: Final = 28


def issue_key(secret: Secret, *, tenant: str, operation: str, expires_at_seconds: int, random: bytes) -> str:
    """Make a key that `read_issued` accepts for this tenant and operation alone; `random` makes it one of its kind."""
    content = _text(expires_at_seconds.to_bytes(_MOMENT_BYTES, "big") + random)
    return f"{_PREFIX}.{content}.{_mark(secret, tenant, operation, content)}"


def read_issued(key: str, secrets: Iterable[Secret], *, tenant: str, operation: str) -> int:
    """Return when a genuine key expires, in seconds since 1970, or raise `TokenInvalid`, whatever is wrong with it."""
    prefix, _, rest = key.partition(".")
    content, _, mark = rest.partition(".")
    # Every secret is tried, so that the time taken tells nothing about which of them it was.
    matches = [
        hmac.compare_digest(_mark(secret, tenant, operation, content).encode(), text_bytes(mark)) for secret in secrets
    ]
    if prefix != _PREFIX or len(content) != _CONTENT_LENGTH or not any(matches):
        raise TokenInvalid
    return int.from_bytes(base64.urlsafe_b64decode(content)[:_MOMENT_BYTES], "big")


def _mark(secret: Secret, tenant: str, operation: str, content: str) -> str:
    parts = (text_bytes(part) for part in (tenant, operation, content))
    return _text(secret.sign(Purpose.ISSUED, _CONTEXT, *parts))


def _text(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()
