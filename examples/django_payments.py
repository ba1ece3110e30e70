"""Payments with Django. Run it: gunicorn examples.django_payments:app, or uvicorn examples.django_payments:asgi."""

import json
from uuid import uuid4

import django
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.core.wsgi import get_wsgi_application
from django.db import connection
from django.http import HttpRequest, HttpResponse, HttpResponseBadRequest, JsonResponse
from django.urls import path
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from nebis import AsyncNebis, Attempt, Local, Nebis, Opaque
from nebis.integrations.django.lifespan import WithLifespan
from nebis.integrations.django.views import bind, idempotent, operation_status

settings.configure(
    ALLOWED_HOSTS=["*"],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "shop.db"}},
    ROOT_URLCONF=__name__,
    SECRET_KEY="only an example",  # noqa: S106
)
django.setup()

nebis = Nebis("sqlite:///shop.db")
async_nebis = AsyncNebis("sqlite:///shop.db")

ACCOUNTS = {"Bearer secret-1": "acct_1", "Bearer secret-2": "acct_2"}


def current_account(request: HttpRequest) -> str | None:
    return ACCOUNTS.get(request.headers.get("Authorization", ""))


@csrf_exempt
@require_POST
@idempotent(nebis, "create_payment", effects=Opaque, tenant=current_account)
def create_payment(request: HttpRequest) -> HttpResponse:
    amount = json.loads(request.body).get("amount")
    if not isinstance(amount, int):
        return HttpResponseBadRequest("amount is a whole number")
    if amount > 1000:
        return JsonResponse({"error": "declined"}, status=402)
    return JsonResponse({"id": str(uuid4()), "amount": amount}, status=201)


@csrf_exempt
@idempotent(nebis, "place_order", effects=Local, tenant=current_account)
def place_order(request: HttpRequest, attempt: Attempt) -> HttpResponse:
    order = {"id": str(attempt.new_id("order")), "amount": json.loads(request.body)["amount"]}
    response = JsonResponse(order, status=201)
    with attempt.transaction(connection) as tx, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE IF NOT EXISTS shop_order (id TEXT PRIMARY KEY, amount INTEGER)")
        cursor.execute("INSERT INTO shop_order VALUES (%s, %s)", [order["id"], order["amount"]])
        tx.finish(response)
    return response


@csrf_exempt
@idempotent(async_nebis, "create_transfer", effects=Opaque, tenant=current_account)
async def create_transfer(request: HttpRequest) -> HttpResponse:
    return JsonResponse({"id": str(uuid4()), "amount": json.loads(request.body)["amount"]}, status=201)


@nebis.operation("refund", effects=Opaque)
def refund(amount: int) -> dict[str, str]:
    return {"id": str(uuid4()), "refunded": str(amount)}


@csrf_exempt
@bind(refund, tenant=current_account, status=201)
def create_refund(request: HttpRequest) -> int:
    return int(json.loads(request.body)["amount"])


urlpatterns = [
    path("payments", create_payment),
    path("orders", place_order),
    path("transfers", create_transfer),
    path("refunds", create_refund),
    path("operations/<str:id>", operation_status(nebis, tenant=current_account)),
]

app = get_wsgi_application()
asgi = WithLifespan(get_asgi_application(), async_nebis)
