"""All worlds of the proof, searched side by side."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace

from nebis.testing.modelcheck.configurations import Configuration
from nebis.testing.modelcheck.search import Result, Search
from nebis.testing.modelcheck.story import tell


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What one world showed, with a story for each kind of broken promise."""

    result: Result
    stories: tuple[str, ...]


def check(configuration: Configuration) -> Report:
    """Search one world to its end."""
    search = Search(configuration)
    result = search.run()
    return Report(result=result, stories=tuple(tell(search, finding) for finding in result.findings))


def check_all(configurations: Iterable[Configuration], *, processes: int) -> Iterator[Report]:
    """Search several worlds at once and yield each report as its turn comes, the largest world first."""
    largest_first = sorted(configurations, key=lambda one: -one.at_least)
    with ProcessPoolExecutor(max_workers=processes) as pool:
        yield from pool.map(check, largest_first)


def deeper(configuration: Configuration, more: int) -> Configuration:
    """Return the same world with more late messages, crashes and requests."""
    return replace(
        configuration,
        late=configuration.late + more,
        crashes=configuration.crashes + more,
        starts=configuration.starts + more,
        at_least=0 if more else configuration.at_least,
    )
