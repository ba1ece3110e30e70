"""The kit tested on servers: a faultless one passes, and each broken one fails its own check and no other's."""

import asyncio
import logging
import tomllib
from pathlib import Path

import pytest

from nebis.testing.torture import CHECKS, Operation, Run, Verdict, chosen, run
from nebis.testing.torture.operation import parse_operation
from tests.integrations.servers import uvicorn_serving
from tests.testing.torture.broken_servers import BROKEN
from tests.testing.torture.careless_servers import CARELESS
from tests.testing.torture.nebis_shop import make_app
from tests.testing.torture.shop import SHOP_TOML, Shop, open_shop


@pytest.fixture(scope="module")
def operation() -> Operation:
    return parse_operation(tomllib.loads(SHOP_TOML), {})


def tortured(operation: Operation, shop: Shop, *only: str) -> Run:
    with open_shop(shop) as url:
        return asyncio.run(run(operation, url, chosen(only)))


def endings(done: Run, verdict: Verdict) -> dict[str, str]:
    return {result.check.id: result.detail for result in done.having(verdict)}


def test_a_faultless_server_passes(operation: Operation) -> None:
    done = tortured(operation, Shop())

    assert endings(done, Verdict.FAILED) == {}
    assert endings(done, Verdict.SKIPPED) == {
        "network.chunked": "the server does not take bodies without a length (411)",
    }


def test_nebis_passes(operation: Operation, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """I1-I5, I11, I12, over HTTP, by somebody who knows nothing of them: Starlette on SQLite under uvicorn."""
    caplog.set_level(logging.CRITICAL)  # Handlers that fail on purpose are logged with their tracebacks.
    with uvicorn_serving(make_app(tmp_path)) as (host, port):
        done = asyncio.run(run(operation, f"http://{host}:{port}", CHECKS))

    assert endings(done, Verdict.FAILED) == {}
    assert endings(done, Verdict.SKIPPED) == {"security.cookies": "the operation sets no cookie"}


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.__name__)
def test_a_broken_server_fails_its_own_check_and_no_check_that_it_does_not_declare(
    operation: Operation, broken: type[Shop]
) -> None:
    done = tortured(operation, broken())

    failed = endings(done, Verdict.FAILED)
    assert broken.own in failed
    assert failed.keys() - {broken.own} - broken.also == set(), failed
    assert all(result.detail and result.reproduce for result in done.having(Verdict.FAILED))


@pytest.mark.parametrize("name", CARELESS)
def test_a_careless_server_fails_the_check_that_it_was_made_for(operation: Operation, name: str) -> None:
    done = tortured(operation, CARELESS[name](), name)

    assert endings(done, Verdict.FAILED).keys() == {name}, done


def test_every_check_can_fail() -> None:
    declared = {name for broken in BROKEN for name in (broken.own, *broken.also)}

    assert {check.id for check in CHECKS} == declared | CARELESS.keys()


def test_the_broken_servers_are_many_and_each_has_a_check_of_its_own() -> None:
    ids = {check.id for check in CHECKS}
    own = [broken.own for broken in BROKEN]

    assert len(BROKEN) >= 12
    assert len(set(own)) == len(own)
    assert all({broken.own, *broken.also} <= ids for broken in BROKEN)
    assert {check.group.value for check in CHECKS} == {name.partition(".")[0] for name in own}


def test_every_check_says_what_it_proves_and_which_faults_it_looks_for() -> None:
    assert len(CHECKS) >= 40
    assert len({check.id for check in CHECKS}) == len(CHECKS)
    for check in CHECKS:
        assert check.proves.endswith("."), check.id
        assert check.faults, check.id
        assert all(fault.startswith(("F", "SEC")) for fault in check.faults), check.id


def test_a_server_that_hangs_up_on_everything_fails_instead_of_ending_the_run(operation: Operation) -> None:
    class Moody(Shop):
        """Answers once, and never again."""

        asked = 0

        def post(self, handler):  # type: ignore[no-untyped-def]
            self.asked += 1
            if self.asked > 1:
                raise ConnectionError
            return super().post(handler)

    done = tortured(operation, Moody(), "semantics.replay-effect", "security.cached")

    assert endings(done, Verdict.FAILED).keys() == {"semantics.replay-effect", "security.cached"}
    assert "without a whole answer" in done.results[0].detail


def test_what_an_operation_file_does_not_describe_is_skipped_with_a_reason() -> None:
    data = tomllib.loads(SHOP_TOML)
    for section in ("lookup", "other"):
        del data[section]
    del data["tenants"]["second"]
    data["variants"] = {"changed": {"amount": 6}}
    data["keys"] = {"required": False, "quoted": False}
    del data["request"]["largest_bytes"]

    done = tortured(parse_operation(data, {}), Shop())

    assert endings(done, Verdict.FAILED) == {}
    skipped = endings(done, Verdict.SKIPPED)
    assert skipped["security.other-tenant"] == "the operation file has no tenants.second"
    assert skipped["semantics.passing-failure"] == "the operation file has no variants.fails_once"
    assert skipped.keys() >= {"semantics.missing-key", "input.oversize", "input.quoted-key", "security.lookup"}


def test_a_body_that_is_no_json_is_sent_as_it_is_written() -> None:
    data = tomllib.loads(SHOP_TOML)
    data["request"]["body"] = '{"order": "order-{unique}", "amount": 5}'
    data["variants"] = {"changed": '{"order": "order-{unique}", "amount": 6}'}

    done = tortured(parse_operation(data, {}), Shop())

    assert endings(done, Verdict.FAILED) == {}
    assert "request.body is a text" in endings(done, Verdict.SKIPPED)["input.broken-json"]
