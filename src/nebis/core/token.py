"""One-time tokens: proof, for a downstream that burns them, that one effect of one record is asked for.

It stands for the same record and name on every attempt, so a downstream that accepts each pair once acts once.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Iterable
from typing import Final
from uuid import UUID

from nebis.core.record import RecordId
from nebis.core.secret import framed, text_bytes
from nebis.errors import TokenInvalid

_PREFIX: Final = "nebis1"
_LONGEST_TOKEN: Final = 200
_CONTEXT: Final = b"nebis/token/1"


def issue_token(key: bytes, record_id: RecordId, name: str) -> str:
    """Sign a token for one effect of one record; the name is not in it, so a token for one effect fits no other."""
    return f"{_PREFIX}.{record_id.hex}.{_mark(key, record_id, name)}"


def verify_token(token: str, keys: Iterable[bytes], *, name: str) -> str:
    """Return the operation id of a genuine token for `name`, or raise `TokenInvalid`.

    `keys` are what `token_keys` of the issuing side returns. To burn the token, keep the operation id and the name
    under a unique constraint, in the transaction of what it pays for: not the token, which a new secret spells anew.
    """
    prefix, _, rest = token.partition(".") if len(token) <= _LONGEST_TOKEN else ("", "", "")
    identifier, _, mark = rest.partition(".")
    try:
        record_id = RecordId(UUID(hex=identifier))
    except ValueError:
        raise TokenInvalid from None
    is_genuine = any(hmac.compare_digest(_mark(key, record_id, name).encode(), text_bytes(mark)) for key in keys)
    if prefix != _PREFIX or not is_genuine:
        raise TokenInvalid
    return str(record_id)


def _mark(key: bytes, record_id: RecordId, name: str) -> str:
    digest = hmac.digest(key, framed(_CONTEXT, record_id.bytes, text_bytes(name)), "sha256")
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
