"""The envelope around every stored body: a version, flags, a checksum and the payload.

    byte 0        version
    byte 1        flags; bit 0 says that the payload is zlib compressed
    bytes 2-9     blake2b over version, flags and payload
    bytes 10-     payload

The checksum finds bit rot and truncation (F011). It is no defence against somebody who may write to the database.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Mapping
from typing import Final

from nebis.errors import RecordCorrupt

_VERSION_1: Final = 1
_COMPRESSED: Final = 0b0000_0001

_HEADER_BYTES: Final = 2
_CHECKSUM_BYTES: Final = 8  # A damaged body passes once in 2^64; sixteen bytes would buy nothing for 8 more per record.
_PAYLOAD_START: Final = _HEADER_BYTES + _CHECKSUM_BYTES

_COMPRESSION_FLOOR_BYTES: Final = 512  # Below it zlib saves less than the read costs, and often saves nothing.
_WORTHWHILE_PERCENT: Final = 90  # A saving under a tenth does not pay for inflating the body on every replay.


# Copied for each checksum, as making one anew takes longer than reading a small body.
_NOTHING_READ: Final = hashlib.blake2b(digest_size=_CHECKSUM_BYTES, person=b"nebis-envelope")


def _after(header: bytes) -> hashlib.blake2b:
    digest = _NOTHING_READ.copy()
    digest.update(header)
    return digest


_AS_IT_IS: Final = bytes((_VERSION_1, 0))
_PACKED: Final = bytes((_VERSION_1, _COMPRESSED))
# The checksum of what we write, with its header read already.
_BEGUN: Final = _after(_AS_IT_IS)
_BEGUN_PACKED: Final = _after(_PACKED)


def seal(body: bytes, *, compress: bool = True) -> bytes:
    """Wrap a body so that damage to any bit of it is found; compress it when that pays.

    Pass `compress=False` for a body that mixes a secret with text chosen by its caller: its stored length would
    otherwise tell something about the secret (SEC18).
    """
    header, begun, payload = _AS_IT_IS, _BEGUN, body
    if compress and len(body) > _COMPRESSION_FLOOR_BYTES:
        packed = zlib.compress(body)
        if len(packed) * 100 <= len(body) * _WORTHWHILE_PERCENT:
            header, begun, payload = _PACKED, _BEGUN_PACKED, packed
    digest = begun.copy()
    digest.update(payload)
    return header + digest.digest() + payload


def unseal(envelope: bytes, *, limit_bytes: int) -> bytes:
    """Return the sealed body, or raise `RecordCorrupt`; never hold more than `limit_bytes` of body (SEC17).

    Every version that was ever released stays readable (F118).
    """
    # Nearly every body is whole and as it was; any other is read again, to say what is wrong with it.
    if envelope[:_HEADER_BYTES] == _AS_IT_IS and len(envelope) - _PAYLOAD_START <= limit_bytes:
        payload = envelope[_PAYLOAD_START:]
        digest = _BEGUN.copy()
        digest.update(payload)
        if digest.digest() == envelope[_HEADER_BYTES:_PAYLOAD_START]:
            return payload
    return _unsealed(envelope, limit_bytes)


def _unsealed(envelope: bytes, limit_bytes: int) -> bytes:
    if limit_bytes < 0:
        raise ValueError("limit_bytes is negative; pass the largest body that may be read.")
    if len(envelope) < _HEADER_BYTES:
        raise RecordCorrupt("its envelope is truncated")
    reader = _READERS.get(envelope[0])
    if reader is None:
        raise RecordCorrupt(f"its envelope has version {envelope[0]}, which this release cannot read")
    return reader(envelope, limit_bytes)


def _read_version_1(envelope: bytes, limit_bytes: int) -> bytes:
    if len(envelope) < _PAYLOAD_START:
        raise RecordCorrupt("its envelope is truncated")
    header, payload = envelope[:_HEADER_BYTES], envelope[_PAYLOAD_START:]
    digest = _NOTHING_READ.copy()
    digest.update(header)
    digest.update(payload)
    if digest.digest() != envelope[_HEADER_BYTES:_PAYLOAD_START]:
        raise RecordCorrupt("its checksum does not match")
    flags = header[1]
    if flags & ~_COMPRESSED:
        raise RecordCorrupt(f"its envelope has unknown flags {flags:#04x}")
    if flags & _COMPRESSED:
        return _inflated(payload, limit_bytes)
    if len(payload) > limit_bytes:
        raise RecordCorrupt(f"its body is larger than {limit_bytes} bytes")
    return payload


def _inflated(payload: bytes, limit_bytes: int) -> bytes:
    inflater = zlib.decompressobj()
    try:
        # One byte more than allowed is enough to know; zlib stops there, whatever the payload would unfold to.
        body = inflater.decompress(payload, limit_bytes + 1)
    except zlib.error:
        raise RecordCorrupt("its body does not decompress") from None
    if len(body) > limit_bytes:
        raise RecordCorrupt(f"its body is larger than {limit_bytes} bytes")
    if not inflater.eof or inflater.unused_data:
        raise RecordCorrupt("its compressed body does not end where it should")
    return body


# A released reader is never removed or changed: records outlive the code that wrote them (F118).
_READERS: Final[Mapping[int, Callable[[bytes, int], bytes]]] = {_VERSION_1: _read_version_1}
