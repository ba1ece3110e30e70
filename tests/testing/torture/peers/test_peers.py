"""The kit finds the known faults of other libraries, each in a small application built with it."""

import os

import pytest

from nebis.testing.torture import CHECKS, Verdict
from tests.testing.torture.peers.peers import PEERS, Peer
from tests.testing.torture.peers.trial import try_peer


def test_every_known_fault_is_looked_for_by_a_check() -> None:
    ids = {check.id for check in CHECKS}

    assert all(peer.faults and peer.faults.keys() <= ids for peer in PEERS)
    assert len({peer.package for peer in PEERS}) >= 3


@pytest.mark.timeout(900)
@pytest.mark.skipif(
    "NEBIS_PEERS" not in os.environ,
    reason="installs packages of others from the network, which may be away or changed: set NEBIS_PEERS=1 to run it",
)
@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.name)
def test_the_kit_finds_the_known_faults_of_another_library(peer: Peer) -> None:
    done = try_peer(peer, *peer.faults)

    failed = {result.check.id for result in done.having(Verdict.FAILED)}
    assert failed == peer.faults.keys(), done
