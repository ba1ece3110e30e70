"""The root secret, the keys derived from it, and the list of secrets that a rotation needs."""

from __future__ import annotations

import base64
import hmac
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

from nebis.core.native import twinned
from nebis.errors import ConfigError

if TYPE_CHECKING:
    from hashlib import _Hash

D = TypeVar("D", bound=bytes)

SHORTEST_SECRET_BYTES = 16  # 128 bits: below that, a stolen table could be searched for the secret itself.


class Purpose(StrEnum):
    """What a derived key is for. The labels are stored in effect: renaming one forgets every record."""

    IDENTITY = "identity"
    FINGERPRINT = "fingerprint"
    EFFECT = "effect"
    TOKEN = "token"  # noqa: S105  A label, not a password.
    ISSUED = "issued"
    VELOCITY = "velocity"
    CHECK = "check"


def framed(*parts: bytes) -> bytes:
    """Join parts so that no two different sequences give the same bytes (F101)."""
    return b"".join([len(part).to_bytes(8, "big") + part for part in parts])


def text_bytes(text: str) -> bytes:
    """Encode any string, lone surrogates included, so that different strings stay different."""
    return text.encode("utf-8", "surrogatepass")


def number_of(check_value: bytes) -> int:
    """Give the number of the secret that has this check value."""
    return int.from_bytes(check_value[:3], "big") >> 2


# What HMAC (RFC 2104) mixes into its key for the inner and the outer hash, whose blocks have 64 bytes.
_BLOCK_BYTES = 64
_INNER = bytes(byte ^ 0x36 for byte in range(256))
_OUTER = bytes(byte ^ 0x5C for byte in range(256))


def _begun_hashes(key: bytes) -> tuple[_Hash, _Hash]:
    """Begin both hashes of HMAC-SHA-256: `hmac.digest` begins them anew for every message."""
    block = key.ljust(_BLOCK_BYTES, b"\0")
    return sha256(block.translate(_INNER)), sha256(block.translate(_OUTER))


@twinned
class Begun(Generic[D]):
    """A signature whose message is begun: for messages that all begin alike. It shows no more than its secret does.

    What is signed gets its type from here, as to give it one by a call takes as long as some of the signing.
    """

    __slots__ = ("__inner", "__outer")

    def __init__(self, key: bytes, beginning: bytes) -> None:
        self.__inner, self.__outer = _begun_hashes(key)
        self.__inner.update(beginning)

    def sign(self, rest: bytes) -> D:
        """Give what `Secret.sign_framed` gives of the whole message."""
        inner, outer = self.__inner.copy(), self.__outer.copy()
        inner.update(rest)
        outer.update(inner.digest())
        return outer.digest()  # type: ignore[return-value]  # These bytes are what the type is about.

    def __reduce__(self) -> NoReturn:
        raise TypeError("What a Secret has begun is never pickled or copied, no more than the Secret itself.")


class Secret:
    """A root secret that never shows itself: not in `repr`, logs, tracebacks, pickles or comparisons (SEC26)."""

    __slots__ = ("__begun", "__derived", "number")

    number: int
    """By which a record says which secret its fingerprint was made with (22 bits)."""

    def __init__(self, material: bytes) -> None:
        if len(material) < SHORTEST_SECRET_BYTES:
            raise ValueError(f"A secret needs at least {SHORTEST_SECRET_BYTES} bytes; this one has {len(material)}.")
        # Only derived keys are kept: one purpose's key tells nothing about another's, nor about the root.
        self.__derived = {
            purpose: hmac.digest(material, framed(b"nebis/derive/1", purpose.value.encode()), "sha256")
            for purpose in Purpose
        }
        # No key is longer than a block: each is a digest of its own.
        self.__begun = {purpose: _begun_hashes(key) for purpose, key in self.__derived.items()}
        self.number = number_of(self.check_value())

    def derive(self, purpose: Purpose) -> bytes:
        """Give the 32-byte key of one purpose."""
        return self.__derived[purpose]

    def sign(self, purpose: Purpose, *parts: bytes) -> bytes:
        """Give the 32-byte HMAC-SHA-256 of the framed parts under the key of one purpose."""
        return self.sign_framed(purpose, framed(*parts))

    def sign_framed(self, purpose: Purpose, message: bytes) -> bytes:
        """Do the same for parts that were framed before, as those that never change may be once and for all."""
        begun, outer_begun = self.__begun[purpose]
        inner, outer = begun.copy(), outer_begun.copy()
        inner.update(message)
        outer.update(inner.digest())
        return outer.digest()

    def begun(self, purpose: Purpose, beginning: bytes) -> Begun[Any]:
        """Begin to sign messages that all begin like this."""
        return Begun(self.__derived[purpose], beginning)

    def check_value(self) -> bytes:
        """Give the 32 public bytes by which a store recognises this secret without holding it."""
        return self.sign(Purpose.CHECK, b"nebis/check/1")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(self.check_value(), other.check_value())

    def __hash__(self) -> int:
        return hash(self.check_value())

    def __repr__(self) -> str:
        return "Secret(hidden)"

    def __reduce__(self) -> NoReturn:
        raise TypeError("A Secret is never pickled or copied; hand over the place that it is read from instead.")


@dataclass(frozen=True, slots=True)
class Keyring:
    """The secrets in use, newest first: the first one writes, all of them look up (F116)."""

    secrets: tuple[Secret, ...]

    def __post_init__(self) -> None:
        if not self.secrets:
            raise ConfigError(["The list of secrets is empty; give at least one."])
        if len(set(self.secrets)) != len(self.secrets):
            raise ConfigError(["The same secret is listed twice; list each one once, newest first."])
        if len({secret.number for secret in self.secrets}) != len(self.secrets):
            raise ConfigError(["Two of the secrets happen to have the same number; make the newest one anew."])

    @classmethod
    def of(cls, *materials: bytes) -> Keyring:
        """Make a keyring from raw bytes, newest first, or report every unusable one at once."""
        return cls(tuple(_checked(enumerate(materials, start=1))))

    @classmethod
    def parse(cls, text: str) -> Keyring:
        """Read `new,old,...`, each as hex, base64 or plain text, or report every unusable one at once.

        The spelling is recognised in that order, and the order is for ever: another one would read another secret.
        """
        return cls.of(*(_material(part.strip()) for part in text.split(",")))

    @property
    def newest(self) -> Secret:
        """Give the secret under which new records are written."""
        return self.secrets[0]

    def __iter__(self) -> Iterator[Secret]:
        return iter(self.secrets)


@dataclass(frozen=True, slots=True, kw_only=True)
class Secrets:
    """What a process works with: the store's own secret, and those of the deployment.

    Identities are made with the store's own, which never changes: rotating the others can then forget no key (F116).
    """

    identity: Secret
    keyring: Keyring


def _checked(materials: Iterable[tuple[int, bytes]]) -> list[Secret]:
    secrets: list[Secret] = []
    faults: list[str] = []
    for position, material in materials:
        try:
            secrets.append(Secret(material))
        except ValueError as error:
            faults.append(
                f"Secret number {position} is unusable. {error} "
                "Make one with: python -c 'import secrets; print(secrets.token_hex(32))'"
            )
    if faults:
        raise ConfigError(faults)
    return secrets


def _material(text: str) -> bytes:
    """Read one secret; what decodes to too few bytes is taken as the plain text that it also is."""
    for decode in (bytes.fromhex, _from_base64):
        try:
            material = decode(text)
        except ValueError:
            continue
        if len(material) >= SHORTEST_SECRET_BYTES:
            return material
    return text_bytes(text)


def _from_base64(text: str) -> bytes:
    # Both alphabets, padded or not: `openssl rand -base64` and `secrets.token_urlsafe` differ in exactly this.
    standard = text.rstrip("=").replace("-", "+").replace("_", "/")
    return base64.b64decode(standard + "=" * (-len(standard) % 4), validate=True)
