"""How long issued keys are good for, in every framework (K3)."""

from datetime import timedelta
from importlib import import_module

import pytest

from nebis import ConfigError, Nebis, seconds

FRAMEWORKS = ("starlette", "fastapi", "litestar", "flask", "django.views", "drf", "wsgi")


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("lifetime", [seconds(0), seconds(-60), seconds(0.5)], ids=str)
def test_an_endpoint_whose_keys_nobody_could_use_is_refused_at_the_start(framework: str, lifetime: timedelta) -> None:
    integration = import_module(f"nebis.integrations.{framework}")
    with Nebis("memory://") as nebis, pytest.raises(ConfigError, match="give a second or more"):
        integration.idempotency_tokens(nebis, tenant=lambda _request: "acct_1", lifetime=lifetime)
