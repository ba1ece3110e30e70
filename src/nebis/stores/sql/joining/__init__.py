"""Joining transactions that a library keeps: SQLAlchemy's connections and sessions, Django's connections.

Our statements go over the driver's own connection, inside the transaction that the library began; the library itself
begins, commits and rolls back, so that its state, its events and its hooks stay right. What we send never passes
through the library's log of statements, which would print what our users store.
"""

from __future__ import annotations

from nebis.stores.sql.joining.keeper import Library


def adapter_for(target: object) -> Library | None:
    """Recognise a connection or session of a library, without importing any; None for everything else."""
    modules = [kind.__module__ for kind in type(target).__mro__]
    packages = {module.partition(".")[0] for module in modules}
    # What is imported here was imported already, by whoever made the target.
    if any(module.startswith("sqlalchemy.ext.asyncio") for module in modules):
        from nebis.stores.sql.joining.sqlalchemy_async import AsyncSqlalchemyLibrary  # noqa: PLC0415

        return AsyncSqlalchemyLibrary(target)
    if "sqlalchemy" in packages:
        from nebis.stores.sql.joining.sqlalchemy import SqlalchemyLibrary  # noqa: PLC0415

        return SqlalchemyLibrary(target)
    if "django" in packages:
        from nebis.stores.sql.joining.django import DjangoLibrary  # noqa: PLC0415

        return DjangoLibrary(target)
    return None
