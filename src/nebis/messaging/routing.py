"""Which publisher a topic goes to, and what a publisher's silence means."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

from nebis.errors import ConfigError
from nebis.messaging.wire import phrase
from nebis.ports.messages import Message, Publisher, PublishResult, Refused, Unknown

log = logging.getLogger("nebis.relay")


class Routes:
    """The publishers of a relay; they live on one event loop."""

    def __init__(self, publishers: Publisher | Mapping[str, Publisher], *, timeout_seconds: float) -> None:
        """Take the one publisher of everything, or publishers by pattern of topic, of which the first that fits counts.

        A pattern is a topic in which `*` stands for anything.
        """
        self._routes = dict(publishers) if isinstance(publishers, Mapping) else {"*": publishers}
        if not self._routes:
            raise ConfigError(["a relay needs a publisher; hand in one, or one for each pattern of topics"])
        self._timeout_seconds = timeout_seconds

    async def publish(self, messages: Sequence[Message]) -> list[PublishResult]:
        """Publish each message by its publisher, and answer for all of them; never raises an `Exception`."""
        results: list[PublishResult | None] = [None] * len(messages)
        places: dict[int, tuple[Publisher, list[int]]] = {}
        for place, message in enumerate(messages):
            publisher = self._publisher_of(message.topic)
            if publisher is None:
                results[place] = Refused(reason="no publisher takes this topic; add a route for it")
            else:
                places.setdefault(id(publisher), (publisher, []))[1].append(place)
        told = await asyncio.gather(
            *(self._ask(publisher, [messages[place] for place in mine]) for publisher, mine in places.values())
        )
        for (_, mine), answers in zip(places.values(), told, strict=True):
            for place, answer in zip(mine, answers, strict=True):
                results[place] = answer
        return [result for result in results if result is not None]

    async def reset(self, topics: frozenset[str]) -> None:
        """Let the publishers of these topics begin anew; one that cannot is tried again with the next message."""
        publishers = {id(found): found for topic in topics if (found := self._publisher_of(topic)) is not None}
        for publisher in publishers.values():
            try:
                async with asyncio.timeout(self._timeout_seconds):
                    await publisher.reset()
            except Exception as error:  # noqa: BLE001 - what it cannot do now it will have to do when it publishes.
                log.warning("a publisher could not begin anew (%s)", phrase(error))

    async def aclose(self) -> None:
        """Give back the connections of every publisher."""
        for publisher in {id(each): each for each in self._routes.values()}.values():
            try:
                async with asyncio.timeout(self._timeout_seconds):
                    await publisher.aclose()
            except Exception as error:  # noqa: BLE001 - the relay ends either way.
                log.warning("a publisher did not close (%s)", phrase(error))

    async def _ask(self, publisher: Publisher, messages: Sequence[Message]) -> Sequence[PublishResult]:
        try:
            async with asyncio.timeout(self._timeout_seconds):
                results = await publisher.publish(messages)
        except TimeoutError:
            return [Unknown(reason="the publisher did not answer in time")] * len(messages)
        except Exception as error:  # noqa: BLE001 - whatever it is, some of them may have been sent.
            return [Unknown(reason=phrase(error))] * len(messages)
        if len(results) != len(messages):
            return [Unknown(reason="the publisher did not answer for every message")] * len(messages)
        return results

    def _publisher_of(self, topic: str) -> Publisher | None:
        return next((found for pattern, found in self._routes.items() if fnmatchcase(topic, pattern)), None)
