"""Less to write for each record: its usual scope as nothing, and on PostgreSQL room for its second version."""

from __future__ import annotations

from typing import ClassVar

from django.db import migrations
from django.db.migrations.operations.base import Operation

from nebis.integrations.django.schema import SharedMigration


class Migration(migrations.Migration):  # type: ignore[misc]  # Django ships no types.
    """`0009_less_log.sql`, applied by Django."""

    dependencies: ClassVar[list[tuple[str, str]]] = [("nebis", "0008_fewer_checks")]
    operations: ClassVar[list[Operation]] = [SharedMigration("0009_less_log")]
