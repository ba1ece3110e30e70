"""The whole suite in one module, to be imported where a fixture `service` is."""

from nebis.testing.http_conformance.bodies import TestBodies
from nebis.testing.http_conformance.deadlines import TestDeadlines
from nebis.testing.http_conformance.disconnects import TestDisconnects
from nebis.testing.http_conformance.failures import TestFailures
from nebis.testing.http_conformance.keys import TestKeys
from nebis.testing.http_conformance.races import TestRaces
from nebis.testing.http_conformance.replay import TestReplay
from nebis.testing.http_conformance.tenants import TestTenants
from nebis.testing.http_conformance.tokens import TestTokens
from nebis.testing.http_conformance.velocity import TestVelocity

__all__ = [
    "TestBodies",
    "TestDeadlines",
    "TestDisconnects",
    "TestFailures",
    "TestKeys",
    "TestRaces",
    "TestReplay",
    "TestTenants",
    "TestTokens",
    "TestVelocity",
]
