"""A payments service to copy from: one charge per key, whatever is retried, lost, raced or killed.

`operations.py` and `orders.py` say what happens once, `api.py` puts them behind HTTP, and `consumers.py` does what
follows from a payment. `ledger.py` books it, `database.py` holds the tables, `bank.py` calls the card gateway, and
`worker.py` finishes what a dead process left. `gateway.py` stands for somebody else's server, and `demo` starts
everything: `make demo`.
"""
