"""An exhaustive search of the production state machine: every order of faults within a budget, not a sample.

`check` searches one world, `CONFIGURATIONS` are the worlds of the published proof, `MUTANTS` the planted mistakes that
keep the search honest. `docs/explanation/model.md` says what is modelled and what is not.
"""

from nebis.testing.modelcheck.configurations import CONFIGURATIONS, Configuration, Transaction
from nebis.testing.modelcheck.mutants import MUTANTS, Mutant
from nebis.testing.modelcheck.proof import Report, check, check_all
from nebis.testing.modelcheck.search import Finding, Result, Search
from nebis.testing.modelcheck.story import tell
from nebis.testing.modelcheck.theorems import Violation

__all__ = [
    "CONFIGURATIONS",
    "MUTANTS",
    "Configuration",
    "Finding",
    "Mutant",
    "Report",
    "Result",
    "Search",
    "Transaction",
    "Violation",
    "check",
    "check_all",
    "tell",
]
