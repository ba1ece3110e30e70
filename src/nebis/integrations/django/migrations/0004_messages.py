"""Messages: the outbox, and what consumers keep."""

from __future__ import annotations

from typing import ClassVar

from django.db import migrations
from django.db.migrations.operations.base import Operation

from nebis.integrations.django.schema import SharedMigration


class Migration(migrations.Migration):  # type: ignore[misc]  # Django ships no types.
    """`0004_messages.sql`, applied by Django."""

    dependencies: ClassVar[list[tuple[str, str]]] = [("nebis", "0003_people")]
    operations: ClassVar[list[Operation]] = [SharedMigration("0004_messages")]
