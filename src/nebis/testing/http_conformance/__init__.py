"""The HTTP contract as a test suite: what every integration answers, over real sockets, to honest and other clients.

Whoever writes an integration builds an application from `Scenarios`, one endpoint for each of `ROUTES`, starts it in a
server, and gives the suite a `Service` from a fixture of that name:

    from nebis.testing.http_conformance.suite import *
"""

from nebis.testing.http_conformance.application import BRIEFLY, ROUTES, Denied, Disguised, Route, Scenarios
from nebis.testing.http_conformance.client import Client, Reply
from nebis.testing.http_conformance.service import FULL, TENTH, Service, Sizes

__all__ = [
    "BRIEFLY",
    "FULL",
    "ROUTES",
    "TENTH",
    "Client",
    "Denied",
    "Disguised",
    "Reply",
    "Route",
    "Scenarios",
    "Service",
    "Sizes",
]
