"""A disk that can be filled to the last byte, for a process and whatever it starts.

A small file system in memory, in a mount namespace that ends with the process. Ordinary users may have one too, where
user namespaces are allowed. Where nobody may mount anything, only the size of this process's own files is limited:
then a write fails with "file too large" (EFBIG) instead of "no space left" (ENOSPC), which SQLite takes for another
error of the disk, and a server cannot be tested at all, since its log is larger than any table.
"""

import os
import resource
import subprocess
from contextlib import suppress
from functools import cache
from pathlib import Path

_NAMESPACES = (("unshare", "--mount"), ("unshare", "--user", "--map-root-user", "--mount"))
_STEP_BYTES = 64 * 1024
_PAGE_BYTES = 4096


@cache
def namespace() -> tuple[str, ...]:
    """Return what to write before a command so that it may mount; nothing if it may not."""
    for prefix in _NAMESPACES:
        with suppress(OSError):
            tried = [*prefix, "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
            if subprocess.run(tried, capture_output=True, check=False).returncode == 0:
                return prefix
    return ()


class SmallDisk:
    """A mounted disk; to be made inside the namespace."""

    def __init__(self, home: Path, size: str) -> None:
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(home)], check=True)
        self._filler = home / "filler"

    def fill(self) -> None:
        """Take all the space that is left."""
        filler = os.open(self._filler, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            for size in (_STEP_BYTES, _PAGE_BYTES):
                with suppress(OSError):
                    while True:
                        os.write(filler, bytes(size))
        finally:
            os.close(filler)
        assert os.statvfs(self._filler).f_bavail == 0

    def free(self) -> None:
        """Give the space back."""
        self._filler.unlink()


class LimitedFiles:
    """The next best thing: no file of this process can be written beyond a few bytes."""

    def fill(self) -> None:
        """Refuse all writes from here on."""
        resource.setrlimit(resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))

    def free(self) -> None:
        """Let files grow again."""
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
