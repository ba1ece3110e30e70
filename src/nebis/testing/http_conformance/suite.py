"""The whole suite in one module, to be imported where a fixture `service` is."""

from nebis.testing.http_conformance.bodies import TestBodies
from nebis.testing.http_conformance.disconnects import TestDisconnects
from nebis.testing.http_conformance.failures import TestFailures
from nebis.testing.http_conformance.keys import TestKeys
from nebis.testing.http_conformance.races import TestRaces
from nebis.testing.http_conformance.replay import TestReplay
from nebis.testing.http_conformance.tenants import TestTenants

__all__ = ["TestBodies", "TestDisconnects", "TestFailures", "TestKeys", "TestRaces", "TestReplay", "TestTenants"]
