"""Every verb is about exactly one record, and shows nothing sensitive."""

from __future__ import annotations

from typing import get_args

import pytest

from nebis.core.verbs import Claim, Expire, Forget, Purge, Verb, identity_of
from nebis.testing.conformance.moves import Case
from nebis.testing.conformance.probes import PROBES
from nebis.testing.conformance.specimens import claim

CASE = Case("key")
ONE_OF_EACH = {type(verb): verb for verb in (move(CASE) for move in PROBES.values())}


def test_the_probes_hold_every_verb() -> None:
    assert set(ONE_OF_EACH) == set(get_args(Verb))


@pytest.mark.parametrize("verb", ONE_OF_EACH.values(), ids=lambda verb: type(verb).__name__)
def test_a_verb_names_its_record(verb: Verb) -> None:
    assert identity_of(verb) == CASE.identity


@pytest.mark.parametrize("kind", [Expire, Purge, Forget])
def test_ageing_needs_no_more_than_an_identity(kind: type[Expire | Purge | Forget]) -> None:
    assert identity_of(kind(identity=b"x" * 32)) == b"x" * 32


def test_a_claim_shows_neither_tenant_nor_key_nor_command_sec26() -> None:
    verb: Claim = claim("secret-key", tenant="acct_1", command=b"4111")

    assert not [word for word in ("secret-key", "acct_1", "4111") if word in repr(verb)]
