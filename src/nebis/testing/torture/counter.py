"""Counting effects: by asking a URL, or by running a command. The API itself is not asked whether it kept its word."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from nebis.errors import ConfigError
from nebis.testing.torture.operation import Operation, placed_text
from nebis.testing.torture.wire import Address, NoAnswer, Request, exchange


class Counter:
    """How often the operation had its effect, by whoever keeps the books."""

    def __init__(self, operation: Operation, target: Address) -> None:
        self._effects = operation.effects
        self._target = target
        self._headers = operation.effects.headers
        if self._effects.url.startswith("/"):
            self._headers = (*operation.first, *self._headers)
        self._seconds = operation.limits.request_seconds

    async def count(self, fresh: Mapping[str, str]) -> int:
        """Return the count; raise `ConfigError` that says why there is none."""
        if self._effects.command:
            return await self._run([placed_text(word, fresh) for word in self._effects.command])
        return await self._ask(placed_text(self._effects.url, fresh))

    async def _ask(self, url: str) -> int:
        if url.startswith("/"):
            address, path = self._target, url
        else:
            try:
                parsed = Address.parse(url)
            except ValueError as error:
                raise ConfigError([f"effects.url: {error}"]) from None
            parts = urlsplit(url)
            address = Address(host=parsed.host, port=parsed.port, is_encrypted=parsed.is_encrypted)
            path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        request = Request(method="GET", path=path, headers=self._headers)
        try:
            reply = await exchange(address, request, within_seconds=self._seconds)
        except NoAnswer as error:
            raise ConfigError([f"effects.url: {address.url}{path} does not count: {error}"]) from None
        if reply.status != 200:
            raise ConfigError([f"effects.url: {address.url}{path} answers {reply.status}; it must answer 200"])
        return self._number(reply.body, "effects.url")

    async def _run(self, command: list[str]) -> int:
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
        except OSError as error:
            raise ConfigError([f"effects.command: {command[0]} cannot be run ({error.strerror})"]) from None
        try:
            async with asyncio.timeout(self._seconds):
                said, complained = await process.communicate()
        except TimeoutError:
            process.kill()
            await process.wait()
            raise ConfigError([f"effects.command: {command[0]} did not end within {self._seconds:g} s"]) from None
        if process.returncode != 0:
            last = complained.decode(errors="replace").strip().rpartition("\n")[2][:200]
            raise ConfigError([f"effects.command: {command[0]} ended with status {process.returncode}: {last}"])
        return self._number(said, "effects.command")

    def _number(self, told: bytes, place: str) -> int:
        """Read a count: a number, or the length of a list."""
        try:
            found: Any = json.loads(told)
        except ValueError:
            raise ConfigError([f"{place} gives no number and no JSON; make it print a count"]) from None
        for step in filter(None, self._effects.json_path.split(".")):
            try:
                found = found[int(step)] if isinstance(found, list) else found[step]
            except (KeyError, IndexError, TypeError, ValueError):
                raise ConfigError(
                    [f"effects.json_path: the answer has no {step!r}; name the member that counts"]
                ) from None
        if isinstance(found, list):
            return len(found)
        if isinstance(found, int) and not isinstance(found, bool):
            return found
        raise ConfigError([f"{place}: what {self._effects.json_path or 'it gives'} names is no number and no list"])
