"""Every verb is about exactly one record, and shows nothing sensitive."""

from __future__ import annotations

import re
from typing import get_args

import pytest

from nebis.core.record import Effect, EffectVerdict, Outcome, Record
from nebis.core.velocity import Charge
from nebis.core.verbs import (
    Checkpoint,
    Claim,
    EffectKnown,
    Expire,
    Forget,
    Intend,
    Purge,
    Resolve,
    TakeOver,
    TurnBack,
    Verb,
    identity_of,
)
from nebis.testing.conformance.moves import Case
from nebis.testing.conformance.probes import PROBES
from nebis.testing.conformance.specimens import PAID, claim
from tests.core.records import called, running

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


HIDDEN = {
    Claim: ("nonce", "tenant", "key", "fingerprints", "command"),
    TakeOver: ("nonce",),
    Intend: ("derived_key",),
    Checkpoint: ("result",),
    TurnBack: ("rejection",),
    Resolve: ("nonce",),
    EffectKnown: ("result",),
    Outcome: ("body",),
    Effect: ("derived_key", "result"),
    Record: ("tenant", "key", "fingerprint", "nonce", "rejection", "outcome", "command"),
    Charge: ("bucket",),
}
ONE_OF_THESE: dict[type, object] = {
    **ONE_OF_EACH,
    EffectKnown: EffectKnown(verdict=EffectVerdict.HAPPENED, result=b"4111"),
    Outcome: PAID,
    Effect: called(),
    Record: running(),
    Charge: Charge(bucket=b"4111", window_us=1, limit=1),
}


@pytest.mark.parametrize("kind", HIDDEN, ids=lambda kind: kind.__name__)
def test_what_is_somebodys_own_is_never_shown_sec26(kind: type) -> None:
    shown = repr(ONE_OF_THESE[kind])

    assert shown.startswith(f"{kind.__name__}(")
    assert not [name for name in HIDDEN[kind] if re.search(rf"[( ]{name}=", shown)]


def test_a_claim_shows_neither_tenant_nor_key_nor_command_sec26() -> None:
    verb: Claim = claim("secret-key", tenant="acct_1", command=b"4111")

    assert not [word for word in ("secret-key", "acct_1", "4111") if word in repr(verb)]
