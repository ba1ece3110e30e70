"""The envelope around every stored body: a version, flags, a checksum and the payload.

    byte 0        version
    byte 1        flags; bit 0 says that the payload is zlib compressed
    bytes 2-5     CRC-32 of version, flags and payload
    bytes 6-      payload

Version 1 had eight bytes of blake2b there, which took twenty times as long and found the same damage.

The checksum finds bit rot and truncation (F011). It is no defence against somebody who may write to the database.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Mapping
from struct import Struct
from typing import Final

from nebis.errors import RecordCorrupt

_VERSION_1: Final = 1
_VERSION_2: Final = 2
_COMPRESSED: Final = 0b0000_0001

_HEADER_BYTES: Final = 2
_CHECKSUM_BYTES: Final = 4
"""Up to 32 damaged bits in a row of the payload are always found; any other damage passes once in 2^32."""
_PAYLOAD_START: Final = _HEADER_BYTES + _CHECKSUM_BYTES

_COMPRESSION_FLOOR_BYTES: Final = 512  # Below it zlib saves less than the read costs, and often saves nothing.
_WORTHWHILE_PERCENT: Final = 90  # A saving under a tenth does not pay for inflating the body on every replay.

_AS_IT_IS: Final = bytes((_VERSION_2, 0))
_PACKED: Final = bytes((_VERSION_2, _COMPRESSED))
# The checksum of what we write, with its header read already.
_BEGUN: Final = zlib.crc32(_AS_IT_IS)
_BEGUN_PACKED: Final = zlib.crc32(_PACKED)
_crc32: Final = zlib.crc32
_head: Final = Struct("!2sI").pack


def seal(body: bytes, *, compress: bool = True) -> bytes:
    """Wrap a body so that damage to any bit of it is found; compress it when that pays.

    Pass `compress=False` for a body that mixes a secret with text chosen by its caller: its stored length would
    otherwise tell something about the secret (SEC18).
    """
    if compress and len(body) > _COMPRESSION_FLOOR_BYTES:
        packed = zlib.compress(body)
        if len(packed) * 100 <= len(body) * _WORTHWHILE_PERCENT:
            return _head(_PACKED, _crc32(packed, _BEGUN_PACKED)) + packed
    return _head(_AS_IT_IS, _crc32(body, _BEGUN)) + body


def unseal(envelope: bytes, *, limit_bytes: int) -> bytes:
    """Return the sealed body, or raise `RecordCorrupt`; never hold more than `limit_bytes` of body (SEC17).

    Every version that was ever released stays readable (F118).
    """
    # Nearly every body is whole and as it was; any other is read again, to say what is wrong with it.
    payload = envelope[_PAYLOAD_START:]
    if len(payload) <= limit_bytes and envelope[:_PAYLOAD_START] == _head(_AS_IT_IS, _crc32(payload, _BEGUN)):
        return payload
    return _unsealed(envelope, limit_bytes)


def _unsealed(envelope: bytes, limit_bytes: int) -> bytes:
    if limit_bytes < 0:
        raise ValueError("limit_bytes is negative; pass the largest body that may be read.")
    if len(envelope) < _HEADER_BYTES:
        raise RecordCorrupt("its envelope is truncated")
    checksum = _CHECKSUMS.get(envelope[0])
    if checksum is None:
        raise RecordCorrupt(f"its envelope has version {envelope[0]}, which this release cannot read")
    return _read(envelope, *checksum, limit_bytes)


def _blake2b(header: bytes, payload: bytes) -> bytes:
    return hashlib.blake2b(header + payload, digest_size=8, person=b"nebis-envelope").digest()


def _crc(header: bytes, payload: bytes) -> bytes:
    return _crc32(payload, _crc32(header)).to_bytes(_CHECKSUM_BYTES, "big")


def _read(envelope: bytes, size: int, checksum: Callable[[bytes, bytes], bytes], limit_bytes: int) -> bytes:
    """Read an envelope whose checksum has that size; nothing else differs between the versions."""
    start = _HEADER_BYTES + size
    if len(envelope) < start:
        raise RecordCorrupt("its envelope is truncated")
    header, payload = envelope[:_HEADER_BYTES], envelope[start:]
    if checksum(header, payload) != envelope[_HEADER_BYTES:start]:
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


# A released version is never removed or changed: records outlive the code that wrote them (F118).
_CHECKSUMS: Final[Mapping[int, tuple[int, Callable[[bytes, bytes], bytes]]]] = {
    _VERSION_1: (8, _blake2b),
    _VERSION_2: (_CHECKSUM_BYTES, _crc),
}
