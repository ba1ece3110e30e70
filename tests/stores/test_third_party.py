"""A store's author runs the suite with one command; a store that is wrong does not pass it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psycopg

COMMAND = (
    *(sys.executable, "-m", "pytest", "--pyargs", "nebis.testing.conformance.suite"),
    *("-p", "nebis.testing.conformance.plugin", "-p", "no:cacheprovider", "-q", "--tb=line"),
)

HOW_TO = Path(__file__).parents[2] / "docs" / "how-to" / "write-a-store.md"
HONEST_STORE = HOW_TO.read_text().split("```python\n", 1)[1].split("```", 1)[0]

CHECK_THEN_INSERT = (
    HONEST_STORE
    + """

from nebis.core.answers import Grant, Granted
from nebis.core.claiming import first_life
from nebis.core.verbs import Claim
from nebis.stores.memory import Touch


class HastyStore(AcmeStore):
    def apply(self, verbs, *, now=None):
        if len(verbs) == 1 and isinstance(verbs[0], Claim):
            (claim,) = verbs
            if (yield from self.find(claim.identity)) is None:
                def insert():
                    record = first_life(claim, now, self._fence())
                    self._records[claim.identity] = record
                    return [Granted(record=record, how=Grant.NEW)]

                return (yield from Touch("insert", insert))
        return (yield from super().apply(verbs, now=now))


class HastyHarness(AcmeHarness):
    def fresh(self):
        self.store = HastyStore()
        return self.connect()
"""
)

WITHOUT_UNIQUE_INDEX = """
import os

import psycopg

from nebis.stores import open_blocking
from nebis.testing.conformance import Harness, connection_of


class UnguardedHarness(Harness):
    def fresh(self):
        connection = self.connect()
        connection.run(connection.store.migrate())
        with psycopg.connect(os.environ["UNGUARDED_URL"]) as raw:
            raw.execute("DELETE FROM nebis_record")
            if os.environ["UNGUARDED"] == "yes":
                raw.execute("ALTER TABLE nebis_record DROP CONSTRAINT IF EXISTS record_identity_is_unique")
        return connection

    def connect(self):
        return connection_of(open_blocking(os.environ["UNGUARDED_URL"]))
"""


def run_suite(folder: Path, source: str, factory: str, *options: str, **environment: str) -> tuple[int, str]:
    """Run the one command of the documentation in a process of its own, in a folder that holds the store."""
    (folder / "acme_store.py").write_text(source)
    paths = os.pathsep.join([str(folder), *filter(None, sys.path)])
    outcome = subprocess.run(
        [*COMMAND, f"--nebis-store=acme_store:{factory}", *options],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": paths, "NEBIS_DIFFERENTIAL_EXAMPLES": "10", **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    return outcome.returncode, outcome.stdout + outcome.stderr


def test_the_store_of_the_documentation_passes_with_the_command_of_the_documentation(tmp_path: Path) -> None:
    code, said = run_suite(tmp_path, HONEST_STORE, "AcmeHarness")

    assert code == 0, said
    assert " passed" in said
    assert "failed" not in said
    assert " ".join(["pytest", *COMMAND[3:7], "--nebis-store=acme_store:AcmeHarness"]) in HOW_TO.read_text()


def test_a_store_that_checks_and_then_inserts_is_caught(tmp_path: Path) -> None:
    code, said = run_suite(tmp_path, CHECK_THEN_INSERT, "HastyHarness", "-k", "TestConcurrency")

    assert code == 1, said
    assert "FAILED" in said
    assert "test_whoever_is_overtaken_between_two_asks_does_not_win_as_well[new key]" in said


def test_a_store_whose_unique_index_was_dropped_is_caught(tmp_path: Path, postgres_url: str) -> None:
    def claims(*, is_unguarded: str) -> tuple[int, str]:
        variables = {"UNGUARDED_URL": postgres_url, "UNGUARDED": is_unguarded}
        return run_suite(tmp_path, WITHOUT_UNIQUE_INDEX, "UnguardedHarness", "-k", "TestClaim and key", **variables)

    guarded, before = claims(is_unguarded="no")
    unguarded, after = claims(is_unguarded="yes")

    assert guarded == 0, before
    assert unguarded == 1, after
    with psycopg.connect(postgres_url) as connection:
        indexes = connection.execute("SELECT indexdef FROM pg_indexes WHERE tablename = 'nebis_record'").fetchall()
    assert not [index for (index,) in indexes if "(identity)" in index]


def test_without_a_store_the_command_says_what_is_missing(tmp_path: Path) -> None:
    outcome = subprocess.run([*COMMAND, "-k", "TestSecrets"], cwd=tmp_path, capture_output=True, text=True, check=False)

    assert outcome.returncode != 0
    assert "--nebis-store=package.module:make_harness" in outcome.stdout + outcome.stderr
