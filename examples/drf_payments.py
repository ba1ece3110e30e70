"""Payments with Django REST framework. Run it: gunicorn examples.drf_payments:app."""
# ruff: noqa: E402 - REST framework reads the settings while it is imported, and the names in them must be there.

from uuid import uuid4

import django
from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.db import connection
from django.http import HttpRequest
from django.urls import path

settings.configure(
    ALLOWED_HOSTS=["*"],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "shop.db"}},
    REST_FRAMEWORK={
        "DEFAULT_AUTHENTICATION_CLASSES": [f"{__name__}.Bearer"],
        "DEFAULT_PERMISSION_CLASSES": [f"{__name__}.HasAccount"],
        "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
        "UNAUTHENTICATED_USER": None,
    },
    ROOT_URLCONF=__name__,
    SECRET_KEY="only an example",  # noqa: S106
)
django.setup()

from rest_framework import serializers, status
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import APIException
from rest_framework.permissions import BasePermission

ACCOUNTS = {"Bearer secret-1": "acct_1", "Bearer secret-2": "acct_2"}


class Bearer(BaseAuthentication):
    def authenticate(self, request: HttpRequest) -> tuple[str, None] | None:
        account = ACCOUNTS.get(request.headers.get("Authorization", ""))
        return None if account is None else (account, None)

    def authenticate_header(self, _request: HttpRequest) -> str:
        return "Bearer"


class HasAccount(BasePermission):
    def has_permission(self, request: HttpRequest, _view: object) -> bool:
        return request.user is not None


from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from nebis import Attempt, Local, Nebis, Opaque
from nebis.integrations.drf import idempotent, operation_status

nebis = Nebis("sqlite:///shop.db")


class Declined(APIException):
    status_code = status.HTTP_402_PAYMENT_REQUIRED


class Payment(serializers.Serializer):
    amount = serializers.IntegerField()


def current_account(request: Request) -> str:
    return request.user


class Payments(APIView):
    @idempotent(nebis, "create_payment", effects=Opaque, tenant=current_account)
    def post(self, request: Request) -> Response:
        payment = Payment(data=request.data)
        payment.is_valid(raise_exception=True)
        if payment.validated_data["amount"] > 1000:
            raise Declined
        return Response({"id": str(uuid4()), **payment.validated_data}, status=201)


class Orders(APIView):
    @idempotent(nebis, "place_order", effects=Local, tenant=current_account)
    def post(self, request: Request, attempt: Attempt) -> Response:
        order = {"id": str(attempt.new_id("order")), "amount": int(request.data["amount"])}
        response = Response(order, status=201)
        with attempt.transaction(connection) as tx, connection.cursor() as cursor:
            cursor.execute("CREATE TABLE IF NOT EXISTS shop_order (id TEXT PRIMARY KEY, amount INTEGER)")
            cursor.execute("INSERT INTO shop_order VALUES (%s, %s)", [order["id"], order["amount"]])
            tx.finish(response)
        return response


urlpatterns = [
    path("payments", Payments.as_view()),
    path("orders", Orders.as_view()),
    path("operations/<str:id>", operation_status(nebis, tenant=current_account)),
]

app = get_wsgi_application()
