"""Where RabbitMQ and its Erlang come from: named, installed, or unpacked from Debian's packages without root."""

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT_VARIABLE = "NEBIS_TEST_RABBITMQ_ROOT"
"""Names a folder under which lies `usr/lib/rabbitmq`."""

_PACKAGES = (
    "rabbitmq-server",
    *(f"erlang-{part}" for part in ("base", "asn1", "crypto", "eldap", "ftp", "inets", "mnesia", "os-mon")),
    *(f"erlang-{part}" for part in ("parsetools", "public-key", "runtime-tools", "snmp", "ssl", "syntax-tools")),
    *(f"erlang-{part}" for part in ("tftp", "tools", "xmerl")),
)
_COMMAND_SECONDS = 120


def find_rabbitmq() -> Path:
    """Return the root of an installation; fail with what installs one."""
    named = os.environ.get(ROOT_VARIABLE)
    if named is not None:
        return _checked(Path(named), ROOT_VARIABLE)
    if _server_scripts(Path("/")) and shutil.which("erl"):
        return Path("/")
    root = _cache() / "rabbitmq"
    root.parent.mkdir(parents=True, exist_ok=True)
    # Workers start together; one downloads and the others wait for it.
    with (root.parent / "rabbitmq.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not root.exists():
            _unpack(root)
    return _checked(root, str(root))


def server_script(root: Path) -> Path:
    """Return the script that starts the server without asking who runs it."""
    return _server_scripts(root)[0]


def program_paths(root: Path) -> list[Path]:
    """Return the folders that must lead the search path, so that the server finds its own Erlang."""
    return [] if root == Path("/") else [root / "usr" / "lib" / "erlang" / "bin"]


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nebis-tests"


def _server_scripts(root: Path) -> list[Path]:
    return sorted(root.glob("usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin/rabbitmq-server"))


def _checked(root: Path, origin: str) -> Path:
    if not _server_scripts(root):
        raise FileNotFoundError(f"{origin} holds no RabbitMQ under usr/lib/rabbitmq. Remove it, or correct it.")
    return root


def _unpack(root: Path) -> None:
    """Download the packages with a package list of our own, and move them into place only when they are complete."""
    with tempfile.TemporaryDirectory(dir=root.parent) as directory:
        work = Path(directory)
        for folder in ("lists/partial", "cache/archives/partial", "packages", "root"):
            (work / folder).mkdir(parents=True)
        settings = {
            "Dir::State::lists": work / "lists",
            "Dir::Cache": work / "cache",
            "Acquire::Languages": "none",
            "APT::Sandbox::User": "root",
        }
        options = [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]
        _run(["apt-get", "-q", *options, "update"], work)
        _run(["apt-get", "-q", *options, "download", *_PACKAGES], work / "packages")
        for package in sorted((work / "packages").glob("*.deb")):
            _run(["dpkg", "-x", str(package), str(work / "root")], work)
        _relocate(work / "root", root)
        (work / "root").rename(root)


def _relocate(unpacked: Path, root: Path) -> None:
    """Tell Erlang's scripts where they will be: they name the place for which they were packaged."""
    for name in ("erl", "start"):
        script = unpacked / "usr" / "lib" / "erlang" / "bin" / name
        script.write_text(script.read_text().replace("ROOTDIR=/usr/", f"ROOTDIR={root}/usr/"))


def _run(command: Sequence[str], directory: Path) -> None:
    advice = (
        "No RabbitMQ for the tests, and it could not be unpacked without root. Run: apt-get install rabbitmq-server, "
        f"or set {ROOT_VARIABLE} to a folder that holds usr/lib/rabbitmq and usr/lib/erlang."
    )
    try:
        outcome = subprocess.run(
            command,
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_COMMAND_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise FileNotFoundError(advice) from error
    if outcome.returncode != 0:
        said = outcome.stdout.decode(errors="replace")[-1000:]
        raise FileNotFoundError(f"{advice}\n{' '.join(command[:2])} said: {said}")
