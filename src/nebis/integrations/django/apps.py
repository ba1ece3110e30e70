"""The app, for INSTALLED_APPS: `"nebis.integrations.django"`."""

from __future__ import annotations

from django.apps import AppConfig


class NebisConfig(AppConfig):  # type: ignore[misc]  # Django ships no types.
    """The store's schema as an app without models."""

    name = "nebis.integrations.django"
    label = "nebis"
    verbose_name = "Nebis"
