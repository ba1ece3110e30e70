"""Every broker, as for the publishers."""

from tests.messaging.publishers.conftest import bench, topic

__all__ = ["bench", "topic"]
