"""Where a SQLite database may be, and what is said where it may not."""

import os
import sqlite3
from pathlib import Path

import pytest

from nebis.errors import ConfigError
from nebis.ports.store import DefiniteFailure
from nebis.stores.sql.sqlite import open_async, open_blocking
from nebis.stores.sql.sqlite.location import check_location, file_system_of, path_of
from nebis.testing.conformance.specimens import START_US, claim
from tests.stores.sql_backends import opened_sqlite, sqlite_url

MOUNTS = """\
/dev/vda / ext4 rw 0 0
tmpfs /tmp tmpfs rw 0 0
server:/export /srv/shared nfs4 rw 0 0
/dev/vdb /srv/shared/local ext4 rw 0 0
host /mnt/with\\040space fuse.sshfs rw 0 0
/dev/vdc /covered ext4 rw 0 0
//server/share /covered cifs rw 0 0
"""


def test_three_slashes_are_relative_and_four_are_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    assert path_of("sqlite:///data/shop.db") == tmp_path / "data/shop.db"
    assert path_of("sqlite:////var/lib/shop.db") == Path("/var/lib/shop.db")
    assert path_of("sqlite:////var/with%20space.db") == Path("/var/with space.db")


@pytest.mark.parametrize(
    "url", ["sqlite://", "sqlite:///", "sqlite:shop.db", "sqlite:///:memory:", "sqlite:///shop.db?mode=ro"]
)
def test_a_url_that_names_no_file_says_how_to_write_one(url: str) -> None:
    with pytest.raises(ConfigError, match="write sqlite:///relative"):
        open_blocking(url)


def test_a_directory_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is a directory; name a file in it"):
        open_blocking(f"sqlite:///{tmp_path}")


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere does not exist; create it"):
        open_async(f"sqlite:///{tmp_path}/nowhere/nebis.db")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)

    with pytest.raises(ConfigError, match="is not writable"):
        open_blocking(sqlite_url(tmp_path))


def test_a_file_of_something_else_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "nebis.db").write_bytes(b"important notes, not a database" * 100)
    backend = open_blocking(sqlite_url(tmp_path))

    with pytest.raises(ConfigError, match="not a SQLite database"):
        backend.sessions.run(backend.store.migrate())

    assert (tmp_path / "nebis.db").read_bytes() == b"important notes, not a database" * 100


@pytest.mark.parametrize(
    ("path", "file_system"),
    [
        ("/var/nebis.db", "ext4"),
        ("/tmp/nebis.db", "tmpfs"),
        ("/srv/shared/nebis.db", "nfs4"),
        ("/srv/sharedness/nebis.db", "ext4"),
        ("/srv/shared/local/nebis.db", "ext4"),
        ("/mnt/with space/nebis.db", "fuse.sshfs"),
        ("/covered/nebis.db", "cifs"),
    ],
)
def test_the_innermost_and_latest_mount_decides(path: str, file_system: str) -> None:
    assert file_system_of(Path(path), MOUNTS) == file_system


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "cifs", "9p", "fuse.sshfs", "fuse.s3fs"])
def test_a_network_file_system_is_refused_f043(kind: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=rf"network file system \({kind}\)"):
        check_location(tmp_path / "nebis.db", mounts=f"server {tmp_path.resolve()} {kind} rw 0 0\n")


def test_all_faults_are_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        check_location(tmp_path / "nowhere" / "nebis.db", mounts="server / nfs rw 0 0\n")

    assert len(refused.value.faults) == 2


def test_a_new_file_is_for_its_owner_only(tmp_path: Path) -> None:
    backend = opened_sqlite(tmp_path)

    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    backend.sessions.close()

    assert modes["nebis.db"] == 0o600
    assert set(modes.values()) == {0o600}


def test_a_replaced_file_is_refused_until_it_is_put_back_f043(tmp_path: Path) -> None:
    backend = opened_sqlite(tmp_path)
    other = tmp_path / "elsewhere"
    other.mkdir()
    opened_sqlite(other).sessions.close()
    kept = tmp_path / "kept.db"
    (tmp_path / "nebis.db").rename(kept)
    (other / "nebis.db").rename(tmp_path / "nebis.db")

    with pytest.raises(DefiniteFailure, match="was deleted or replaced"):
        backend.sessions.run(backend.store.apply([claim()], now=START_US))
    with pytest.raises(DefiniteFailure, match="was deleted or replaced"):
        backend.sessions.run(backend.store.find(claim().identity))

    kept.rename(tmp_path / "nebis.db")
    assert backend.sessions.run(backend.store.find(claim().identity)) is None
    backend.sessions.close()


def test_a_deleted_file_is_never_made_anew_f043(tmp_path: Path) -> None:
    backend = opened_sqlite(tmp_path)
    (tmp_path / "nebis.db").unlink()

    for _ in range(2):
        with pytest.raises(DefiniteFailure, match="was deleted or replaced"):
            backend.sessions.run(backend.store.apply([claim()], now=START_US))
        backend.sessions.close()

    assert not (tmp_path / "nebis.db").exists()


def test_a_version_without_strict_tables_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 36, 0))

    with pytest.raises(ConfigError, match="too old"):
        open_blocking(sqlite_url(tmp_path))
