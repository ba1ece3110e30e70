"""Code that knows the first migration only: what is still running while a newer version is rolled out."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from nebis import Nebis
from nebis.stores.sql.dialect import Dialect, postgres_dialect, sqlite_dialect
from nebis.stores.sql.postgres import backend as postgres
from nebis.stores.sql.sqlite import backend as sqlite


def older(dialect: Dialect) -> Dialect:
    """Return the dialect as it was when there was one migration."""
    return replace(dialect, migrations=dialect.migrations[:1])


@contextmanager
def older_code() -> Iterator[None]:
    """Let every store that is opened meanwhile be one of the older code."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(postgres, "postgres_dialect", lambda schema=None: older(postgres_dialect(schema)))
        patch.setattr(sqlite, "sqlite_dialect", lambda: older(sqlite_dialect()))
        yield


def opened_by_older_code(url: str) -> Nebis:
    """Return a running application of the older version."""
    with older_code():
        application = Nebis(url)
        application.open()
    return application
