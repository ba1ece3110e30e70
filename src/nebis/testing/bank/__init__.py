"""A bank for tests: its own process, its own file, and none of the code that it is a witness against.

    python -m nebis.testing.bank --port 0 --file bank.db

Every mode is a counter of the one bank, under its own path: `POST /sticky/charges` with `Idempotency-Key`, `Fence` and
`Attempt` headers and a body `{"reference": ..., "amount": ...}`. Whatever moves money is appended to the ledger and
synced to disk before anybody is answered.

| mode           | what a second call under the same key does                                          |
|----------------|-------------------------------------------------------------------------------------|
| `opaque`       | charges again                                                                       |
| `sticky`       | gets the first answer, success or rejection                                         |
| `success_only` | gets the first success; a rejection is forgotten at once                            |
| `fenced`       | is refused if its fence is lower than one seen; otherwise gets the first success    |
| `queryable`    | charges again, but `GET /queryable/charges/KEY` tells, and `POST .../void` burns it |

`POST /behaviours` says how the next call with a reference is treated; `GET /ledger` and `GET /requests` are the books.
"""

from nebis.testing.bank.client import Bank
from nebis.testing.bank.process import BankProcess

__all__ = ["Bank", "BankProcess"]
