"""What the environment decides, and how patient the operations are."""

import os

from nebis import AsyncNebis, seconds
from nebis.declaration import PolicyOptions
from nebis.ports.observer import Event, Observer

PORT = int(os.environ.get("PORT", "") or "8000")
STORE = os.environ.get("NEBIS_STORE", "") or "sqlite:///.nebis/payments.db"
GATEWAY = f"http://127.0.0.1:{PORT + 1}"

watchers: list[Observer] = []
"""Who is told of everything that happens to a record: metrics and alerts in a service, the page in the demo."""


def tell(event: Event) -> None:
    """Tell all of them."""
    for watcher in watchers:
        watcher(event)


nebis = AsyncNebis(STORE, observers=[tell])

# Five seconds instead of thirty, so that whoever kills the server in the demo does not wait long. Longer is kinder to
# processes that pause; safety is the same with any value.
PATIENCE: PolicyOptions = {
    "lease": seconds(5),
    "renewal": seconds(1.5),
    "effect_timeout": seconds(4),
    "backoff_longest": seconds(5),
}
AT_ONCE: PolicyOptions = {**PATIENCE, "single_transaction": True}
"""For work that is short and purely local: claim, rows and answer are one commit."""
