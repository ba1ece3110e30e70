"""Good idempotency keys, and what is wrong with bad ones."""

from __future__ import annotations

import os
import re
import threading
import time
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from itertools import pairwise
from typing import TypeGuard
from uuid import UUID, uuid4

from nebis.core.canonical import canonical
from nebis.core.keygrammar import Key
from nebis.errors import MisuseError

SHORTEST_STRONG_KEY = 16  # 16 random letters and digits are beyond guessing; anything shorter may meet its twin.


def uuid4_key() -> str:
    """Make a random key. Keep it with the request: a retry must send the same one."""
    return str(uuid4())


def uuid7_key() -> str:
    """Make a key that sorts by time and grows within this process, which keeps database indexes compact."""
    return str(_TIMELINE.next())


def derived_key(*parts: object, namespace: str, intent: int = 1) -> str:
    """Derive a key from business fields: the same fields give the same key on every host and after every restart.

    `namespace` names what is being done (`"invoice-payment"`). A person who wants it done once more gets a new key
    by a higher `intent`. The fields count by value and type, and can be guessed from the key by whoever can list them.
    """
    if not namespace or not parts or any(part is None or part == "" for part in parts):
        raise MisuseError(
            "A derived key needs a namespace and at least one field, none of them empty: "
            "with a field missing, different requests would share a key. Pass what makes this request unique."
        )
    if intent < 1:
        raise MisuseError("The intent of a derived key is 1 for the first wish and one more for each new one.")
    digest = sha256(canonical(["nebis/derived-key/1", namespace, intent, list(parts)])).digest()
    # Version 8 is the UUID for one's own hash; many services accept nothing but a UUID as a key.
    return str(_uuid(int.from_bytes(digest[:16], "big"), version=8))


class _Timeline:
    """The last moment at which a version 7 key was made: the next one is later."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = 0

    def next(self) -> UUID:
        # Milliseconds above 12 bits of counter, as one number: an overflow borrows the next millisecond.
        moment = (time.time_ns() // 1_000_000) << 12
        with self._lock:
            self._last = max(moment, self._last + 1)
            ordered = self._last
        # The random part is fresh for every key, so that a forked process with the same counter makes other keys.
        tail = int.from_bytes(os.urandom(8), "big") & ((1 << 62) - 1)
        return _uuid((ordered >> 12) << 80 | (ordered & 0xFFF) << 64 | tail, version=7)


_TIMELINE = _Timeline()


def _uuid(bits: int, *, version: int) -> UUID:
    # By hand, as `UUID(version=...)` knows versions 6 to 8 only from Python 3.14 on.
    bits &= ~(0xF000 << 64) & ~(0b11 << 62)
    return UUID(int=bits | version << 76 | 0b10 << 62)


class WeaknessCode(StrEnum):
    """What can be wrong with a key that the grammar allows."""

    SHORT = "short"
    REPEATED = "repeated"
    TIMESTAMP = "timestamp"
    COUNTER = "counter"
    EMAIL = "email"
    CARD_NUMBER = "card-number"


@dataclass(frozen=True, slots=True)
class Weakness:
    """One reason to distrust a key, and what to do about it. It never repeats the key."""

    code: WeaknessCode
    advice: str


_ADVICE = {
    WeaknessCode.SHORT: f"Use at least {SHORTEST_STRONG_KEY} characters, such as a random UUID: short ones meet.",
    WeaknessCode.REPEATED: "Use a random UUID: this looks like a placeholder, which others send too.",
    WeaknessCode.TIMESTAMP: "Use a random UUID: two requests of one moment would share it, and a retry would not.",
    WeaknessCode.COUNTER: "Use a random UUID or a derived key: counters restart, overlap and can be guessed.",
    WeaknessCode.EMAIL: "Derive the key from the order instead: an address is personal, and the same next time.",
    WeaknessCode.CARD_NUMBER: "Never put a card number in a key, as keys appear in logs; derive one from the order.",
}
# Each pattern is anchored or of fixed length, over disjoint classes: none can backtrack over the input (SEC37).
_NUMBERED = re.compile(r"[A-Za-z_.:/#-]*([0-9]+)")
_CALENDAR = re.compile(r"(?:19|20)[0-9]{2}-?[01][0-9]-?[0-3][0-9][T_-]?[0-2][0-9]:?[0-5][0-9]")
_DIGIT_GROUPS = re.compile(r"[0-9-]+")
_LONGEST_COUNTER = 12
# Seconds, milliseconds, microseconds and nanoseconds since 1970, from 2001 to 2096.
_EPOCH_DIGITS = frozenset({10, 13, 16, 19})


_DIGITS = b"0123456789abcdefABCDEF"
_AS_ZERO = bytes.maketrans(_DIGITS, b"0" * len(_DIGITS))
_ZERO = str(UUID(int=0)).encode()
_FEW = len(_ZERO) // 5
"""So many different characters in a UUID look like a placeholder."""


def _is_uuid(key: str) -> bool:
    # With zeros in place of its digits, which takes half as long as a pattern does.
    return key.isascii() and key.encode().translate(_AS_ZERO) == _ZERO


def is_ordinary(key: str) -> TypeGuard[Key]:
    """Tell whether a key is a UUID that looks random, as most keys are: well spelled, and nothing is weak about it."""
    # A third of a random one nearly always has enough different letters already, and is looked through sooner.
    return _is_uuid(key) and (len(set(key[:13])) > _FEW or len(set(key)) > _FEW)


def weaknesses(key: str) -> tuple[Weakness, ...]:
    """List what is weak about a key: a warning for its maker, not a reason to refuse it (SEC06)."""
    if is_ordinary(key):
        return ()
    is_uuid = _is_uuid(key)
    tests = {
        WeaknessCode.SHORT: len(key) < SHORTEST_STRONG_KEY,
        WeaknessCode.REPEATED: len(key) >= 5 * len(set(key)),
        WeaknessCode.TIMESTAMP: not is_uuid and _is_timestamp(key),
        WeaknessCode.COUNTER: not is_uuid and _is_counter(key),
        WeaknessCode.EMAIL: _has_email(key),
        WeaknessCode.CARD_NUMBER: not is_uuid and any(map(_is_card_number, _DIGIT_GROUPS.findall(key))),
    }
    return tuple(Weakness(code, _ADVICE[code]) for code, is_weak in tests.items() if is_weak)


def _is_timestamp(key: str) -> bool:
    numbered = _NUMBERED.fullmatch(key)
    if numbered and len(numbered[1]) in _EPOCH_DIGITS and numbered[1][0] in "123":
        return True
    return _CALENDAR.search(key) is not None


def _is_counter(key: str) -> bool:
    numbered = _NUMBERED.fullmatch(key)
    if numbered is None or _is_timestamp(key):
        return False
    digits = numbered[1]
    # 98765432 and 12345678901234 are typed by hand; a long number in any other order is left alone.
    steps = {(int(after) - int(before)) % 10 for before, after in pairwise(digits)}
    return len(digits) <= _LONGEST_COUNTER or steps in ({1}, {9}) or digits.startswith("0" * 4)


def _has_email(key: str) -> bool:
    name, _, domain = key.partition("@")
    return bool(name) and "." in domain.strip(".")


def _is_card_number(group: str) -> bool:
    digits = group.replace("-", "")
    # Cards begin with 2 to 6; times in milliseconds begin with 1, and one in ten of them would pass the checksum.
    if not 13 <= len(digits) <= 19 or digits[0] not in "23456":
        return False
    doubled = (int(digit) * (1 + place % 2) for place, digit in enumerate(reversed(digits)))
    return sum(number // 10 + number % 10 for number in doubled) % 10 == 0
