"""What a message looks like on its way: the names under which its parts travel, and what cannot travel."""

from __future__ import annotations

import re
from collections.abc import Mapping

from nebis.ports.messages import Message, Refused

MESSAGE_ID = "Nebis-Message-Id"
ORDERING_KEY = "Nebis-Ordering-Key"
CONTENT_TYPE = "Content-Type"
DEFAULT_CONTENT_TYPE = "application/json"
"""Of what comes in without saying what it is."""

LONGEST_STEP_SECONDS = 4.0
"""For connecting, and again for publishing: both must fit into the time that a relay gives a publisher (10 seconds), so
that each message gets a word of its own instead of all being unknown together."""

_HEADER_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
# A line break in a value would begin a header of its own.
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def headers_of(message: Message, own: Mapping[str, str | None]) -> dict[str, str]:
    """Return the message's headers with those of the protocol, which win: nobody may stage another id over ours."""
    reserved = {name.lower() for name in own}
    theirs = {name: value for name, value in message.headers if name.lower() not in reserved}
    return theirs | {name: value for name, value in own.items() if value is not None}


def refusal_of(headers: Mapping[str, str], *, is_ascii: bool = False) -> Refused | None:
    """Return why these headers cannot be sent as they are, or None."""
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name):
            return Refused(reason="the name of a header is no token; stage it again without it", is_permanent=True)
        if _CONTROL.search(value) or (is_ascii and not value.isascii()):
            what = "a control character" if value.isascii() else "a character outside ASCII"
            return Refused(reason=f"header {name} has {what}; stage it again without", is_permanent=True)
    return None


def phrase(error: BaseException) -> str:
    """Return what an error of a library says, in one short line and never empty."""
    said = " ".join(str(error).split())
    name = type(error).__name__
    return f"{name}: {said}"[:200] if said else name
