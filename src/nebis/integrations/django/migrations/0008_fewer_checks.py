"""Constraints of the record that PostgreSQL reads and compiles for less."""

from __future__ import annotations

from typing import ClassVar

from django.db import migrations
from django.db.migrations.operations.base import Operation

from nebis.integrations.django.schema import SharedMigration


class Migration(migrations.Migration):  # type: ignore[misc]  # Django ships no types.
    """`0008_fewer_checks.sql`, applied by Django."""

    dependencies: ClassVar[list[tuple[str, str]]] = [("nebis", "0007_plain_checks")]
    operations: ClassVar[list[Operation]] = [SharedMigration("0008_fewer_checks")]
