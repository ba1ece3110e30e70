"""What happened, for people."""

from __future__ import annotations

from typing import ClassVar

from django.db import migrations
from django.db.migrations.operations.base import Operation

from nebis.integrations.django.schema import SharedMigration


class Migration(migrations.Migration):  # type: ignore[misc]  # Django ships no types.
    """`0002_counters_and_attempts.sql`, applied by Django."""

    dependencies: ClassVar[list[tuple[str, str]]] = [("nebis", "0001_record")]
    operations: ClassVar[list[Operation]] = [SharedMigration("0002_counters_and_attempts")]
