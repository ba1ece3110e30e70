"""What protected routes say about themselves in an OpenAPI document, and whether it is true."""

import asyncio
import os
import subprocess
import sys
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest
import schemathesis
from django.urls import path
from fastapi import FastAPI
from hypothesis import HealthCheck, Phase, given, settings
from litestar import Litestar, post
from litestar.openapi.spec import Operation as LitestarOperation
from litestar.params import JSONBody
from openapi_spec_validator import validate
from rest_framework.decorators import api_view
from rest_framework.response import Response
from rest_framework.schemas.openapi import SchemaGenerator
from rest_framework.views import APIView
from schemathesis import GenerationMode

from nebis import AsyncNebis, ExpiredPolicy, FingerprintRule, FingerprintVersions, Nebis, Opaque, Wait
from nebis.http import (
    Accept,
    BodyKey,
    BusinessKey,
    OptionalKey,
    Reconstruct,
    Wire,
    public,
)
from nebis.integrations import drf, fastapi, litestar
from nebis.integrations.drf_schema import IdempotencySchema
from nebis.integrations.openapi import merge
from nebis.integrations.routes import protection
from nebis.integrations.terms import IN_FLIGHT, terms
from nebis.velocity import Quota
from tests.integrations.django_project import project
from tests.integrations.servers import uvicorn_serving
from tests.integrations.test_asgi_examples import example
from tests.tidy.repository import ROOT

SENTENCE = "retry the same key after Retry-After, do not show an error"
TOKEN = {"Authorization": "Bearer secret-1"}


def anybody(*_: Any) -> str:
    return "acct-1"


@dataclass
class Thing:
    amount: int


@dataclass
class Made:
    id: str


def require_terms(operation: dict[str, Any]) -> None:
    """Header, window, matching rule and every answer are there."""
    [header] = [one for one in operation["parameters"] if one["name"] == "Idempotency-Key"]
    assert (header["in"], header["required"], header["schema"]["maxLength"]) == ("header", True, 255)
    for words in ("kept for 1 day", "Two requests are the same if", SENTENCE):
        assert words in operation["description"]
    assert SENTENCE in operation["responses"]["409"]["description"]
    for status in ("400", "401", "409", "413", "422", "500", "503"):
        schema = operation["responses"][status]["content"]["application/problem+json"]["schema"]
        assert schema["properties"]["type"]["enum"]
    assert "Retry-After" in operation["responses"]["409"]["headers"]
    assert "Idempotency-Replayed" in operation["responses"]["201"]["headers"]


def test_the_documents_of_the_fastapi_example_are_valid_and_say_it_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    document = example("fastapi").app.openapi()

    validate(document)
    for name in ("/payments", "/orders", "/refunds"):
        require_terms(document["paths"][name]["post"])
    refund = document["paths"]["/refunds"]["post"]["responses"]
    assert refund["201"]["content"]["application/json"]["schema"]["$ref"].endswith("/Paid")
    assert "application/json" in refund["422"]["content"]  # FastAPI's own answer stands beside ours.


def test_the_document_of_the_payments_example_is_valid(tmp_path: Path) -> None:
    """In a process of its own: it reads its settings while it is imported."""
    script = (
        "from openapi_spec_validator import validate\n"
        "from examples.payments.api import app\n"
        "validate(app.openapi())\n"
        f"assert {SENTENCE!r} in app.openapi()['paths']['/v1/payments']['post']['description']\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert run.returncode == 0, run.stderr


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_fuzzer_finds_no_server_error_but_the_documented_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with uvicorn_serving(example("fastapi").app) as (host, port):
        document = schemathesis.openapi.from_url(f"http://{host}:{port}/openapi.json")
        asked = [fuzzed(cast("Any", found).ok()) for found in document.get_all_operations()]

    assert len(asked) == 4
    assert all(201 in statuses for statuses in asked[:3])


def fuzzed(operation: Any) -> set[int]:
    """Call one operation with what its document allows, and with what it does not; return the statuses."""
    documented, statuses = operation.definition.raw["responses"], set()
    valid = operation.as_strategy(generation_mode=GenerationMode.POSITIVE)
    invalid = operation.as_strategy(generation_mode=GenerationMode.NEGATIVE)

    @settings(
        max_examples=8, deadline=None, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
    )
    @given(case=valid | invalid)
    def ask(case: Any) -> None:
        reply = case.call(headers=TOKEN)
        statuses.add(reply.status_code)
        if reply.status_code >= 500:
            content = documented[str(reply.status_code)]["content"]["application/problem+json"]
            assert reply.json()["type"] in content["schema"]["properties"]["type"]["enum"]

    ask()
    return statuses


def test_litestar_says_it_all_beside_its_own() -> None:
    @dataclass
    class Marked(LitestarOperation):
        def __post_init__(self) -> None:
            self.summary = "Mine"

    nebis = AsyncNebis("memory://")

    @nebis.operation("refund", effects=Opaque)
    async def refund(command: Thing) -> Made:
        return Made(id=str(command.amount))

    @post("/things", operation_class=Marked, description="Make a thing.")
    @litestar.idempotent(nebis, "make", effects=Opaque, tenant=anybody)
    async def make(data: JSONBody[Thing]) -> Made:
        return Made(id=str(data.amount))

    @post("/refunds")
    @litestar.bind(refund, tenant=anybody, status=202)
    async def take_back(data: JSONBody[Thing]) -> Thing:
        return data

    app = Litestar([make, take_back], plugins=[litestar.NebisPlugin(nebis)])
    document = app.openapi_schema.to_schema()

    validate(document)
    operation = document["paths"]["/things"]["post"]
    require_terms(operation)
    assert operation["summary"] == "Mine"
    assert operation["description"].startswith("Make a thing.")
    assert set(operation["responses"]["400"]["content"]) == {"application/json", "application/problem+json"}
    answer = document["paths"]["/refunds"]["post"]["responses"]["202"]
    assert answer["content"]["application/json"]["schema"]["$ref"].endswith("Made")


def test_rest_framework_says_it_all_by_one_setting() -> None:
    nebis = Nebis("memory://")

    class Things(APIView):  # type: ignore[misc]  # It ships no types.
        schema = IdempotencySchema()

        @drf.idempotent(nebis, "make", effects=Opaque, tenant=anybody)
        def post(self, request: Any) -> Any:
            """Make a thing."""
            return Response({}, status=201)

        def put(self, request: Any) -> Any:
            return Response({})

    @api_view(["POST"])  # type: ignore[untyped-decorator]  # It ships no types.
    @drf.idempotent(nebis, "pay", effects=Opaque, tenant=anybody)
    def pay(request: Any) -> Any:
        return Response({})

    pay.cls.schema = IdempotencySchema()
    with project([path("things", Things.as_view()), path("pay", pay)]):
        document = SchemaGenerator(title="Shop").get_schema()
    nebis.close()

    validate({**document, "info": {"title": "Shop", "version": "1"}})
    operation = document["paths"]["/things"]["post"]
    require_terms(operation)
    assert operation["description"].startswith("Make a thing.")
    assert "Idempotency" not in str(document["paths"]["/things"]["put"])
    assert SENTENCE in document["paths"]["/pay"]["post"]["description"]


def rules(**named: Any) -> FingerprintVersions:
    return FingerprintVersions(FingerprintRule(**named))


def of(**options: Any) -> Any:
    given: dict[str, Any] = {"effects": Opaque, "tenant": anybody, **options}
    effects, tenant = given.pop("effects"), given.pop("tenant")
    return protection(Nebis("memory://"), "make", effects=effects, tenant=tenant, options=cast("Any", given))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"key": OptionalKey()}, "to be able to retry"),
        ({"key": BodyKey("client_token")}, "The member `client_token` of the body"),
        ({"key": BusinessKey(str)}, "made from the request itself if `Idempotency-Key` is not sent"),
        ({"key": BusinessKey(str, always=True)}, "`Idempotency-Key` is not read"),
        ({"issued_keys": True}, "Only keys that this service issued"),
        ({"retention": timedelta(minutes=90)}, "kept for 90 minutes"),
        ({"when_expired": ExpiredPolicy.REFUSE}, "After the window the key is refused with 410"),
        ({"in_flight": Accept()}, "answered with 202"),
        ({"in_flight": Wait()}, IN_FLIGHT),
        ({"vary_on": ["Accept"]}, "header `Accept`"),
        ({"wire": Wire(key_reused_status=409)}, "refused with 409"),
        ({"fingerprint": rules(include=("amount",), query=())}, "path, members `amount` of the body."),
        ({"fingerprint": rules(exclude=("at",), query=("to",))}, "`to` of the query, body without `at`"),
    ],
)
def test_every_choice_of_a_route_has_its_words(options: dict[str, Any], words: str) -> None:
    assert words in " ".join(terms(of(**options)).sentences)


@pytest.mark.parametrize(
    ("options", "status", "code"),
    [
        ({"when_expired": ExpiredPolicy.REFUSE}, 410, "key-expired"),
        ({"reconstruct": Reconstruct(refer=str, rebuild=str, schema="1")}, 410, "resource-gone"),
        ({"issued_keys": True}, 410, "token-expired"),
        ({"quota": Quota(in_flight=1)}, 429, "too-fast"),
        ({"wire": Wire(deadline_header="Request-Deadline")}, 504, "deadline-passed"),
        ({"wire": Wire(key_reused_status=409)}, 409, "key-reused"),
    ],
)
def test_an_answer_is_documented_where_it_can_be_given_and_nowhere_else(
    options: dict[str, Any], status: int, code: str
) -> None:
    given = {answer.status: answer.codes for answer in terms(of(**options)).answers}
    usual = {answer.status: answer.codes for answer in terms(of()).answers}

    assert code in given[status]
    assert code not in usual.get(status, ())


def test_guests_are_never_told_to_sign_in_and_twins_of_an_accepted_request_where_to_look() -> None:
    operation: dict[str, Any] = {"responses": {"409": {"description": "Mine."}}}
    merge(operation, of(tenant=public(), in_flight=Accept(), key=BodyKey("client_token")))

    assert "401" not in operation["responses"]
    assert "Location" in operation["responses"]["202"]["headers"]
    assert operation["responses"]["409"]["description"] == "Mine."
    assert "application/problem+json" in operation["responses"]["409"]["content"]
    assert "parameters" not in operation


def test_an_operation_whose_result_fastapi_cannot_describe_is_still_a_route() -> None:
    nebis = AsyncNebis("memory://")
    app = FastAPI()
    app.router.route_class = fastapi.NebisRoute

    @nebis.operation("refund", effects=Opaque)
    async def refund(command: Thing) -> Made:
        return Made(id="1")

    refund.handler.__annotations__["return"] = asyncio.Event

    @app.post("/refunds")
    @fastapi.bind(refund, tenant=anybody, rejected_status=402)
    async def take_back(thing: Thing) -> Thing:
        return thing

    answers = app.openapi()["paths"]["/refunds"]["post"]["responses"]
    assert answers["200"]["content"] == {"application/json": {"schema": {}}}
    assert "rejected" in answers["402"]["description"]
