"""A checker of histories: what clients were told, what the bank did and what the store holds, compared key by key.

    python -m nebis.testing.history client.jsonl bank.jsonl store.jsonl

| rule | what must hold for each (tenant, key)                                                                 |
|------|-------------------------------------------------------------------------------------------------------|
| H1   | a success was acknowledged: the bank shows one effect                                                  |
| H2   | a definite refusal was acknowledged: the bank shows none, then and ever after                          |
| H3   | nobody was told anything definite: the bank shows one effect or none                                   |
| H4   | all acknowledged successes are equal, byte for byte                                                    |
| H5   | after the first success every later answer is that one; a different command is refused as key reuse   |
| H6   | no success was acknowledged before the store held it                                                   |
| H7   | an answer carries the tenant of whoever asked                                                          |
| H8   | an answer carries the nonce of a request under this key                                                |
| H9   | at the end nothing is in progress, and whatever is in doubt says why                                   |
| H10  | fences only grow, and one life of a key is completed once                                              |
| H11  | every business row has one event, which took effect once, in the order of its aggregate                |
| H12  | a call that was told "you did nothing" did nothing, then and ever after                                |

It reads each line once. A history without a single definite answer proves nothing, and is refused.
"""

from nebis.testing.history.checker import Violation, check, judge
from nebis.testing.history.events import HistoryUnusable
from nebis.testing.history.reading import History

__all__ = ["History", "HistoryUnusable", "Violation", "check", "judge"]
