"""`make demo`: the payments service, the card gateway and the worker, kept running, and the Retry Lab to break them."""
