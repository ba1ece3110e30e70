"""The versioned digest of a command: how a retry is told from a different request under the same key."""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, Literal, NewType, TypeAlias

from nebis.core.canonical import canonical
from nebis.core.jsonform import json_form
from nebis.core.plain import Fields, plain
from nebis.core.secret import Begun, Keyring, Purpose, Secret, framed, text_bytes
from nebis.errors import SchemaMismatch

_PURPOSE: Final = Purpose.FINGERPRINT
"""Looked up once: every request is signed for it."""
Fingerprint = NewType("Fingerprint", bytes)
"""32 bytes, keyed: a stolen table does not let anybody guess small commands (SEC08)."""

Pairs: TypeAlias = Mapping[str, str] | Iterable[tuple[str, str]]

# Credentials are renewed between retries, and the key is what the fingerprint is compared under.
NEVER_COUNTED: Final = frozenset({"authorization", "proxy-authorization", "idempotency-key", "x-idempotency-key"})
_LARGEST_VERSION = 255  # One byte of the stored number; the others say which secret the fingerprint was made with.


@dataclass(frozen=True, slots=True, kw_only=True)
class FingerprintRule:
    """What counts when two requests under one key are compared.

    A rule in use is never edited: records carry its version. Give the changed rule a new version and keep the old one
    for as long as records are kept (F104).
    """

    version: int = 1
    include: tuple[str, ...] | None = None  # None is everything: a forgotten field is then a 422, not a wrong replay.
    exclude: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()  # None by default: proxies add and rewrite them between two honest retries.
    query: tuple[str, ...] | Literal["all"] = "all"  # All by default: `?amount=2` must not get what `?amount=1` got.
    is_query_sorted: bool = False  # Off by default: only the application knows whether the order of names has meaning.

    def __post_init__(self) -> None:
        if not 1 <= self.version <= _LARGEST_VERSION:
            raise ValueError(f"A fingerprint version is between 1 and {_LARGEST_VERSION}.")
        refused = sorted(name for name in self.headers if name.lower() in NEVER_COUNTED)
        if refused:
            raise ValueError(f"These headers never count for a fingerprint: {', '.join(refused)}.")
        Fields(include=self.include, exclude=self.exclude)

    @property
    def fields(self) -> Fields:
        """Give the fields of the command that count."""
        return _fields(self.include, self.exclude)


@lru_cache(maxsize=1024)
def _fields(include: tuple[str, ...] | None, exclude: tuple[str, ...]) -> Fields:
    return Fields(include=include, exclude=exclude)


def fingerprint(
    secret: Secret,
    rule: FingerprintRule,
    *,
    operation: str,
    command: object,
    headers: Pairs = (),
    query: Pairs = (),
    api_version: str = "",
) -> Fingerprint:
    """Digest what a request asks for, under one rule.

    `command` is a model, a plain tree (a JSON body as `strictjson.parse` read it), or the raw bytes of a body that is
    not JSON, which count whole. The operation always counts, so that in a scope wider than one operation a key used
    for two of them is a reused key.
    """
    pairs = (_listed(headers), _listed(query))
    message = _message(rule, operation, command, pairs=pairs, api_version=api_version)
    return Fingerprint(secret.sign_framed(_PURPOSE, message))


def _message(
    rule: FingerprintRule,
    operation: str,
    command: object,
    *,
    pairs: tuple[Sequence[tuple[str, str]], Sequence[tuple[str, str]]],
    api_version: str,
) -> bytes:
    """Frame all parts as `secret.sign` does, without framing again what is alike in most requests."""
    start, form = _counted(rule, command)
    headers, query = pairs
    rest = framed(_headers_part(headers, rule), _query_part(query, rule)) if rule.headers or query else NOTHING_ELSE
    size = len(form)
    return b"".join(
        (
            _head(rule.version, operation, api_version),
            (len(start) + 8 + size).to_bytes(8, "big"),
            start,
            size.to_bytes(8, "big"),
            form,
            rest,
        )
    )


def _counted(rule: FingerprintRule, command: object) -> tuple[bytes, bytes]:
    """Give what of a command counts, as bytes, behind what says which kind of bytes they are."""
    if isinstance(command, _RAW):
        return _START_RAW, bytes(command)
    if rule.include is None and not rule.exclude:
        form = json_form(command)
        return START_TREE, canonical(plain(command)) if form is None else form
    return START_TREE, canonical(plain(command, fields=rule.fields))


NOTHING_ELSE: Final = framed(framed(), framed())
"""What stands behind a command where neither headers nor a query count."""
_RAW: Final = (bytes, bytearray, memoryview)
_START_RAW: Final = framed(b"raw")
START_TREE: Final = framed(b"tree")
"""What a command begins with that is a tree in canonical form, and not the body of a request as it came."""


@lru_cache(maxsize=1024)
def _head(version: int, operation: str, api_version: str) -> bytes:
    """Frame what is the same for all requests of an operation."""
    return framed(b"nebis/fingerprint/1", version.to_bytes(2, "big"), text_bytes(operation), text_bytes(api_version))


def _before(size: int) -> bytes:
    """Frame what stands between the head and a tree whose form has so many bytes."""
    return (len(START_TREE) + 8 + size).to_bytes(8, "big") + START_TREE + size.to_bytes(8, "big")


_BEFORE: Final = tuple(_before(size) for size in range(2048))
"""The same for the usual sizes, framed already."""
_FRAMED: Final = len(_BEFORE)


def matches(one: Fingerprint, other: Fingerprint) -> bool:
    """Compare two fingerprints of one version in constant time (SEC08)."""
    return hmac.compare_digest(one, other)


@dataclass(frozen=True, slots=True)
class FingerprintVersions:
    """The rules of one operation: the newest writes, the older ones still read their own records (F3, F104)."""

    newest: FingerprintRule = field(default_factory=FingerprintRule)
    older: tuple[FingerprintRule, ...] = ()
    rules: tuple[FingerprintRule, ...] = field(init=False, repr=False)
    """All of them, newest first."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "rules", (self.newest, *self.older))
        versions = [rule.version for rule in self.rules]
        if len(set(versions)) != len(versions):
            raise ValueError("Two fingerprint rules have the same version; a record could not tell them apart.")
        if self.newest.version != max(versions):
            raise ValueError("The newest fingerprint rule needs the highest version.")

    def rule(self, version: int) -> FingerprintRule:
        """Give the rule that a record was made with; an unknown one is `SchemaMismatch`, never a guess."""
        for rule in self.rules:
            if rule.version == version:
                return rule
        raise SchemaMismatch(
            f"a record has fingerprint version {version}, which this process lacks; deploy the rule of that version"
        )

    def fingerprints(
        self,
        keyring: Keyring,
        *,
        operation: str,
        command: object,
        headers: Pairs = (),
        query: Pairs = (),
        api_version: str = "",
    ) -> tuple[tuple[int, Fingerprint], ...]:
        """Give the request's fingerprint under every secret and rule, newest first, to compare with any record."""
        pairs = (_listed(headers), _listed(query))
        # What a rule makes of a request is the same under every secret.
        messages = [
            (rule.version, _message(rule, operation, command, pairs=pairs, api_version=api_version))
            for rule in self.rules
        ]
        made = []
        for secret in keyring.secrets:
            for version, message in messages:
                signed = Fingerprint(secret.sign_framed(_PURPOSE, message))
                made.append((secret.number << 8 | version, signed))
        return tuple(made)


class Fingerprinting:
    """The rules of one operation under the secrets of a process, with all done that is the same for every request."""

    __slots__ = ("_operation", "_secrets", "_versions", "begun", "number")

    def __init__(self, versions: FingerprintVersions, keyring: Keyring, *, operation: str) -> None:
        self._versions, self._secrets, self._operation = versions, keyring, operation
        self.begun: Begun[Fingerprint] | None = None
        """The beginning of every message, where one rule that counts everything is used under one secret: mostly."""
        rule, secret = versions.newest, keyring.newest
        self.number = stored_version(secret, rule)
        """The version of what `begun` signs."""
        is_plain = rule.include is None and not rule.exclude and not rule.headers
        if len(versions.rules) == len(keyring.secrets) == 1 and is_plain:
            self.begun = secret.begun(_PURPOSE, _head(rule.version, operation, ""))

    def of(
        self, command: object, headers: Pairs = (), query: Pairs = (), api_version: str = ""
    ) -> tuple[tuple[int, Fingerprint], ...]:
        """Give what `FingerprintVersions.fingerprints` gives."""
        if self.begun is not None and not query and not api_version:
            form = json_form(command)
            if form is None and not isinstance(command, _RAW):
                form = canonical(plain(command))
            if form is not None:
                size = len(form)
                before = _BEFORE[size] if size < _FRAMED else _before(size)
                return ((self.number, self.begun.sign(before + form + NOTHING_ELSE)),)
        return self._versions.fingerprints(
            self._secrets,
            operation=self._operation,
            command=command,
            headers=headers,
            query=query,
            api_version=api_version,
        )


def stored_version(secret: Secret, rule: FingerprintRule) -> int:
    """Give the version that a record carries: which secret and which rule its fingerprint was made with."""
    return secret.number << 8 | rule.version


@dataclass(frozen=True, slots=True, kw_only=True)
class FingerprintRegistry:
    """The rules of every operation: its own, or the ones that all others share."""

    shared: FingerprintVersions = field(default_factory=FingerprintVersions)
    operations: Mapping[str, FingerprintVersions] = field(default_factory=dict)

    def of(self, operation: str) -> FingerprintVersions:
        """Give the rules of one operation."""
        return self.operations.get(operation, self.shared)


def _headers_part(headers: Sequence[tuple[str, str]], rule: FingerprintRule) -> bytes:
    if not rule.headers:
        return framed()
    values: dict[str, list[str]] = {name.lower(): [] for name in rule.headers}
    for name, value in headers:
        if name.lower() in values:
            values[name.lower()].append(value.strip(" \t"))
    # Several lines of one header mean the same as one line with commas; an absent header is not an empty one.
    return framed(
        *(framed(text_bytes(name), text_bytes(", ".join(lines))) for name, lines in sorted(values.items()) if lines)
    )


def _query_part(query: Sequence[tuple[str, str]], rule: FingerprintRule) -> bytes:
    if not query:
        return framed()
    pairs = [pair for pair in query if rule.query == "all" or pair[0] in rule.query]
    if rule.is_query_sorted:
        # By name alone: the order of the values of one name is the order of a list.
        pairs.sort(key=lambda pair: pair[0])
    return framed(*(framed(text_bytes(name), text_bytes(value)) for name, value in pairs))


def _listed(pairs: Pairs) -> Sequence[tuple[str, str]]:
    """Give pairs that may be read once for each rule."""
    if not pairs:  # Nearly always, and much sooner known than what kind of nothing it is.
        return ()
    return list(pairs.items() if isinstance(pairs, Mapping) else pairs)
