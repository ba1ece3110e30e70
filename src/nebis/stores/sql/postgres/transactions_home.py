"""The store as transactions see it that run on any connection to it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from nebis.errors import MisuseError
from nebis.flow import Flow
from nebis.stores.sql.asks import Query, Statement
from nebis.stores.sql.dialect import postgres_dialect
from nebis.stores.sql.postgres.transactions_asks import Elsewhere
from nebis.stores.sql.statements import read_statements


@cache
def transaction_statements(schema: str | None) -> Mapping[str, Statement]:
    """Return the statements of `transactions.sql`, and those of the store that are made for transactions."""
    here = files("nebis.stores.sql.postgres")
    sources = (here.joinpath(name).read_text() for name in ("statements.sql", "transactions.sql"))
    store = postgres_dialect(schema).statements
    made = (store.claim_inside, store.complete_inside, store.complete_and_stage_inside)
    return read_statements("\n".join(sources), schema=schema) | {each.name: each for each in made if each is not None}


class Home:
    """Where the store's tables are, as any connection to them sees it; learnt when first needed."""

    def __init__(self, schema: str | None) -> None:
        self.statements = transaction_statements(schema)
        self._address: str | None = None

    def check(self, address: str) -> Flow[None]:
        """Raise `MisuseError` unless a connection that says this address leads to the store."""
        if address == self._address:
            return
        # Asked again where it differs: a server that was restarted says another one.
        [[self._address]] = yield from Elsewhere(Query(self.statements["address"]))
        if address != self._address:
            raise MisuseError(
                "The connection leads to another database, or its search_path to other tables, than the store's own; "
                "hand in a connection to the database in which the store is."
            )
