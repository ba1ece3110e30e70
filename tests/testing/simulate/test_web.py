"""The simulation over HTTP: mistakes of the HTTP core are seen in the bytes that clients are told."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from nebis.core.keygrammar import Key
from nebis.errors import InFlight, KeyReused
from nebis.http import problem
from nebis.http.exchange import Exchange
from nebis.integrations.bound import Bound
from nebis.integrations.protection import Admission
from nebis.testing.simulate import Rule, simulate, web
from nebis.testing.simulate.scenario import HTTP_EVERY
from nebis.testing.simulate.trades import declaration, request_of

HTTP_SEEDS = range(HTTP_EVERY - 1, 100 * HTTP_EVERY, HTTP_EVERY)


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    """Requests are read once and kept; not those of a test that changes how they are read."""
    kept = (request_of, declaration, web.route_of, web.endpoint_of, web._called, web._prepared)
    for cache in kept:
        cache.cache_clear()
    yield
    for cache in kept:
        cache.cache_clear()


def first_broken(rules: set[Rule]) -> set[Rule]:
    for seed in HTTP_SEEDS:
        broken = {violation.rule for violation in simulate(seed).violations} & rules
        if broken:
            return broken
    return set()


def unmarked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Admission, "replayed", lambda _, exchange, *__: exchange)


def told_live(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("nebis.integrations.protection.first_told", lambda live, *_: live)


def told_anew(patch: pytest.MonkeyPatch) -> None:
    """Render a result with something of the moment in it."""
    moments = iter(range(1_000_000))
    answer: Callable[..., Exchange] = Bound.answer

    def rendered(route: Bound, execution: Any) -> Exchange:
        return answer(route, execution).with_headers(("location", f"/{next(moments)}"))

    patch.setattr(Bound, "answer", rendered)


def no_pause(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("nebis.http.problem._retry_after_seconds", lambda _: None)


def reused_is_in_flight(patch: pytest.MonkeyPatch) -> None:
    """Tell whoever sends another command that it is only a matter of time."""
    patch.setattr(problem, "ANSWERS", {**problem.ANSWERS, KeyReused: problem.ANSWERS[InFlight]})
    patch.setattr(problem, "KeyReused", ())


def quotes_count(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("nebis.subject.parse_key", Key)


def anything_is_a_key(patch: pytest.MonkeyPatch) -> None:
    """Take the last of several keys, and some key where there is none."""
    patch.setattr(
        "nebis.integrations.protection.key_value", lambda pairs, _: dict(pairs).get("Idempotency-Key", "none")
    )


@pytest.mark.parametrize(
    ("plant", "rules"),
    [
        (unmarked, {Rule.REPLAY_MARK}),
        (told_live, {Rule.HTTP_BYTES_DIFFER, Rule.HTTP_STATUS}),
        (told_anew, {Rule.HTTP_BYTES_DIFFER}),
        (no_pause, {Rule.HTTP_STATUS}),
        (reused_is_in_flight, {Rule.HTTP_STATUS}),
        (quotes_count, {Rule.HTTP_BYTES_DIFFER, Rule.SUCCESS_FORGOTTEN}),
        (anything_is_a_key, {Rule.HTTP_STATUS, Rule.BROKEN}),
    ],
)
def test_planted_mistake_of_http_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], rules: set[Rule], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)

    assert first_broken(rules)


def test_http_seeds_tell_their_clients_something() -> None:
    runs = [simulate(seed) for seed in HTTP_SEEDS[:20]]

    assert not [violation for run in runs for violation in run.violations]
    assert sum(run.answers for run in runs) > 100
    assert not simulate(0).answers
