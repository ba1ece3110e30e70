"""Try every library with every check and print what each fails; installs them, each into an environment of its own.

python -m tests.testing.torture.peers [NAME ...]
"""

import argparse
import sys
from datetime import UTC, datetime

from nebis.testing.torture import Verdict
from tests.testing.torture.peers.environment import versions_of
from tests.testing.torture.peers.peers import PEERS, Peer
from tests.testing.torture.peers.trial import try_peer


def main() -> int:
    """Print one section for each library; 1 if a fault that is known was not found."""
    parser = argparse.ArgumentParser(prog="python -m tests.testing.torture.peers")
    parser.add_argument("names", nargs="*", help=f"all unless some are named: {', '.join(peer.name for peer in PEERS)}")
    asked = parser.parse_args()
    chosen = [peer for peer in PEERS if not asked.names or peer.name in asked.names]
    missed = [f"{peer.name} {check}" for peer in chosen for check in _try(peer)]
    for line in missed:
        sys.stdout.write(f"known and not found: {line}\n")
    return 1 if missed else 0


def _try(peer: Peer) -> list[str]:
    """Print what a library fails; return the known faults that were not found."""
    versions = versions_of(peer)
    done = try_peer(peer)
    counts = {verdict: len(done.having(verdict)) for verdict in Verdict}
    beside = ", ".join(f"{name} {versions[name]}" for name in ("starlette", "uvicorn", "redis") if name in versions)
    sys.stdout.write(
        f"{peer.package} {versions[peer.package]} on {peer.store}{', cookie set' if peer.sets_cookie else ''} "
        f"({beside}), {datetime.now(UTC):%Y-%m-%d}: {counts[Verdict.PASSED]} passed, "
        f"{counts[Verdict.FAILED]} failed, {counts[Verdict.SKIPPED]} n/a\n"
    )
    failed = {result.check.id for result in done.having(Verdict.FAILED)}
    for result in done.having(Verdict.FAILED):
        mark = "known" if result.check.id in peer.faults else "     "
        sys.stdout.write(f"  {mark} {result.check.severity.value:8} {result.check.id}: {result.detail}\n")
    sys.stdout.flush()
    return sorted(peer.faults.keys() - failed)


if __name__ == "__main__":
    sys.exit(main())
