"""The one door to every store."""

import subprocess
import sys
from pathlib import Path

import pytest

from nebis.errors import ConfigError
from nebis.stores import open_async, open_blocking


@pytest.mark.parametrize("open_store", [open_blocking, open_async])
def test_the_scheme_picks_the_store(open_store: object, postgres_url: str, tmp_path: Path) -> None:
    assert callable(open_store)
    locations = {
        "memory": "memory://",
        "sqlite": f"sqlite:///{tmp_path / 'shop.db'}",
        "postgres": postgres_url,
    }

    names = {name: open_store(location).store.capabilities.name for name, location in locations.items()}

    assert names == {name: name for name in locations}


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+asyncpg"])
def test_postgres_has_three_schemes(scheme: str, postgres_url: str) -> None:
    url = f"{scheme}://{postgres_url.partition('://')[2]}"

    assert open_async(url).store.capabilities.name == "postgres"


@pytest.mark.parametrize(
    ("location", "message"),
    [
        ("mysql://root:hunter2@localhost/shop", "no store knows URLs that begin with mysql://; use one of memory://"),
        ("shop.db", "must be a URL that begins with one of memory://, sqlite://, postgresql://"),
        ("", "must be a URL"),
        (object(), "object is no pool of psycopg or asyncpg"),
    ],
)
def test_an_unknown_location_is_one_clear_line(location: object, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        open_blocking(location)

    [fault] = caught.value.faults
    assert message in fault
    assert "hunter2" not in fault


def test_asyncpg_does_not_serve_blocking_code() -> None:
    with pytest.raises(ConfigError, match=r"install 'nebis\[postgres\]'"):
        open_blocking("postgresql+asyncpg://localhost/shop")


@pytest.mark.parametrize("location", ["memory://", "sqlite:///shop.db", "postgresql://localhost/shop"])
def test_an_unknown_option_is_named_before_anything_is_opened(location: str) -> None:
    with pytest.raises(ConfigError, match="'colour' is not an option"):
        open_blocking(location, colour="red")


def test_all_faults_of_options_are_reported_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        open_blocking("postgresql://localhost/shop", colour="red", max_connections=0, durability="perhaps")

    assert len(caught.value.faults) == 3


@pytest.mark.parametrize(
    ("url", "missing", "extra"),
    [
        ("postgresql://localhost/shop", "psycopg", "postgres"),
        ("postgresql+asyncpg://localhost/shop", "asyncpg", "asyncpg"),
    ],
)
def test_a_missing_driver_is_named_with_its_extra(url: str, missing: str, extra: str) -> None:
    script = (
        "import sys\n"
        f"sys.modules[{missing!r}] = None\n"
        "from nebis.errors import ConfigError\n"
        "from nebis.stores import open_async\n"
        "try:\n"
        f"    open_async({url!r})\n"
        "except ConfigError as error:\n"
        "    print(*error.faults, sep='\\n')\n"
    )

    outcome = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    [line] = outcome.stdout.splitlines()
    assert line == f"the driver of this location is missing ({missing}); run: pip install 'nebis[{extra}]'"
