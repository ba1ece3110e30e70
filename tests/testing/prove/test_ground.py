"""The code that each layer is about: all that it imports, and nothing that was changed since."""

from pathlib import Path

import pytest

from nebis.testing.prove.ground import GROUNDS, UNKNOWN, Ground, newest
from nebis.testing.prove.layers import LAYERS
from tests.testing.prove.checkout import Checkout
from tests.testing.prove.imports import files_of
from tests.tidy.repository import ROOT

ENTRIES = {
    "model check": ["nebis.testing.modelcheck.proof"],
    "simulation": ["nebis.testing.simulate.campaign"],
    "kill matrix": ["tests/matrix"],
    "protocol cuts": ["tests.testing.prove.cuts"],
    "soak": ["tests.testing.prove.soak"],
    "failover": ["tests.failover.__main__"],
    "message storm": ["tests.messaging.test_storm"],
    "planted bugs": [
        "tests.planted.__main__",
        "tests.planted.plugin",
        "tests.stores.test_conformance",
        "tests.integrations.test_asgi",
    ],
    "torture kit": [
        "nebis.cli",
        "tests.testing.torture.test_reference_service",
        "tests.testing.torture.test_servers",
        "tests.testing.torture.peers.test_peers",
    ],
    "mutation": ["tests.planted.mutation", "tests/core"],
}
"""Where each layer begins."""


def modules(entry: str) -> list[str]:
    if "/" not in entry:
        return [entry]
    return [f"{entry.replace('/', '.')}.{file.stem}" for file in sorted((ROOT / entry).glob("*.py"))]


def test_every_layer_has_a_ground_and_an_entry() -> None:
    assert LAYERS.keys() == GROUNDS.keys() == ENTRIES.keys()


@pytest.mark.parametrize("layer", ENTRIES)
def test_a_layer_is_about_all_that_it_imports(layer: str) -> None:
    files = files_of(module for entry in ENTRIES[layer] for module in modules(entry))

    assert len(files) > 20
    assert not sorted(file for file in files if not GROUNDS[layer].covers(file))


@pytest.mark.parametrize("layer", GROUNDS)
def test_every_path_of_a_ground_exists(layer: str) -> None:
    for path in (*GROUNDS[layer].paths, *GROUNDS[layer].spared):
        assert (ROOT / path.removesuffix("/*.py")).exists(), path


def test_imports_are_followed_into_functions_and_through_the_public_face() -> None:
    assert "src/nebis/stores/sql/postgres/psycopg_blocking.py" in files_of(["nebis.sync"])
    assert files_of(["tests.core.test_token"]) >= {"src/nebis/core/token.py", "src/nebis/errors.py"}
    assert "src/nebis/sync.py" not in files_of(["tests.core.test_token"])


@pytest.mark.parametrize(
    ("file", "is_covered"),
    [
        ("src/a/core/one.py", True),
        ("src/a/core/below/two.py", True),
        ("src/a/corent.py", False),
        ("src/a/core/spared/three.py", False),
        ("src/a/core/spared.py", True),
        ("lib/four.py", True),
        ("lib/below/five.py", False),
    ],
)
def test_what_a_ground_covers_is_what_git_looks_at(checkout: Checkout, file: str, is_covered: bool) -> None:
    ground = Ground(("src/a/core", "lib/*.py"), ("src/a/core/spared",))

    before = ground.commit(checkout.root)
    checkout.write(file, "changed")
    is_changed = ground.is_changed(checkout.root)
    after = checkout.commit()

    assert before == UNKNOWN
    assert is_changed is is_covered
    assert ground.covers(file) is is_covered
    assert ground.commit(checkout.root) == (after if is_covered else UNKNOWN)
    assert not ground.is_changed(checkout.root)


def test_newest_commit_is_the_one_after_the_others(checkout: Checkout) -> None:
    commits = []
    for number in range(3):
        checkout.write("a.py", str(number))
        commits.append(checkout.commit())

    assert newest(checkout.root, reversed(commits)) == commits[-1]
    assert newest(checkout.root, [UNKNOWN, commits[0]]) == commits[0]
    assert newest(checkout.root, [UNKNOWN]) == UNKNOWN


def test_commit_of_what_is_shipped_leaves_the_tests_out(checkout: Checkout) -> None:
    ground = Ground(("src/a", "tests/a"))
    checkout.write("src/a/one.py", "")
    shipped = checkout.commit()
    checkout.write("tests/a/test_one.py", "")
    tested = checkout.commit()

    assert ground.commit(checkout.root) == tested
    assert ground.commit_of_source(checkout.root) == shipped


def test_without_git_nothing_is_known(tmp_path: Path) -> None:
    assert Ground(("src",)).commit(tmp_path) == UNKNOWN
