"""Where the database file is, and whether a database may be there at all."""

from __future__ import annotations

import os
import re
import sqlite3
from pathlib import Path
from urllib.parse import unquote

from nebis.errors import ConfigError
from nebis.ports.store import DefiniteFailure

_OLDEST_VERSION = (3, 37, 0)
"""The first with STRICT tables, without which a text could be stored as a fence."""
_MOUNTS = Path("/proc/self/mounts")
_NETWORK_FILE_SYSTEMS = frozenset(
    ["9p", "afs", "beegfs", "ceph", "cifs", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4", "smb3", "smbfs"]
)
_NETWORK_FUSE = re.compile(r"fuse\.(ceph|gcsfuse|glusterfs|juicefs|mount-s3|rclone|s3fs|sshfs)")


def path_of(url: str) -> Path:
    """Return the file that a URL names: three slashes before a relative path, four before an absolute one."""
    prefix, path = url[:10], unquote(url[10:])
    if prefix != "sqlite:///" or not path or path == ":memory:" or "?" in url or "\0" in path:
        raise ConfigError(
            ["a SQLite store is a file: write sqlite:///relative/path.db or sqlite:////absolute/path.db, nothing else"]
        )
    return Path(path).absolute()


def check_location(path: Path, *, mounts: str | None = None) -> None:
    """Raise `ConfigError`, with everything that is wrong, unless a database can be kept in this file safely."""
    faults = []
    if sqlite3.sqlite_version_info < _OLDEST_VERSION:
        faults.append(f"SQLite {sqlite3.sqlite_version} is too old; use a Python with SQLite 3.37 or newer")
    if path.is_dir():
        faults.append(f"{path} is a directory; name a file in it")
    elif not path.parent.is_dir():
        faults.append(f"the directory {path.parent} does not exist; create it")
    elif not os.access(path.parent, os.W_OK | os.X_OK):
        faults.append(f"the directory {path.parent} is not writable; SQLite keeps its journal beside the file")
    elif path.exists() and not os.access(path, os.R_OK | os.W_OK):
        faults.append(f"{path} is not readable and writable for this user; change its owner or mode")
    file_system = file_system_of(path, _read_mounts() if mounts is None else mounts)
    if file_system in _NETWORK_FILE_SYSTEMS or _NETWORK_FUSE.fullmatch(file_system):
        faults.append(
            f"{path} is on a network file system ({file_system}), where locks do not hold and two owners could run; "
            "use a local disk, or Postgres"
        )
    if faults:
        raise ConfigError(faults)


def file_system_of(path: Path, mounts: str) -> str:
    """Return the type of the file system that holds a path, from the text of the mount table; "" if it is not there."""
    parts = Path(os.path.realpath(path)).parts
    depth, found = 0, ""
    for line in mounts.splitlines():
        _, mount_point, file_system, *_ = line.split(" ")
        mounted = Path(re.sub(r"\\([0-7]{3})", lambda escaped: chr(int(escaped[1], 8)), mount_point)).parts
        # A later mount on the same point hides the earlier one.
        if len(mounted) >= depth and parts[: len(mounted)] == mounted:
            depth, found = len(mounted), file_system
    return found


def _read_mounts() -> str:
    # Elsewhere than on Linux nothing is known, and the assumption is said in the start-up report.
    return _MOUNTS.read_text(encoding="utf-8", errors="surrogateescape") if _MOUNTS.exists() else ""


class DatabaseFile:
    """The very file that was opened first. Another one under the same name is another database (F043)."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._identity: tuple[int, int] | None = None

    @property
    def was_opened(self) -> bool:
        """Tell whether the file is known already, so that it must not be created again."""
        return self._identity is not None

    def remember(self) -> None:
        """Take the file that is there now as the one."""
        self._identity = self._present()

    def check(self) -> None:
        """Refuse to work unless the file that is there now is the one: others would write to a different one."""
        if self._identity is not None and self._present() != self._identity:
            raise DefiniteFailure(
                f"{self.path} was deleted or replaced while it was in use; put the file back, or restart every process"
            )

    def is_at(self, place: str) -> bool:
        """Tell whether a path leads to this very file."""
        return bool(place) and Path(place).exists() and self.path.samefile(place)

    def _present(self) -> tuple[int, int] | None:
        try:
            status = self.path.stat()
        except FileNotFoundError:
            return None
        return (status.st_dev, status.st_ino)
