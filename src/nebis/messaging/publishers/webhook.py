"""Webhooks: a signed POST whose `Idempotency-Key` is the message's id on every try."""

from __future__ import annotations

import asyncio
import email.utils
import ssl
import time
from collections.abc import Callable, Sequence
from typing import ClassVar
from urllib.parse import quote, urljoin

from nebis.core.keygrammar import parse_key
from nebis.errors import KeyMalformed
from nebis.messaging.publishers.posting import Answer, AnswerBroken, Connection, Target, TargetRefused
from nebis.messaging.signature import keys_of, signature_headers
from nebis.messaging.wire import CONTENT_TYPE, LONGEST_STEP_SECONDS, ORDERING_KEY, headers_of, phrase, refusal_of
from nebis.ports.messages import Confirmed, Message, PublishResult, Refused, Unknown

TOPIC = "Nebis-Topic"

_NOT_NOW = frozenset({408, 409, 425, 429})
"""The receiver is still busy with the first try, or wants a pause: the only refusals that may turn into a yes."""

_LONGEST_RETRY_AFTER_SECONDS = 24 * 60 * 60
_MOST_REDIRECTS = 3

# A topic or an ordering key may have any character; in a header the others are percent-encoded.
_HEADER_SAFE = "!#$&'()*+,/:;<=>?@[\\]^`{|}~ "


class WebhookPublisher:
    """Posts to a URL, or to that which a function gives for a message.

    2xx confirms. Any other 4xx than 408, 409, 425 and 429 refuses for good; everything else is tried again, not before
    `Retry-After`. Redirects are followed only within the origin, and only those that keep method and body. Hosts
    with a private address are refused unless `allow_private_targets` is set: where customers choose the URL, they would
    reach what only your servers may.
    """

    cloudevents_prefix: ClassVar[str] = "ce-"

    def __init__(
        self,
        url: str | Callable[[Message], str],
        *,
        secrets: str | Sequence[str],
        allow_private_targets: bool = False,
        connect_timeout_seconds: float = 2.0,
        timeout_seconds: float = LONGEST_STEP_SECONDS,
        concurrency: int = 16,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._url = url
        self._keys = keys_of(secrets)
        self._allow_private_targets = allow_private_targets
        self._connect_timeout_seconds = connect_timeout_seconds
        self._timeout_seconds = timeout_seconds
        self._slots = asyncio.Semaphore(concurrency)
        self._tls = tls or ssl.create_default_context()

    async def publish(self, messages: Sequence[Message]) -> Sequence[PublishResult]:
        """Post each, some at a time."""
        return await asyncio.gather(*(self._send_in_turn(message) for message in messages))

    async def reset(self) -> None:
        """Do nothing: every request has a connection of its own."""

    async def aclose(self) -> None:
        """Do nothing: every request has a connection of its own."""

    async def _send_in_turn(self, message: Message) -> PublishResult:
        try:
            async with asyncio.timeout(self._timeout_seconds / 2):
                await self._slots.acquire()
        except TimeoutError:
            return Refused(reason="its turn did not come in time; the receiver is too slow for so many messages")
        try:
            return await self._send(message)
        finally:
            self._slots.release()

    async def _send(self, message: Message) -> PublishResult:
        try:
            headers = self._headers(message)
            url = self._url if isinstance(self._url, str) else self._url(message)
            target = Target.parse(url)
        except KeyMalformed:
            return Refused(reason="the id cannot be an Idempotency-Key; stage it under another id", is_permanent=True)
        except TargetRefused as error:
            return Refused(reason=str(error))
        except Exception as error:  # noqa: BLE001 - the user's function; whatever it raised, nothing was sent.
            return Refused(reason=f"the function that gives the URL failed ({phrase(error)})")
        if refusal := refusal_of(headers, is_ascii=True):
            return refusal
        deadline = asyncio.get_running_loop().time() + self._timeout_seconds
        for _ in range(_MOST_REDIRECTS + 1):
            result = await self._attempt(target, headers, message.payload, deadline)
            if not isinstance(result, Target):
                return result
            target = result
        return Refused(reason="the receiver redirects in a circle")

    async def _attempt(
        self, target: Target, headers: dict[str, str], body: bytes, deadline: float
    ) -> PublishResult | Target:
        try:
            async with asyncio.timeout_at(deadline), asyncio.timeout(self._connect_timeout_seconds):
                connection = await Connection.open(target, tls=self._tls, may_be_private=self._allow_private_targets)
        except TargetRefused as error:
            return Refused(reason=str(error))
        except TimeoutError:
            return Refused(reason="the receiver cannot be reached in time")
        except OSError as error:
            return Refused(reason=f"the receiver cannot be reached ({phrase(error)})")
        try:
            async with asyncio.timeout_at(deadline):
                answer = await connection.post(headers, body)
        except TimeoutError:
            return Unknown(reason="the receiver did not answer in time")
        except (OSError, AnswerBroken) as error:
            return Unknown(reason=phrase(error))
        finally:
            connection.close()
        return _judged(answer, target)

    def _headers(self, message: Message) -> dict[str, str]:
        key = message.ordering_key
        own: dict[str, str | None] = {
            "Idempotency-Key": _key_header(message.id),
            CONTENT_TYPE: message.content_type,
            TOPIC: quote(message.topic, safe=_HEADER_SAFE),
            ORDERING_KEY: None if key is None else quote(key, safe=_HEADER_SAFE),
            "User-Agent": "nebis",
            # The client's own; a staged one would make the request two requests.
            "Host": None,
            "Connection": None,
            "Content-Length": None,
            "Transfer-Encoding": None,
            "Expect": None,
        }
        if self._keys:
            own |= signature_headers(self._keys, message_id=message.id, body=message.payload, now=time.time())
        return headers_of(message, own)


def _key_header(message_id: str) -> str:
    """Return the id bare, as most receivers expect it, and as a quoted string only where it must be one."""
    escaped = message_id.replace("\\", "\\\\").replace('"', '\\"')
    quoted = f'"{escaped}"'
    parse_key(quoted)
    return quoted if set(message_id) & set('",;\\') else message_id


def _judged(answer: Answer, target: Target) -> PublishResult | Target:
    reason = f"the receiver answered {answer.status}"
    match answer.status:
        case status if 200 <= status < 300:
            return Confirmed()
        case 307 | 308:
            return _redirected(answer, target)
        case status if 300 <= status < 400:
            return Refused(reason=f"{reason}, a redirect that drops the body; correct the URL")
        case 429:
            return Refused(reason=reason, retry_after_seconds=_retry_after(answer))
        case status if 400 <= status < 500 and status not in _NOT_NOW:
            return Refused(reason=reason, is_permanent=True)
        case _:
            # A server error may come after the work was done, and 409 says that a first try is still running.
            return Unknown(reason=reason, retry_after_seconds=_retry_after(answer))


def _redirected(answer: Answer, target: Target) -> PublishResult | Target:
    base = f"{target.scheme}://{target.authority}{target.path}"
    try:
        there = Target.parse(urljoin(base, answer.headers.get("location", "")))
    except (TargetRefused, ValueError):
        return Refused(reason="the receiver redirects to no valid URL")
    if there.origin != target.origin:
        return Refused(reason="the receiver redirects to another origin; correct the URL")
    return there


def _retry_after(answer: Answer) -> float | None:
    value = answer.headers.get("retry-after", "").strip()
    if value.isascii() and value.isdecimal() and len(value) < 10:
        seconds = float(value)
    else:
        try:
            seconds = email.utils.parsedate_to_datetime(value).timestamp() - time.time()
        except (ValueError, OverflowError):
            return None
    return min(max(seconds, 0.0), _LONGEST_RETRY_AFTER_SECONDS)
