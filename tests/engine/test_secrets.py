"""Every process on one store works with the same secrets, or does not start."""

from collections.abc import Callable
from itertools import count
from uuid import uuid4

import pytest

from nebis import ConfigError, KeyReused, StoreUnavailable
from nebis.core.secret import Secret
from tests.engine.faces import Face, View, new_name

SECRET, OTHER = "00" * 31 + "01", "00" * 31 + "02"


@pytest.fixture(autouse=True)
def _no_secret_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NEBIS_SECRET", raising=False)


def counting(runs: list[str]) -> Callable[[View, str], int]:
    def handle(attempt: View, command: str) -> int:
        runs.append(command)
        return len(runs)

    return handle


@pytest.mark.parametrize("secret", [None, SECRET])
def test_two_processes_on_one_store_run_a_key_once(fresh: Callable[..., Face], secret: str | None) -> None:
    runs, name, key = list[str](), new_name(), str(uuid4())
    first = fresh(secret=secret).operation(counting(runs), name=name)
    second = fresh(secret=secret).operation(counting(runs), name=name)

    assert first(key=key, command="pay") == second(key=key, command="pay") == 1
    assert runs == ["pay"]


def test_secret_of_the_environment_is_the_same_as_one_in_the_code(
    fresh: Callable[..., Face], monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh(secret=SECRET).open()
    monkeypatch.setenv("NEBIS_SECRET", SECRET)

    fresh().open()


def test_wrong_secret_refuses_to_start(fresh: Callable[..., Face]) -> None:
    fresh(secret=SECRET).open()

    with pytest.raises(ConfigError, match="another secret") as told:
        fresh(secret=OTHER).open()

    assert OTHER not in str(told.value)
    assert SECRET not in str(told.value)


def test_missing_secret_refuses_to_start_on_a_configured_store(fresh: Callable[..., Face]) -> None:
    fresh(secret=SECRET).open()

    with pytest.raises(ConfigError, match="no secret is configured"):
        fresh().open()


@pytest.mark.parametrize("listed", [0, 1, 2])
@pytest.mark.parametrize("before", [None, SECRET])
def test_key_is_known_after_the_secret_was_rotated(fresh: Callable[..., Face], before: str | None, listed: int) -> None:
    """F116: a rotation that forgot keys would run everything twice."""
    runs, name, key = list[str](), new_name(), str(uuid4())
    first = fresh(secret=before)
    first.operation(counting(runs), name=name)(key=key, command="pay")
    after = [*new_secrets(first, listed), *([] if before is None else [before])]
    rotated = fresh(secret=",".join(after)).operation(counting(runs), name=name)

    assert rotated.execute(key=key, command="pay").is_replay
    with pytest.raises(KeyReused):
        rotated(key=key, command="refund")
    assert runs == ["pay"]


def new_secrets(face: Face, number: int) -> list[str]:
    """Make secrets whose numbers collide neither with each other nor with one that the store may know."""
    known = face.run(lambda store: store.secrets(None)).generated
    assert known is not None
    taken = {Secret(known).number, Secret(bytes.fromhex(SECRET)).number}
    made: list[str] = []
    for text in map("{:064x}".format, count(1000)):
        if len(made) == number:
            return made
        if Secret(bytes.fromhex(text)).number not in taken:
            taken.add(Secret(bytes.fromhex(text)).number)
            made.append(text)
    raise AssertionError("counting never ends")


def test_process_that_does_not_know_the_new_secret_yet_runs_nothing_twice(fresh: Callable[..., Face]) -> None:
    """A rolling deployment: the old process fails closed on what it cannot compare."""
    runs, name, key = list[str](), new_name(), str(uuid4())
    old = fresh(secret=SECRET).operation(counting(runs), name=name)
    old(key=str(uuid4()), command="warm up")
    fresh(secret=f"{OTHER},{SECRET}").operation(counting(runs), name=name)(key=key, command="pay")

    with pytest.raises(StoreUnavailable):
        old(key=key, command="pay")

    assert runs == ["warm up", "pay"]


def test_short_secret_is_refused_before_anything_is_written(fresh: Callable[..., Face]) -> None:
    with pytest.raises(ConfigError, match="at least 16 bytes"):
        fresh(secret="short").open()

    fresh(secret=SECRET).open()


def test_process_that_refused_to_start_can_start_when_it_is_corrected(fresh: Callable[..., Face]) -> None:
    fresh(secret=SECRET).open()
    wrong = fresh(secret=OTHER)
    for _ in range(2):
        with pytest.raises(ConfigError):
            wrong.open()

    fresh(secret=SECRET).open()


def test_schema_is_only_checked_where_it_may_not_be_changed(fresh: Callable[..., Face]) -> None:
    with pytest.raises(Exception, match="schema"):
        fresh(migrate=False).open()
    fresh().open()

    fresh(migrate=False).open()
