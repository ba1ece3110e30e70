"""What is particular to Django REST framework: permissions, serializers, view sets, negotiation, exception handlers."""

import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar, TypeVar
from uuid import uuid4

import pytest
from django.db import connections
from django.urls import include, path
from rest_framework import serializers
from rest_framework.authentication import BaseAuthentication
from rest_framework.decorators import action, api_view, authentication_classes, permission_classes
from rest_framework.exceptions import APIException, NotFound, Throttled
from rest_framework.parsers import FormParser, JSONParser, MultiPartParser
from rest_framework.permissions import BasePermission
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.routers import SimpleRouter
from rest_framework.views import APIView
from rest_framework.viewsets import ViewSet

from nebis import AsyncNebis, Attempt, ConfigError, Local, Nebis, Opaque
from nebis.integrations.drf import bind, idempotent
from nebis.testing.http_conformance import Client
from nebis.testing.http_conformance.client import new_key
from tests.integrations.django_project import wsgi_serving
from tests.transactions.django_shop import Payment, database

F = TypeVar("F", bound=Callable[..., Any])

runs: Counter[str] = Counter()
revoked: set[str] = set()
downgraded: set[str] = set()
existing: set[str] = set()


class Bearer(BaseAuthentication):  # type: ignore[misc]  # It ships no types.
    def authenticate(self, request: Request) -> tuple[str, None] | None:
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        return (token, None) if token and token not in revoked else None

    def authenticate_header(self, request: Request) -> str:
        return "Bearer"


class MayPay(BasePermission):  # type: ignore[misc]
    def has_permission(self, request: Request, view: APIView) -> bool:
        return request.user is not None and request.user not in downgraded


class ReadsData(BasePermission):  # type: ignore[misc]
    """Looks at the body, which then nobody can read again."""

    def has_permission(self, request: Request, view: APIView) -> bool:
        return "tag" in request.data


class Guarded:
    authentication_classes = (Bearer,)
    permission_classes: ClassVar[tuple[Any, ...]] = (MayPay,)
    renderer_classes = (JSONRenderer,)
    parser_classes = (JSONParser, FormParser, MultiPartParser)


class Thing(serializers.Serializer):  # type: ignore[misc]
    tag = serializers.CharField()
    amount = serializers.IntegerField(default=1)

    def validate_tag(self, tag: str) -> str:
        if tag in existing:
            raise serializers.ValidationError("already exists")
        return tag


def tenant(request: Request) -> str:
    return str(request.user)


def create(request: Request) -> Response:
    thing = Thing(data=request.data)
    thing.is_valid(raise_exception=True)
    tag = thing.validated_data["tag"]
    runs[tag] += 1
    existing.add(tag)
    return Response({"id": str(uuid4())}, status=201, headers={"Location": f"/things/{tag}"})


class Serving:
    """Serves handlers of one test, each at its name."""

    def __init__(self, **settings: Any) -> None:
        self.nebis = Nebis("memory://")
        self._settings = settings

    def protect(self, name: str = "pay", **options: Any) -> Callable[[F], F]:
        return idempotent(self.nebis, name, effects=options.pop("effects", Local), tenant=tenant, **options)

    def at(self, *urls: Any) -> Any:
        framework = {"UNAUTHENTICATED_USER": None, **self._settings}
        return wsgi_serving(list(urls), self.nebis, REST_FRAMEWORK=framework)


def test_every_kind_of_handler_is_protected_and_a_state_check_does_not_refuse_a_replay() -> None:
    """R1: a validator that finds the thing made by the first try runs inside the claim."""
    api = Serving()

    class Things(Guarded, APIView):  # type: ignore[misc]
        @api.protect("view")
        def post(self, request: Request) -> Response:
            return create(request)

    class Set(Guarded, ViewSet):  # type: ignore[misc]
        @api.protect("set")
        def create(self, request: Request) -> Response:
            return create(request)

        @action(detail=True, methods=["post"])  # type: ignore[untyped-decorator]
        @api.protect("action")
        def pay(self, request: Request, pk: str) -> Response:
            return create(request)

    @api_view(["POST"])  # type: ignore[untyped-decorator]
    @authentication_classes([Bearer])  # type: ignore[untyped-decorator]
    @permission_classes([MayPay])  # type: ignore[untyped-decorator]
    @api.protect("function")
    def function(request: Request) -> Response:
        return create(request)

    router = SimpleRouter()
    router.register("set", Set, basename="set")
    with api.at(path("view", Things.as_view()), path("function", function), path("", include(router.urls))) as address:
        client = Client(address)
        for place in ("/view", "/set/", "/set/7/pay/", "/function"):
            key = new_key()
            first, again = [client.post(place, {"tag": key}, key=key) for _ in range(2)]
            fresh = client.post(place, {"tag": key}, key=new_key())

            assert (first.status, again.status, again.is_replay) == (201, 201, True), place
            assert (first.body, first.header("location")) == (again.body, again.header("location"))
            assert first.header("vary") == again.header("vary")
            assert fresh.status == 400
            assert runs[key] == 1
        key = new_key()
        assert client.post("/set/1/pay/", {"tag": key}, key=key).status == 201
        assert client.post("/set/2/pay/", {"tag": key}, key=key).status == 422


def test_revoked_and_downgraded_callers_never_see_a_stored_body() -> None:
    """SEC03: authentication and permissions run on every request, before anything is looked up."""
    api = Serving()

    class Things(Guarded, APIView):  # type: ignore[misc]
        @api.protect()
        def post(self, request: Request) -> Response:
            runs["asked"] += 1
            return Response({"id": str(uuid4())})

    with api.at(path("things", Things.as_view())) as address:
        key = new_key()
        callers = [Client(address, f"{name}-{key}") for name in ("one", "two", "three")]
        first = [caller.post("/things", {}, key=key) for caller in callers]
        revoked.add(f"one-{key}")
        downgraded.add(f"two-{key}")
        again = [caller.post("/things", {}, key=key) for caller in callers]

    assert len({reply.body for reply in first}) == 3
    assert [reply.status for reply in again] == [401, 403, 200]
    assert [first[number].json()["id"].encode() in again[number].body for number in range(3)] == [False, False, True]


def test_exceptions_of_the_framework_are_in_the_one_table() -> None:
    api = Serving()
    raised: dict[str, Any] = {
        "404": NotFound,
        "429": Throttled(wait=7),
        "503": APIException,
        "crash": ValueError,
    }

    class Things(Guarded, APIView):  # type: ignore[misc]
        @api.protect(effects=Opaque)
        def post(self, request: Request, kind: str) -> Response:
            if kind == "invalid":
                return create(request)
            raise raised[kind]

    with api.at(path("<str:kind>", Things.as_view())) as address:
        client = Client(address)
        key = new_key()
        invalid = client.post("/invalid", {"tag": key, "amount": "many"}, key=key)
        corrected = client.post("/invalid", {"tag": key, "amount": 5}, key=key)
        missing, limited, unwell, crash = [
            [client.post(f"/{kind}", {}, key=one) for _ in range(2)]
            for kind, one in [(kind, new_key()) for kind in ("404", "429", "503", "crash")]
        ]

    assert (invalid.status, corrected.status, corrected.is_replay) == (400, 201, False)
    assert [(reply.status, reply.is_replay) for reply in missing] == [(404, False), (404, True)]
    assert missing[0].body == missing[1].body
    assert [(reply.status, reply.is_replay) for reply in limited] == [(429, False), (429, False)]
    assert limited[0].header("retry-after") == "7"
    assert [reply.code for reply in (*unwell, *crash)] == ["outcome-unknown"] * 4


def answer_everything(error: Exception, context: Any) -> Response:
    """An exception handler of a project that explains whatever happens."""
    return Response({"sorry": type(error).__name__}, status=409 if isinstance(error, KeyError) else 500)


def test_an_exception_handler_of_the_project_is_believed() -> None:
    api = Serving(EXCEPTION_HANDLER=f"{__name__}.answer_everything")

    class Things(Guarded, APIView):  # type: ignore[misc]
        @api.protect()
        def post(self, request: Request) -> Response:
            runs[request.data["tag"]] += 1
            raise KeyError if request.data.get("conflict") else RuntimeError

    with api.at(path("things", Things.as_view())) as address:
        client, bound, free = Client(address), new_key(), new_key()
        conflicts = [client.post("/things", {"tag": bound, "conflict": True}, key=bound) for _ in range(2)]
        crashes = [client.post("/things", {"tag": free}, key=free) for _ in range(2)]

    assert [(reply.status, reply.is_replay) for reply in conflicts] == [(409, False), (409, True)]
    assert [(reply.status, reply.json()) for reply in crashes] == [(500, {"sorry": "RuntimeError"})] * 2
    assert (runs[bound], runs[free]) == (1, 2)


def test_a_body_that_a_permission_has_read_counts_as_it_was_parsed() -> None:
    api = Serving()

    class Things(Guarded, APIView):  # type: ignore[misc]
        permission_classes = (ReadsData,)

        @api.protect()
        def post(self, request: Request) -> Response:
            runs[request.data["tag"]] += 1
            return Response({"id": str(uuid4())})

    with api.at(path("things", Things.as_view())) as address:
        client, key = Client(address), new_key()
        first, again = [client.post("/things", {"tag": key}, key=key) for _ in range(2)]
        other = client.post("/things", {"tag": key, "amount": 2}, key=key)

    assert (first.status, again.body, again.is_replay) == (200, first.body, True)
    assert (other.status, other.code) == (422, "key-reused")


def test_a_form_counts_by_what_is_in_it() -> None:
    """F102."""
    api = Serving()

    class Files(Guarded, APIView):  # type: ignore[misc]
        @api.protect()
        def post(self, request: Request) -> Response:
            return Response({"id": str(uuid4()), "size": len(request.data["file"].read())})

    def sent(boundary: str, content: bytes) -> dict[str, Any]:
        head = f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'
        body = head.encode() + content + f"\r\n--{boundary}--\r\n".encode()
        return {"body": body, "content_type": f"multipart/form-data; boundary={boundary}"}

    with api.at(path("files", Files.as_view())) as address:
        client, key = Client(address), new_key()
        first, again, other = [
            client.post("/files", key=key, **one)
            for one in (sent("a", b"hello"), sent("b", b"hello"), sent("a", b"bye"))
        ]

    assert first.json()["size"] == 5
    assert (again.body, again.is_replay) == (first.body, True)
    assert (other.status, other.code) == (422, "key-reused")


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[str]:
    """The URL of a database that Django knows as `shop`."""
    url = f"sqlite:///{tmp_path / 'shop.db'}"
    with database("shop", url, OPTIONS={"timeout": 20}):
        with connections["shop"].schema_editor() as editor:
            editor.create_model(Payment)
        connections["shop"].close()
        yield url


def test_rows_and_the_rendered_answer_are_one_commit(shop: str) -> None:
    """T1."""
    api = Serving()
    api.nebis = Nebis(shop)

    class Things(Guarded, APIView):  # type: ignore[misc]
        @api.protect()
        def post(self, request: Request, attempt: Attempt) -> Response:
            with attempt.transaction(connections["shop"]) as tx:
                Payment.objects.using("shop").create(id=request.data["tag"])
                tx.finish(Response({"paid": request.data["tag"]}, status=201))
            raise RuntimeError("after the commit")

    with api.at(path("things", Things.as_view())) as address:
        client, key = Client(address), new_key()
        first, again = [client.post("/things", {"tag": key}, key=key) for _ in range(2)]
        rows = list(Payment.objects.using("shop").values_list("id", flat=True))
        connections["shop"].close()

    assert (first.status, first.json(), again.is_replay) == (201, {"paid": key}, True)
    assert again.body == first.body
    assert rows == [key]


def test_inside_the_transaction_of_atomic_requests_nothing_is_claimed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """D1."""
    api = Serving()

    class Things(Guarded, APIView):  # type: ignore[misc]
        @api.protect()
        def post(self, request: Request) -> Response:
            runs["inside"] += 1
            return Response({})

    with (
        database("shop", f"sqlite:///{tmp_path / 'shop.db'}", ATOMIC_REQUESTS=True),
        api.at(path("things", Things.as_view())) as address,
    ):
        reply = Client(address).post("/things", {}, key=new_key())

    assert (reply.status, runs["inside"]) == (500, 0)
    assert "non_atomic_requests" in caplog.text


def test_an_operation_is_bound_to_a_handler() -> None:
    api = Serving()

    @api.nebis.operation("pay", effects=Opaque)
    def pay(command: dict[str, Any]) -> dict[str, Any]:
        runs[command["tag"]] += 1
        return {"id": str(uuid4())}

    class Things(Guarded, APIView):  # type: ignore[misc]
        @bind(pay, tenant=tenant, status=201)
        def post(self, request: Request) -> Any:
            thing = Thing(data=request.data)
            thing.is_valid(raise_exception=True)
            return dict(thing.validated_data)

    with api.at(path("things", Things.as_view())) as address:
        client, key = Client(address), new_key()
        invalid = client.post("/things", {}, key=key)
        first, again = [client.post("/things", {"tag": key}, key=key) for _ in range(2)]

    assert (invalid.status, first.status, again.is_replay) == (400, 201, True)
    assert (again.body, runs[key]) == (first.body, 1)


def test_what_could_not_be_safe_is_refused_at_start_up() -> None:
    protect = idempotent(Nebis("memory://"), "pay", effects=Local, tenant=tenant)

    with pytest.raises(ConfigError, match="protect its method"):
        protect(api_view(["POST"])(create))
    with pytest.raises(ConfigError, match="in place of AsyncNebis"):
        idempotent(AsyncNebis("memory://"), "pay", effects=Local, tenant=tenant)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="coroutine function"):

        @protect
        async def handler(request: Request) -> Response:
            raise AssertionError


ABSENT = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name == {missing!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
"""


@pytest.mark.parametrize(
    ("module", "missing", "extra"),
    [("drf", "rest_framework", "drf"), ("django.views", "django", "django"), ("drf", "django", "drf")],
)
def test_a_missing_extra_says_what_to_install(module: str, missing: str, extra: str) -> None:
    program = ABSENT.format(missing=missing) + f"import nebis.integrations.{module}"

    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert f"pip install 'nebis[{extra}]'" in ended.stderr
