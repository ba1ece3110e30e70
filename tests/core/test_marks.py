"""What a request is known by makes its claims, with or without the command that a worker would need."""

from __future__ import annotations

from dataclasses import fields

from nebis.core.marks import Marks
from nebis.testing.conformance import specimens


def marks() -> Marks:
    claim = specimens.claim()
    return Marks(claim.identity, claim.tenant, claim.key, claim.fingerprints, claim.terms, None)  # type: ignore[arg-type]  # Specimens are plain bytes and text.


def test_a_claim_has_the_marks_of_its_request_and_those_of_its_attempt() -> None:
    claim = specimens.claim()

    made = marks().with_command(b"sealed")(claim.record_id, claim.nonce)

    assert made.command == b"sealed"
    for field in fields(claim):
        assert field.name == "command" or getattr(made, field.name) == getattr(claim, field.name)


def test_the_command_is_all_that_is_added() -> None:
    before = marks()

    after = before.with_command(b"sealed")

    assert type(after) is Marks
    assert after == (*before[:5], b"sealed")
    assert before.command is None
