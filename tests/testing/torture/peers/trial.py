"""The kit pointed at a shop behind another library."""

import asyncio
import subprocess
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from nebis.testing.torture import Run, chosen, run
from nebis.testing.torture.operation import Operation, parse_operation
from tests.engines.valkey import ValkeyServer
from tests.testing.torture.peers.environment import interpreter_of
from tests.testing.torture.peers.peers import Peer
from tests.testing.torture.shop import SHOP_TOML

_SHOP = Path(__file__).with_name("shop_of_peer.py")
_STOP_SECONDS = 20


def try_peer(peer: Peer, *only: str) -> Run:
    """Run these checks, or all, against the shop behind this library."""
    with _serving(peer) as url:
        return asyncio.run(run(_operation(peer), url, chosen(only)))


def _operation(peer: Peer) -> Operation:
    """Return the operation of the kit's own shop, with what this library documents about its keys."""
    data = tomllib.loads(SHOP_TOML)
    data["keys"] = peer.keys
    return parse_operation(data, {})


@contextmanager
def _serving(peer: Peer) -> Iterator[str]:
    with ExitStack() as stack:
        place = stack.enter_context(tempfile.TemporaryDirectory(prefix="nebis-peer-"))
        if peer.store == "redis":
            place = stack.enter_context(ValkeyServer()).url
        command = [str(interpreter_of(peer)), str(_SHOP), peer.package, peer.store, place]
        if peer.sets_cookie:
            command.append("cookie")
        complaints = stack.enter_context(tempfile.TemporaryFile("w+"))
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=complaints, text=True)
        try:
            assert process.stdout is not None
            port = process.stdout.readline().strip()
            if not port:
                complaints.seek(0)
                raise RuntimeError(f"The shop behind {peer.name} did not start. It said:\n{complaints.read()[-2000:]}")
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()
            process.communicate(timeout=_STOP_SECONDS)
