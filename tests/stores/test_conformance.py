"""The suite that ships, on every store that ships."""

from nebis.testing.conformance.suite import *  # noqa: F403 - pytest collects what this module holds.
