"""Who asks: the name of the operating system's user, which a person cannot choose."""

from __future__ import annotations

import os
import pwd
import socket

import typer

from nebis.core.record import RecordId
from nebis.ports.history import Signed
from nebis.subject import is_storable

_LONGEST_REASON = 2000


def signed_by_this_person(
    *, what: str, reason: str, record_id: RecordId | None = None, fence_seen: int | None = None
) -> Signed:
    """Sign what is asked for; raise a usage error for a reason that says nothing or cannot be kept."""
    told = reason.strip()
    if not told or len(told) > _LONGEST_REASON or not is_storable(told):
        raise typer.BadParameter(f"--reason is 1 to {_LONGEST_REASON} characters of text: what you know, and from whom")
    return Signed(who=this_person(), what=what, reason=told, record_id=record_id, fence_seen=fence_seen)


def this_person() -> str:
    """Return user and host. The environment is not asked: anybody can put another name there."""
    user = os.getuid()
    try:
        name = pwd.getpwuid(user).pw_name
    except KeyError:
        name = f"user {user}"
    return f"{name}@{socket.gethostname()}"
