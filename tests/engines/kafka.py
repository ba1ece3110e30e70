"""Brokers that speak the Kafka protocol: the mock cluster inside the client library, on real loopback ports.

They are in memory and last as long as the process; no real broker can be had without a container. The Python client
cannot reach all that the cluster can do, so it is driven through the library's own C interface.
"""

import ctypes
from pathlib import Path
from types import TracebackType
from typing import Self

import confluent_kafka

_BROKERS = 3
_PRODUCER = 0
_ERROR_BYTES = 512


def _library() -> ctypes.CDLL:
    package = Path(confluent_kafka.__file__).parent
    folders = (package.with_name("confluent_kafka.libs"), package / ".dylibs")
    found = [path for folder in folders for path in sorted(folder.glob("librdkafka*"))]
    if not found:
        raise FileNotFoundError("confluent-kafka has no librdkafka of its own. Run: pip install -e '.[test]'")
    library = ctypes.CDLL(str(found[0]))
    for name, result, arguments in (
        ("rd_kafka_conf_new", ctypes.c_void_p, []),
        ("rd_kafka_new", ctypes.c_void_p, [ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t]),
        ("rd_kafka_destroy", None, [ctypes.c_void_p]),
        ("rd_kafka_mock_cluster_new", ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_int]),
        ("rd_kafka_mock_cluster_destroy", None, [ctypes.c_void_p]),
        ("rd_kafka_mock_cluster_bootstraps", ctypes.c_char_p, [ctypes.c_void_p]),
        ("rd_kafka_mock_broker_set_down", ctypes.c_int, [ctypes.c_void_p, ctypes.c_int32]),
        ("rd_kafka_mock_broker_set_up", ctypes.c_int, [ctypes.c_void_p, ctypes.c_int32]),
        ("rd_kafka_mock_broker_set_rtt", ctypes.c_int, [ctypes.c_void_p, ctypes.c_int32, ctypes.c_int]),
    ):
        function = getattr(library, name)
        function.restype = result
        function.argtypes = arguments
    return library


class KafkaCluster:
    """Three brokers with topics that appear when they are first used."""

    def __init__(self) -> None:
        self._library = _library()
        error = ctypes.create_string_buffer(_ERROR_BYTES)
        self._client = self._library.rd_kafka_new(_PRODUCER, self._library.rd_kafka_conf_new(), error, _ERROR_BYTES)
        if not self._client:
            raise RuntimeError(f"librdkafka did not start: {error.value.decode(errors='replace')}")
        self._cluster = self._library.rd_kafka_mock_cluster_new(self._client, _BROKERS)
        self.bootstrap_servers: str = self._library.rd_kafka_mock_cluster_bootstraps(self._cluster).decode()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def stop(self) -> None:
        """Close every connection and take no more; what was written stays."""
        for broker in range(1, _BROKERS + 1):
            self._library.rd_kafka_mock_broker_set_down(self._cluster, broker)

    def start(self) -> None:
        """Take connections again."""
        for broker in range(1, _BROKERS + 1):
            self._library.rd_kafka_mock_broker_set_up(self._cluster, broker)

    def delay_replies(self, milliseconds: int) -> None:
        """Do what is asked at once, and answer only after that time."""
        for broker in range(1, _BROKERS + 1):
            self._library.rd_kafka_mock_broker_set_rtt(self._cluster, broker, milliseconds)

    def close(self) -> None:
        """End the brokers."""
        self._library.rd_kafka_mock_cluster_destroy(self._cluster)
        self._library.rd_kafka_destroy(self._client)
