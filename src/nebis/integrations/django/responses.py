"""A response of Django as it is stored, and a stored one as Django sends it."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterable, Iterable
from typing import Any

from asgiref.sync import async_to_sync, sync_to_async
from django.http import HttpResponse, JsonResponse
from django.http.response import HttpResponseBase

from nebis.http.exchange import Exchange


def exchange_of(response: Any, limit_bytes: int) -> Exchange:
    """Render a response, and gather it if it is streamed; of one above the cap only as much as shows that it is."""
    response = _whole(response)
    if not response.streaming:
        body = response.content
    elif response.is_async:
        body = async_to_sync(_gather_async)(response.streaming_content, limit_bytes)
    else:
        body = _gather(response.streaming_content, limit_bytes)
    return _exchange(response, body)


async def exchange_of_async(response: Any, limit_bytes: int) -> Exchange:
    """Do as `exchange_of` does, without holding up the loop."""
    response = await sync_to_async(_whole)(response) if _is_lazy(response) else _whole(response)
    if not response.streaming:
        body = response.content
    elif response.is_async:
        body = await _gather_async(response.streaming_content, limit_bytes)
    else:
        body = await sync_to_async(_gather)(response.streaming_content, limit_bytes)
    return _exchange(response, body)


def rendered(value: Any) -> Exchange:
    """Make a stored answer of what a view gives to `tx.finish`: a response, or plain data."""
    response = value if isinstance(value, HttpResponseBase) else JsonResponse(value, safe=False)
    return exchange_of(response, sys.maxsize)  # Whether it can be stored is decided by whoever stores it.


def as_response(value: Any) -> Any:
    """Return what a view returned; an answer that it has from `attempt.original` as a response."""
    return response_of(value) if isinstance(value, Exchange) else value


def response_of(exchange: Exchange, replaced: Any = None) -> Any:
    """Make a response that is sent exactly as the answer says; what `replaced` holds open is closed with it."""
    response = HttpResponse(exchange.body, status=exchange.status)
    del response.headers["Content-Type"]
    for name, value in exchange.framed():
        if name.lower() == "set-cookie":
            response.cookies.load(value)
        else:
            response.headers[name] = value
    if replaced is not None:
        # Django closes only what it sends, and has no other way to hand this on.
        response._resource_closers.extend(replaced._resource_closers)  # noqa: SLF001
    return response


def _is_lazy(response: Any) -> bool:
    return callable(getattr(response, "render", None)) and not getattr(response, "is_rendered", False)


def _whole(response: Any) -> Any:
    if not isinstance(response, HttpResponseBase):
        raise TypeError(f"The view returned {type(response).__name__}; return a response.")
    return response.render() if _is_lazy(response) else response


def _exchange(response: Any, body: bytes) -> Exchange:
    cookies = (("Set-Cookie", cookie.OutputString()) for cookie in response.cookies.values())
    return Exchange(status=response.status_code, headers=(*response.items(), *cookies), body=body)


def _gather(chunks: Iterable[bytes], limit_bytes: int) -> bytes:
    body = bytearray()
    for chunk in chunks:
        body += chunk
        if len(body) > limit_bytes:
            break
    return bytes(body)


async def _gather_async(chunks: AsyncIterable[bytes], limit_bytes: int) -> bytes:
    body = bytearray()
    async for chunk in chunks:
        body += chunk
        if len(body) > limit_bytes:
            break
    return bytes(body)
