"""A Django project in this process, with one database after the other, and a shop that takes orders through its ORM."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import django
from django.conf import settings
from django.db import IntegrityError, connections, models, transaction

from nebis import Attempt, Local, Nebis, Rejected, seconds

MODES = ("guarded", "single")
SHORT_LEASE: dict[str, Any] = {"lease": seconds(0.6), "renewal": seconds(0.2), "effect_timeout": seconds(0.5)}

surprises: list[Callable[[], None]] = []
"""What happens, once, while the next order is in its transaction."""

if not settings.configured:
    settings.configure(
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
        INSTALLED_APPS=["nebis.integrations.django"],
        ROOT_URLCONF="tests.transactions.django_views",
        ALLOWED_HOSTS=["testserver"],
        SECRET_KEY="only for tests",
        USE_TZ=True,
    )
    django.setup()


class Payment(models.Model):  # type: ignore[misc]  # Django ships no types.
    """A row of the application's own."""

    id = models.CharField(primary_key=True, max_length=200)

    class Meta:
        app_label = "shop"
        db_table = "payments"


@contextmanager
def database(alias: str, store_url: str, **options: Any) -> Iterator[str]:
    """Let Django know the store's own database under an alias, and forget it afterwards."""
    complete = connections.configure_settings({"default": settings_of(store_url) | options})
    connections.settings[alias] = complete["default"]
    try:
        yield alias
    finally:
        if hasattr(connections._connections, alias):
            connections[alias].close()
            del connections[alias]
        del connections.settings[alias]


def settings_of(store_url: str) -> dict[str, Any]:
    """Return Django's settings for the database of a store."""
    parts = urlsplit(store_url)
    if parts.scheme == "sqlite":
        return {"ENGINE": "django.db.backends.sqlite3", "NAME": parts.path.removeprefix("/")}
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parts.path.removeprefix("/"),
        "USER": parts.username,
        "HOST": parts.hostname,
        "PORT": str(parts.port),
    }


@dataclass(frozen=True)
class Order:
    """A payment to make, and how its handler goes about it."""

    id: str
    way: str = "straight"


class Shop:
    """A shop whose rows and store are in one database."""

    def __init__(self, store_url: str, alias: str, **options: Any) -> None:
        self.alias = alias
        self.nebis = Nebis(store_url, housekeeping=False, **options)
        self._operations = {"guarded": self._guarded(), "single": self._single()}
        self.nebis.open()

    def create_table(self) -> None:
        with connections[self.alias].schema_editor() as editor:
            editor.create_model(Payment)

    def order(self, key: str, order: Order, mode: str) -> str:
        connection = connections[self.alias] if mode == "single" else None
        result: str = self._operations[mode](key=key, tenant="shop", command=order, connection=connection)
        return result

    def payments(self, prefix: str) -> list[str]:
        rows = Payment.objects.using(self.alias).filter(id__startswith=prefix).order_by("id")
        return list(rows.values_list("id", flat=True))

    def staged(self, order: str) -> list[str]:
        """Return what is to be published of one order."""
        with connections[self.alias].cursor() as cursor:
            cursor.execute("SELECT ordering_key FROM nebis_outbox WHERE ordering_key = %s", [order])
            return [key for (key,) in cursor.fetchall()]

    def _guarded(self) -> Any:
        @self.nebis.operation("guarded", effects=Local, **SHORT_LEASE)
        def guarded(attempt: Attempt, order: Order) -> str:
            with attempt.transaction(connections[self.alias]) as tx:
                tx.stage("order.fulfilled", order.id, ordering_key=order.id)
                tx.stage("mail", b"\x00thank you")
                tx.finish(self.fulfil(order))
            return order.id

        return guarded

    def _single(self) -> Any:
        @self.nebis.operation("single", effects=Local, single_transaction=True)
        def single(order: Order) -> str:
            return self.fulfil(order)

        return single

    def fulfil(self, order: Order) -> str:
        """Write the row of an order, in the way that it says."""
        connection = connections[self.alias]
        objects = Payment.objects.using(self.alias)
        objects.create(id=order.id)
        while surprises:
            surprises.pop()()
        match order.way:
            case "straight":
                pass
            case "says COMMIT inside":
                with connection.cursor() as cursor:
                    cursor.execute("COMMIT")
            case "asks for a rollback":
                transaction.set_rollback(True, using=self.alias)
            case "closes inside":
                connection.close()
            case "undoes a part":
                try:
                    with transaction.atomic(using=self.alias):
                        objects.create(id=f"{order.id} part")
                        objects.create(id=order.id)
                except IntegrityError:
                    objects.create(id=f"{order.id} instead")
            case "hooks":
                transaction.on_commit(lambda: self._hooked(order), using=self.alias)
            case "rejects":
                raise Rejected("sold out")
            case "breaks":
                raise ValueError(order.id)
            case _:
                raise AssertionError(order.way)
        return order.id

    def _hooked(self, order: Order) -> None:
        """Fail as late as possible: what Django raises here looks like a refusal of the commit, and comes after it."""
        Payment.objects.using(self.alias).create(id=order.id)
