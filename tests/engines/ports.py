"""Free ports on the loopback interface."""

import random
import socket

# Below the range from which Linux draws the ports of outgoing connections. Inside it a client that keeps dialling a
# stopped server can be given the server's own port, and so connect to itself.
_PORTS = range(20_000, 32_000)


def free_port() -> int:
    """Return a port on which nothing listens at the moment."""
    for port in random.SystemRandom().sample(_PORTS, k=100):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise RuntimeError(f"No free port between {_PORTS.start} and {_PORTS.stop} on 127.0.0.1.")
