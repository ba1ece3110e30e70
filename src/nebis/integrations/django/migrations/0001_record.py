"""The memory itself."""

from __future__ import annotations

from typing import ClassVar

from django.db import migrations
from django.db.migrations.operations.base import Operation

from nebis.integrations.django.schema import SharedMigration


class Migration(migrations.Migration):  # type: ignore[misc]  # Django ships no types.
    """`0001_record.sql`, applied by Django."""

    initial = True
    dependencies: ClassVar[list[tuple[str, str]]] = []
    operations: ClassVar[list[Operation]] = [SharedMigration("0001_record")]
