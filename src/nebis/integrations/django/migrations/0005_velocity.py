"""Meters that fresh keys are counted on."""

from __future__ import annotations

from typing import ClassVar

from django.db import migrations
from django.db.migrations.operations.base import Operation

from nebis.integrations.django.schema import SharedMigration


class Migration(migrations.Migration):  # type: ignore[misc]  # Django ships no types.
    """`0005_velocity.sql`, applied by Django."""

    dependencies: ClassVar[list[tuple[str, str]]] = [("nebis", "0004_messages")]
    operations: ClassVar[list[Operation]] = [SharedMigration("0005_velocity")]
