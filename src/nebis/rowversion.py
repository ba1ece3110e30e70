"""Compare-and-set on one row: a statement that changes it only if it still has the version that was read.

Between a read and a write anybody may change a row. The comparison is therefore part of the write: whoever comes second
changes nothing and is told so. No lock is held while a person decides.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from nebis.errors import MisuseError, PreconditionFailed

# A name goes into the statement itself, so that nothing but a plain one is taken (SEC20).
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Style(StrEnum):
    """How a driver writes the place of a parameter."""

    QUESTION = "?"
    PERCENT = "%s"
    DOLLAR = "$"
    COLON = ":"


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareAndSet:
    """One UPDATE, apart from any driver."""

    table: str
    where: Mapping[str, object]
    version: int
    values: Mapping[str, object]
    version_column: str = "version"

    def faults(self) -> list[str]:
        """Return what keeps this from being a statement."""
        names = (*self.table.split("."), self.version_column, *self.where, *self.values)
        found = [f"{name!r} is no plain name of a table or column" for name in names if not _NAME.fullmatch(name)]
        if not self.where or not self.values:
            found.append("where= names the row and values= what changes; neither is empty")
        if self.version_column in (*self.where, *self.values):
            found.append(f"{self.version_column} is compared and raised by itself; leave it out of where= and values=")
        return found

    def text(self, style: Style) -> str:
        """Write the statement."""
        places = (_place(style, number) for number in range(1, len(self.values) + len(self.where) + 2))
        changes = ", ".join(f"{name} = {next(places)}" for name in self.values)
        row = " AND ".join(f"{name} = {next(places)}" for name in self.where)
        raised = f"{self.version_column} = {self.version_column} + 1"
        return f"UPDATE {self.table} SET {changes}, {raised} WHERE {row} AND {self.version_column} = {next(places)}"  # noqa: S608 - plain names only, checked by `faults`.

    @property
    def parameters(self) -> tuple[object, ...]:
        """Return the values in the order of their places."""
        return (*self.values.values(), *self.where.values(), self.version)

    def judged(self, rows: int) -> int:
        """Return the new version, or raise `PreconditionFailed` if the row was changed or is gone."""
        if rows == 0:
            raise PreconditionFailed
        if rows != 1:
            raise MisuseError(f"where= named {rows} rows of {self.table}, not one; roll back and name the whole key.")
        return self.version + 1


def compare_and_set(
    connection: Any,
    table: str,
    *,
    where: Mapping[str, object],
    version: int,
    values: Mapping[str, object],
    version_column: str = "version",
) -> int:
    """Change one row if it still has this version, raise its version by one, and return the new one.

    Raises `PreconditionFailed` if somebody changed it since. `connection` is one of sqlite3, psycopg, psycopg2 or
    Django, or a connection or session of SQLAlchemy, and commits or rolls back as it did before.
    """
    change = _checked(table, where, version, values, version_column)
    packages = _packages(connection)
    if "sqlalchemy" in packages:
        return change.judged(connection.execute(*_for_sqlalchemy(change)).rowcount)
    if "sqlite3" in packages:
        return change.judged(connection.execute(change.text(Style.QUESTION), change.parameters).rowcount)
    if packages & {"psycopg", "psycopg2", "django"}:
        with connection.cursor() as cursor:
            cursor.execute(change.text(Style.PERCENT), change.parameters)
            return change.judged(cursor.rowcount)
    raise _unknown(connection, "compare_and_set")


async def compare_and_set_async(
    connection: Any,
    table: str,
    *,
    where: Mapping[str, object],
    version: int,
    values: Mapping[str, object],
    version_column: str = "version",
) -> int:
    """Do as `compare_and_set` does, with asyncpg, psycopg, SQLAlchemy, or the connection of a transaction of ours."""
    change = _checked(table, where, version, values, version_column)
    packages = _packages(connection)
    if "nebis" in packages:
        run: Callable[..., Any] = connection.run
        rows = await run(lambda raw: raw.execute(change.text(Style.QUESTION), change.parameters).rowcount)
    elif "sqlalchemy" in packages:
        rows = (await connection.execute(*_for_sqlalchemy(change))).rowcount
    elif "asyncpg" in packages:
        tag: str = await connection.execute(change.text(Style.DOLLAR), *change.parameters)
        rows = int(tag.rpartition(" ")[2])
    elif "psycopg" in packages:
        rows = (await connection.execute(change.text(Style.PERCENT), change.parameters)).rowcount
    else:
        raise _unknown(connection, "compare_and_set_async")
    return change.judged(rows)


def _checked(
    table: str, where: Mapping[str, object], version: int, values: Mapping[str, object], version_column: str
) -> CompareAndSet:
    change = CompareAndSet(table=table, where=where, version=version, values=values, version_column=version_column)
    faults = change.faults()
    if faults:
        raise MisuseError(f"No statement can be made: {'; '.join(faults)}. Correct the call.")
    return change


def _place(style: Style, number: int) -> str:
    match style:
        case Style.QUESTION | Style.PERCENT:
            return style.value
        case Style.DOLLAR:
            return f"${number}"
        case Style.COLON:
            return f":p{number}"


def _for_sqlalchemy(change: CompareAndSet) -> tuple[Any, dict[str, object]]:
    from sqlalchemy import text  # noqa: PLC0415 - imported already, by whoever made the connection.

    return text(change.text(Style.COLON)), {f"p{place}": value for place, value in enumerate(change.parameters, 1)}


def _packages(connection: object) -> set[str]:
    return {kind.__module__.partition(".")[0] for kind in type(connection).__mro__}


def _unknown(connection: object, name: str) -> MisuseError:
    kind = type(connection)
    return MisuseError(
        f"{name} does not know {kind.__module__}.{kind.__qualname__}; use the connection itself, or the twin for "
        "asyncio, or send the text of CompareAndSet yourself."
    )
