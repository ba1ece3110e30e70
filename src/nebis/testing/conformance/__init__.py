"""The store contract as a test suite: one file per verb, a tour of every edge, and a random comparison with the core.

Whoever writes a store writes a `Harness` and runs the suite on it with one command:

    pytest --pyargs nebis.testing.conformance.suite -p nebis.testing.conformance.plugin \
        --nebis-store=package.module:make_harness
"""

from nebis.testing.conformance.harness import (
    Connection,
    Harness,
    connection_of,
    connection_on_private_loop,
)

__all__ = ["Connection", "Harness", "connection_of", "connection_on_private_loop"]
