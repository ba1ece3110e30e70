"""Stored bytes are returned whole or refused: F011 (bit rot), F118 (old versions), SEC17 (bombs), SEC33 (fuzz)."""

from __future__ import annotations

import hashlib
import tracemalloc
import zlib

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nebis.core.envelope import _unsealed, seal, unseal
from nebis.errors import RecordCorrupt

LIMIT_BYTES = 1_000_000

# Written by the first release and never regenerated: if one of these fails, old records became unreadable (F118).
GOLDEN_1_PLAIN = bytes.fromhex("01006b2a0cf92aa7a52c7b2270616964223a747275657d")
GOLDEN_1_PLAIN_BODY = b'{"paid":true}'
GOLDEN_1_COMPRESSED = bytes.fromhex("010107efad624f29bbc9789ccb4b4dca2c56c81b2547c95172941cf42400da04b658")
GOLDEN_1_COMPRESSED_BODY = b"nebis " * 200
# The same bodies, as they are written now.
GOLDEN_2_PLAIN = bytes.fromhex("0200e6a78a8b7b2270616964223a747275657d")
GOLDEN_2_COMPRESSED = bytes.fromhex("0201f7fe9eb5789ccb4b4dca2c56c81b2547c95172941cf42400da04b658")


def forged(*, version: int = 2, flags: int, payload: bytes) -> bytes:
    """Build an envelope whose checksum is right, so that only what follows the checksum can refuse it."""
    header = bytes((version, flags))
    if version == 1:
        return header + hashlib.blake2b(header + payload, digest_size=8, person=b"nebis-envelope").digest() + payload
    return header + zlib.crc32(header + payload).to_bytes(4, "big") + payload


def test_version_2_writes_the_golden_bytes_f118() -> None:
    assert seal(GOLDEN_1_PLAIN_BODY) == GOLDEN_2_PLAIN
    # How well zlib packs is its own affair.
    assert seal(GOLDEN_1_COMPRESSED_BODY)[:2] == GOLDEN_2_COMPRESSED[:2]


@pytest.mark.parametrize(
    ("plain", "compressed"), [(GOLDEN_1_PLAIN, GOLDEN_1_COMPRESSED), (GOLDEN_2_PLAIN, GOLDEN_2_COMPRESSED)]
)
def test_golden_bytes_of_every_version_stay_readable_f118(plain: bytes, compressed: bytes) -> None:
    assert unseal(plain, limit_bytes=LIMIT_BYTES) == GOLDEN_1_PLAIN_BODY
    assert unseal(compressed, limit_bytes=LIMIT_BYTES) == GOLDEN_1_COMPRESSED_BODY


@given(body=st.binary(max_size=2_000), repeats=st.integers(1, 20), compress=st.booleans())
def test_unseal_returns_what_was_sealed(body: bytes, repeats: int, compress: bool) -> None:
    body *= repeats

    assert unseal(seal(body, compress=compress), limit_bytes=len(body)) == body


ENVELOPES = {
    "empty": seal(b""),
    "plain": seal(GOLDEN_1_PLAIN_BODY),
    "compressed": seal(b"compressible " * 60),
    "version-1": GOLDEN_1_PLAIN,
    "version-1-compressed": GOLDEN_1_COMPRESSED,
}


@pytest.mark.parametrize("envelope", ENVELOPES.values(), ids=ENVELOPES)
def test_every_single_bit_flip_is_detected_f011(envelope: bytes) -> None:
    for position in range(len(envelope) * 8):
        damaged = bytearray(envelope)
        damaged[position // 8] ^= 1 << position % 8
        with pytest.raises(RecordCorrupt):
            unseal(bytes(damaged), limit_bytes=LIMIT_BYTES)


@given(place=st.integers(0, 316 * 8), burst=st.integers(1, 2**32 - 1))
def test_every_run_of_up_to_32_damaged_bits_of_a_body_is_detected_f011(place: int, burst: int) -> None:
    envelope = seal(b"x" * 320)
    damaged = int.from_bytes(envelope, "big") ^ burst << place

    with pytest.raises(RecordCorrupt):
        unseal(damaged.to_bytes(len(envelope), "big"), limit_bytes=LIMIT_BYTES)


@pytest.mark.parametrize("envelope", ENVELOPES.values(), ids=ENVELOPES)
def test_every_truncation_and_any_appended_byte_is_detected_f011(envelope: bytes) -> None:
    for length in range(len(envelope)):
        with pytest.raises(RecordCorrupt):
            unseal(envelope[:length], limit_bytes=LIMIT_BYTES)
    with pytest.raises(RecordCorrupt, match="checksum"):
        unseal(envelope + b"\0", limit_bytes=LIMIT_BYTES)


@given(
    data=st.binary(max_size=200)
    | st.builds(forged, version=st.integers(0, 3), flags=st.integers(0, 255), payload=st.binary(max_size=200))
    | st.builds(lambda body: forged(flags=1, payload=zlib.compress(body)), st.binary(max_size=400)),
    limit_bytes=st.integers(0, 300),
)
@example(data=b"", limit_bytes=0)
@example(data=b"\x01", limit_bytes=0)
def test_unseal_of_arbitrary_bytes_answers_within_the_limit_or_raises_record_corrupt_sec33(
    data: bytes, limit_bytes: int
) -> None:
    try:
        body = unseal(data, limit_bytes=limit_bytes)
    except RecordCorrupt:
        return

    assert len(body) <= limit_bytes


@pytest.mark.parametrize(
    ("envelope", "reason"),
    [
        (forged(version=3, flags=0, payload=b"body"), "version 3"),
        (forged(version=0, flags=0, payload=b"body"), "version 0"),
        (seal(b"")[:-1] + b"\xff", "its checksum does not match"),
        (GOLDEN_1_PLAIN[:-1] + b"\xff", "its checksum does not match"),
        (GOLDEN_1_PLAIN[:9], "its envelope is truncated"),
        (GOLDEN_2_PLAIN[:5], "its envelope is truncated"),
        (forged(flags=0b10, payload=b"body"), "unknown flags 0x02"),
        (forged(flags=0b1000_0001, payload=zlib.compress(b"body")), "unknown flags 0x81"),
        (forged(flags=1, payload=b"not zlib"), "does not decompress"),
        (forged(flags=1, payload=zlib.compress(b"body")[:-1]), "does not end where it should"),
        (forged(flags=1, payload=zlib.compress(b"body") + b"more"), "does not end where it should"),
    ],
)
def test_what_the_checksum_cannot_judge_is_refused_with_its_reason(envelope: bytes, reason: str) -> None:
    with pytest.raises(RecordCorrupt, match=reason):
        unseal(envelope, limit_bytes=LIMIT_BYTES)


@pytest.mark.parametrize("compress", [True, False])
def test_the_limit_is_inclusive_for_both_forms_sec17(compress: bool) -> None:
    body = b"a" * 10_000
    envelope = seal(body, compress=compress)

    assert unseal(envelope, limit_bytes=10_000) == body
    with pytest.raises(RecordCorrupt, match="larger than 9999 bytes"):
        unseal(envelope, limit_bytes=9_999)


def test_a_bomb_is_refused_without_being_unfolded_sec17() -> None:
    bomb = forged(flags=1, payload=zlib.compress(bytes(64 * 1024 * 1024), 9))

    tracemalloc.start()
    try:
        with pytest.raises(RecordCorrupt, match="larger than 1000 bytes"):
            unseal(bomb, limit_bytes=1_000)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak_bytes < 1024 * 1024


def test_a_negative_limit_is_a_fault_of_the_caller_and_not_an_unlimited_read() -> None:
    with pytest.raises(ValueError, match="limit_bytes is negative"):
        unseal(forged(flags=1, payload=zlib.compress(b"body")), limit_bytes=-1)


def is_compressed(envelope: bytes) -> bool:
    return envelope[1] == 1


def test_a_body_is_compressed_only_when_that_pays() -> None:
    incompressible = hashlib.shake_256(b"seed").digest(4_096)

    assert not is_compressed(seal(b"a" * 512))
    assert is_compressed(seal(b"a" * 513))
    assert not is_compressed(seal(incompressible))
    assert not is_compressed(seal(b"a" * 100_000, compress=False))


def test_the_reader_of_a_version_reads_what_the_short_way_reads() -> None:
    assert _unsealed(seal(b"body"), 4) == unseal(seal(b"body"), limit_bytes=4) == b"body"
