"""Other libraries, and the faults that reading and running them had shown before this kit was pointed at them."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """A library on one of its stores, in the version whose faults are known."""

    name: str
    package: str
    version: str
    extras: str = ""
    needs: tuple[str, ...] = ()
    """What else has to be installed for it to work."""
    store: str
    keys: dict[str, Any]
    """How it treats keys, where that is a choice and not a fault; part of the operation file."""
    sets_cookie: bool = False
    """Whether the application's answers set one."""
    faults: dict[str, str] = field(default_factory=dict)
    """By the check that must find it: what is known, and where it is in the source of that version."""

    @property
    def requirements(self) -> tuple[str, ...]:
        return (f"{self.package}{self.extras}=={self.version}", *self.needs, "fastapi", "uvicorn", "h11")


PEERS = (
    Peer(
        name="asgi-idempotency-header",
        package="asgi-idempotency-header",
        version="0.2.0",
        needs=("redis",),
        store="redis",
        keys={"required": False, "quoted": False, "replayed_header": "Idempotent-Replayed"},
        faults={
            "semantics.reuse-refused": "no fingerprint of the request (middleware.py:52)",
            "security.other-tenant": "keys of all callers are one space (middleware.py:52)",
            "semantics.passing-failure": "after an exception the key stays claimed, without expiry (middleware.py:95)",
        },
    ),
    Peer(
        name="fastapi-idempotency-key-sqlite",
        package="fastapi-idempotency-key",
        version="0.1.1",
        extras="[sqlite]",
        store="sqlite",
        keys={"quoted": False, "replayed_header": "Idempotency-Replayed"},
        sets_cookie=True,
        faults={
            "security.other-tenant": "keys of all callers are one space (middleware.py:123-124)",
            "security.cookies": "the first caller's cookie is stored and given to others (middleware.py:123-124)",
        },
    ),
    Peer(
        name="fastapi-idempotency-key-redis",
        package="fastapi-idempotency-key",
        version="0.1.1",
        extras="[redis]",
        store="redis",
        keys={"quoted": False, "replayed_header": "Idempotency-Replayed"},
        faults={
            "semantics.replay-status": "an identical retry is refused as another request (backends/redis.py:124)",
        },
    ),
    Peer(
        name="fastidempotent",
        package="fastidempotent",
        version="0.1.0",
        extras="[sqlite]",
        needs=("greenlet",),
        store="sqlite",
        keys={"quoted": False, "replayed_header": "X-Idempotent-Replayed"},
        faults={
            "input.longest-key": "method, path and key together may have 256 characters, which is looked at after "
            "the handler ran (models.py:26-30, middleware.py:156)",
            "security.other-tenant": "a key belongs to method and path, not to a caller (utils.py:26)",
        },
    ),
    Peer(
        name="fastapi-idempotency",
        package="fastapi-idempotency",
        version="0.1.1",
        store="memory",
        keys={"required": False, "quoted": False, "replayed_header": "Idempotent-Replayed"},
        faults={
            "security.other-tenant": "keys belong to the client's address (middleware.py:53-54)",
            "semantics.late-failure": "a 5xx frees the key, whatever happened before it (middleware.py:330-338)",
        },
    ),
    Peer(
        name="fastapi-idempotency-cookie",
        package="fastapi-idempotency",
        version="0.1.1",
        store="memory",
        keys={"required": False, "quoted": False, "replayed_header": "Idempotent-Replayed"},
        sets_cookie=True,
        faults={
            "semantics.replay-effect": "an answer that sets a cookie frees its key (middleware.py:330-338)",
        },
    ),
)
