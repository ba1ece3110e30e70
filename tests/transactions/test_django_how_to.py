"""The code of the page about Django runs as it stands, in a project that has the models which it names."""

import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connections, models

from nebis import Nebis
from tests.transactions.django_shop import database

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "django-transactions.md"


class PagePayment(models.Model):  # type: ignore[misc]  # Django ships no types.
    """The model that the page imports."""

    id = models.CharField(primary_key=True, max_length=200)
    cents = models.IntegerField()

    class Meta:
        app_label = "page"


def test_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shop = ModuleType("shop.models")
    shop.Payment = PagePayment  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "shop", ModuleType("shop"))
    monkeypatch.setitem(sys.modules, "shop.models", shop)
    [block] = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), flags=re.DOTALL | re.MULTILINE)
    namespace: dict[str, Any] = {"__name__": "shop.payments"}
    with database("page", f"sqlite:///{tmp_path / 'shop.db'}"):
        monkeypatch.setattr("django.db.connection", connections["page"])
        monkeypatch.setattr("django.db.router.routers", [_EverythingOnThePage()])
        call_command("migrate", database="page", verbosity=0)
        with connections["page"].schema_editor() as editor:
            editor.create_model(PagePayment)

        exec(compile(block, PAGE.name, "exec"), namespace)
        nebis: Nebis = namespace["nebis"]
        paid = [namespace["pay"](key="order-4711-attempt", tenant="acct_1", command=1200) for _ in range(2)]
        rows = PagePayment.objects.count()
        nebis.close()

    assert paid[0] == paid[1]
    assert rows == 1


class _EverythingOnThePage:
    """A router that sends everything to the page's own database."""

    def db_for_read(self, *_: Any, **__: Any) -> str:
        return "page"

    db_for_write = db_for_read
