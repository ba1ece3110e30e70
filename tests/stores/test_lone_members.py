"""What statements are told of one verb is what they are told of each of many."""

from dataclasses import replace

import pytest

from nebis.core.record import Outcome, OutcomeKind, Resource
from nebis.core.verbs import Complete
from nebis.stores.sql.asks import Columns
from nebis.stores.sql.members import claims, completions
from tests.runtime.verbs import claim, completion

_ORDER = Resource(type="order", id="ord_1")


def test_a_claim_alone_says_what_it_says_among_others() -> None:
    verbs = [replace(claim(1), command=b"{}"), claim(2)]

    among_others = claims(verbs)

    assert isinstance(among_others, Columns)
    assert [*claims(verbs[:1]), *claims(verbs[1:])] == list(among_others)


@pytest.mark.parametrize("kind", OutcomeKind)
def test_a_completion_alone_says_what_it_says_among_others(kind: OutcomeKind) -> None:
    verbs: list[Complete] = [
        replace(completion(1), outcome=Outcome(kind=kind, body=b"paid"), resource=_ORDER),
        completion(2),
    ]

    among_others = completions(verbs)

    assert isinstance(among_others, Columns)
    assert [*completions(verbs[:1]), *completions(verbs[1:])] == list(among_others)
