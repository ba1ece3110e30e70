import re
from dataclasses import fields

import pytest

from nebis.errors import ConfigError
from nebis.stores.sql.dialect import Statements, postgres_dialect, sqlite_dialect
from nebis.stores.sql.rows import EFFECT_COLUMNS, RECORD_COLUMNS
from nebis.stores.sql.statements import lone, read_statements

INJECTIONS = ['x"; DROP TABLE nebis_record; --', "", "a b", "1st", "ä", "x" * 64, "a.b", "x\n"]


def test_parameters_are_numbered_by_their_first_appearance() -> None:
    statement = read_statements("-- name: x\nSELECT :b, :a, :b;")["x"]

    assert statement.parameters == ("b", "a")
    assert statement.text == "SELECT :b, :a, :b"
    assert statement.positional == "SELECT $1, $2, $1"
    assert statement.pyformat == "SELECT %(b)s, %(a)s, %(b)s"


def test_casts_strings_and_quoted_names_are_no_parameters() -> None:
    source = """-- name: x
    SELECT :a::bigint[], ':b it''s :c', ":d", $$ :e $$, $f$ :g $$ $f$, a::text"""

    statement = read_statements(source)["x"]

    assert statement.parameters == ("a",)
    assert statement.positional == """SELECT $1::bigint[], ':b it''s :c', ":d", $$ :e $$, $f$ :g $$ $f$, a::text"""


def test_every_percent_sign_is_doubled_for_drivers_that_format() -> None:
    statement = read_statements("-- name: x\nSELECT '%Y' || :a || 5 % 2")["x"]

    assert statement.pyformat == "SELECT '%%Y' || %(a)s || 5 %% 2"
    assert statement.text == "SELECT '%Y' || :a || 5 % 2"


def test_comments_are_left_out_and_can_contain_anything() -> None:
    source = "Prose with :nothing.\n-- name: x\n-- Why: it's :so.\nSELECT 1, -- don't\n  '--', /* :no */ 2;\n"

    statement = read_statements(source)["x"]

    assert statement.text == "SELECT 1,\n  '--',  2"
    assert statement.parameters == ()


def test_fragments_are_repeated_where_they_are_named() -> None:
    source = "-- fragment: now\nCOALESCE(:now, 1)\n-- name: x\nSELECT {now}, '{}', {now}\n"

    assert list(read_statements(source)) == ["x"]
    assert read_statements(source)["x"].positional == "SELECT COALESCE($1, 1), '{}', COALESCE($1, 1)"


def test_a_fragment_is_repeated_with_other_names_for_its_parameters() -> None:
    source = "-- fragment: one\n:a::bytea[], ':b', :c\n-- name: x\nSELECT {one}, {done_:one}\n"

    assert read_statements(source)["x"].text == "SELECT :a::bytea[], ':b', :c, :done_a::bytea[], ':b', :done_c"


PLURAL = """-- name: x
SELECT member.a, message.b
FROM unnest(:a::bytea[], :c::text[]) AS member (a, c)
CROSS JOIN unnest(
    :b::bigint[]
) WITH ORDINALITY AS message (b, position)
CROSS JOIN unnest(member.kept) AS kept
"""


def test_a_lone_member_needs_no_arrays() -> None:
    statement = lone(read_statements(PLURAL)["x"], frozenset("abc"))

    assert statement is not None
    assert statement.parameters == ("a", "c", "b")
    assert statement.text.splitlines()[1:] == [
        "FROM (VALUES (:a::bytea, :c::text)) AS member (a, c)",
        "CROSS JOIN (VALUES (",
        "    :b::bigint",
        ", 1::bigint)) AS message (b, position)",
        "CROSS JOIN unnest(member.kept) AS kept",
    ]


def test_arrays_are_unnested_in_step_unless_their_places_are_asked_for() -> None:
    statement = read_statements(PLURAL)["x"]

    assert statement.positional.splitlines()[1:] == [
        "FROM (SELECT unnest($1::bytea[]), unnest($2::text[])) AS member (a, c)",
        "CROSS JOIN unnest(",
        "    $3::bigint[]",
        ") WITH ORDINALITY AS message (b, position)",
        "CROSS JOIN unnest(member.kept) AS kept",
    ]
    assert statement.text == PLURAL.partition("\n")[2].strip()


def test_what_all_members_share_stays_an_array_beside_a_lone_member() -> None:
    statement = lone(read_statements(PLURAL)["x"], frozenset("ac"))

    assert statement is not None
    assert "(VALUES (:a::bytea, :c::text)) AS member" in statement.text
    assert ":b::bigint[]\n) WITH ORDINALITY AS message" in statement.text


@pytest.mark.parametrize(
    "text", ["SELECT :a::bytea[]", "SELECT 1 FROM unnest(:a::bytea[], :b::text[]) AS member (a, b)"]
)
def test_a_column_that_must_be_an_array_keeps_a_statement_plural(text: str) -> None:
    assert lone(read_statements(f"-- name: x\n{text}")["x"], frozenset("a")) is None


@pytest.mark.parametrize(
    "source", ["-- name: x\nSELECT 1\n-- name: x\nSELECT 2", "-- name: x\nSELECT {unknown}"], ids=["twice", "unknown"]
)
def test_a_file_with_a_slip_is_refused(source: str) -> None:
    with pytest.raises(ValueError, match="SQL file"):
        read_statements(source)


def test_relations_are_put_into_the_schema_and_quoted_names_are_not() -> None:
    source = """-- name: x
    INSERT INTO nebis_record SELECT nextval('nebis_fence'), "nebis_index", 'nebis', my_nebis_x"""

    text = read_statements(source, schema="Own")["x"].text

    assert text == (
        """INSERT INTO "Own".nebis_record SELECT nextval('"Own".nebis_fence'), "nebis_index", 'nebis', my_nebis_x"""
    )


@pytest.mark.parametrize("schema", INJECTIONS)
def test_a_schema_that_needs_escaping_is_refused_sec20(schema: str) -> None:
    with pytest.raises(ConfigError, match="not a plain name"):
        postgres_dialect(schema)


@pytest.mark.parametrize(
    "dialect", [sqlite_dialect(), postgres_dialect(), postgres_dialect("Own")], ids=lambda d: d.name
)
def test_columns_are_read_in_the_order_in_which_statements_name_them(dialect: object) -> None:
    statements = getattr(dialect, "statements")  # noqa: B009 - the parameter is typed as what pytest passes.
    columns = re.findall(r"\b(record|effect)\.(\w+)[,\s]", statements.read_by_id.text.partition("FROM")[0])

    assert [name for table, name in columns if table == "record"] == list(RECORD_COLUMNS)
    assert [name for table, name in columns if table == "effect"] == list(EFFECT_COLUMNS)


def test_every_relation_of_postgres_is_in_the_schema() -> None:
    dialect = postgres_dialect("Own")
    texts = [statement.text for migration in dialect.migrations for statement in migration.statements]
    named = (getattr(dialect.statements, field.name) for field in fields(Statements))
    texts += [statement.text for statement in named if statement is not None]

    bare = [found for text in texts for found in re.findall(r'(?<!"Own"\.)(?<!")\bnebis_\w+', text)]

    assert bare == []


def test_a_schema_does_not_change_the_checksum_of_a_migration() -> None:
    assert [migration.checksum for migration in postgres_dialect("Own").migrations] == [
        migration.checksum for migration in postgres_dialect().migrations
    ]
