"""What the store looks up: a keyed hash of (tenant, scope, key)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NewType, assert_never

from nebis.core.keygrammar import LONGEST_KEY, Key
from nebis.core.secret import Begun, Purpose, Secret, framed, text_bytes

_PURPOSE: Final = Purpose.IDENTITY
"""Looked up once: every request is signed for it."""
_SIZES: Final = tuple(size.to_bytes(8, "big") for size in range(LONGEST_KEY + 1))
"""How `framed` spells the size of a key."""
Identity = NewType("Identity", bytes)
"""32 bytes; without the secret neither the tenant nor the key can be guessed from them (SEC01)."""


@dataclass(frozen=True, slots=True)
class PerOperation:
    """A key stands for one request to one operation (the default): two operations, two runs."""


@dataclass(frozen=True, slots=True)
class PerResourceType:
    """A key stands for one request to any operation on a type of resource: a second operation is a reused key."""

    name: str

    def __post_init__(self) -> None:
        if not self.name:
            raise ValueError("A scope per resource type needs the name of that type.")


@dataclass(frozen=True, slots=True)
class PerAccount:
    """A key stands for one request of a tenant, whatever it asks for: a second operation is a reused key."""


Scope = PerOperation | PerResourceType | PerAccount
"""What a key is unique within. The operation is part of every fingerprint, so the wider two answer 422."""


@lru_cache(maxsize=1024)
def scope_name(scope: Scope, *, operation: str) -> str:
    """Name the scope of one operation, so that no operation can be mistaken for a resource type."""
    match scope:
        case PerOperation():
            return f"operation/{operation}"
        case PerResourceType(name):
            return f"resource-type/{name}"
        case PerAccount():
            return "account"
        case _:
            assert_never(scope)


def identity(secret: Secret, *, tenant: str, scope: str, key: Key) -> Identity:
    """Identify a key within its tenant and scope (I12); an empty tenant is refused, as it would be everybody's."""
    name = key.encode("utf-8", "surrogatepass")
    # The same as `secret.sign` of the four parts, without framing again what is alike in most requests.
    message = b"".join((_place(tenant, scope), len(name).to_bytes(8, "big"), name))
    return Identity(secret.sign_framed(_PURPOSE, message))


def begun_identity(secret: Secret, *, tenant: str, scope: str) -> Begun[Identity]:
    """Begin what is the same for all keys of a tenant in one scope, to be ended by `identity_within`."""
    return secret.begun(_PURPOSE, _place(tenant, scope))


def identity_within(begun: Begun[Identity], key: Key) -> Identity:
    """Do what `identity` does for a key that `parse_key` let pass: it is ASCII, and no longer than keys may be."""
    return begun.sign(_SIZES[len(key)] + key.encode())


# As many as the tenants that are busy at one time; the others are framed anew.
@lru_cache(maxsize=4096)
def _place(tenant: str, scope: str) -> bytes:
    """Frame what is the same for all keys of a tenant in one scope."""
    if not tenant:
        raise ValueError("The tenant is empty; take it from verified authentication, or name one for all callers.")
    return framed(b"nebis/identity/1", text_bytes(tenant), text_bytes(scope))
