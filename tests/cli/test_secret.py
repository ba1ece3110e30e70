"""`nebis secret`: which secrets records need, and how one is given up."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from nebis import Attempt, Local, Nebis
from nebis.core.secret import Keyring
from tests.cli.command import nebis
from tests.cli.scenes import Scene, on_each_database

OLD = "0123456789abcdef" * 4
NEW = "fedcba9876543210" * 4
WHY = ("--reason", "rotated in March")


@pytest.fixture(params=["sqlite", "postgres"])
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scene]:
    yield from on_each_database(request, tmp_path)


def number(secret: str) -> str:
    return str(Keyring.parse(secret).newest.number)


def run_once(url: str, secret: str, key: str) -> None:
    with Nebis(url, secret=secret) as application:

        @application.operation("place_order", effects=Local)
        def place_order(attempt: Attempt, command: str) -> str:
            return command

        place_order(key=key, tenant="acct_1", command="apple")


def test_each_secret_is_listed_with_the_records_that_need_it(scene: Scene) -> None:
    run_once(scene.url, OLD, "order-1")
    run_once(scene.url, f"{NEW},{OLD}", "order-2")
    run_once(scene.url, f"{NEW},{OLD}", "order-3")

    plain = nebis("secret", "list", store=scene.url, NEBIS_SECRET=f"{NEW},{OLD}")
    told = json.loads(nebis("secret", "list", "--json", store=scene.url).stdout)

    assert {str(each["number"]): each["records"] for each in told["secrets"]} == {number(OLD): 1, number(NEW): 2}
    assert "new records are made with it" in plain.stdout
    assert not {OLD[:16], NEW[:16]} & set(plain.stdout.split())


def test_a_secret_that_records_need_is_kept(scene: Scene) -> None:
    run_once(scene.url, OLD, "order-1")
    run_once(scene.url, f"{NEW},{OLD}", "order-2")

    outcome = nebis("secret", "retire", number(OLD), *WHY, store=scene.url, NEBIS_SECRET=NEW)

    assert (outcome.status, outcome.stdout) == (1, "")
    assert "1 records were made with it" in outcome.stderr
    run_once(scene.url, f"{NEW},{OLD}", "order-1")


def test_a_secret_that_no_record_needs_is_retired_and_processes_start_without_it(scene: Scene) -> None:
    with Nebis(scene.url, secret=OLD):
        pass
    run_once(scene.url, f"{NEW},{OLD}", "order-2")

    outcome = nebis("secret", "retire", number(OLD), *WHY, store=scene.url, NEBIS_SECRET=NEW)

    assert (outcome.status, outcome.stderr) == (0, "")
    run_once(scene.url, NEW, "order-3")


@pytest.mark.parametrize(
    ("listed", "words"), [(f"{OLD},{NEW}", "NEBIS_SECRET lists it first"), (NEW, "it is the only one")]
)
def test_the_secret_in_use_is_kept(scene: Scene, listed: str, words: str) -> None:
    with Nebis(scene.url, secret=OLD):
        pass
    if words.startswith("NEBIS"):
        with Nebis(scene.url, secret=listed):
            pass

    outcome = nebis("secret", "retire", number(OLD), *WHY, store=scene.url, NEBIS_SECRET=listed)

    assert (outcome.status, words in outcome.stderr) == (1, True)


def test_a_number_that_nobody_has_is_wrong_usage(scene: Scene) -> None:
    outcome = nebis("secret", "retire", "1", *WHY, store=scene.url)

    assert (outcome.status, "no secret has this number" in outcome.stderr) == (2, True)
