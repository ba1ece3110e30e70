"""Secrets: one root secret for all processes, and a memory of every one that was in use."""

from __future__ import annotations

from nebis.ports.store import SecretState
from nebis.testing.conformance import specimens
from nebis.testing.conformance.harness import Connection, Harness

CANDIDATE = bytes(range(32))
OTHER_CANDIDATE = bytes(range(32, 64))
CHECK_VALUE = b"\x00" * 31 + b"\xff"
OTHER_CHECK_VALUE = b"\xff" * 32


class TestSecrets:
    """A second secret would forget every key and charge twice."""

    def test_the_first_candidate_becomes_everybodys_secret(self, harness: Harness, store: Connection) -> None:
        first = store.run(store.store.secrets(CANDIDATE))
        other = harness.connect()

        try:
            second = other.run(other.store.secrets(OTHER_CANDIDATE))
        finally:
            other.close()

        assert first == second == SecretState(generated=CANDIDATE, check_values=frozenset())

    def test_without_a_candidate_nothing_is_kept(self, store: Connection) -> None:
        nothing = SecretState(generated=None, check_values=frozenset())

        assert store.run(store.store.secrets(None)) == nothing
        assert store.run(store.store.secrets(None)) == nothing

    def test_check_values_are_remembered_once_each(self, store: Connection) -> None:
        for check_value in (CHECK_VALUE, OTHER_CHECK_VALUE, CHECK_VALUE):
            store.run(store.store.admit_secret(check_value))

        state = store.run(store.store.secrets(CANDIDATE))

        assert state.check_values == {CHECK_VALUE, OTHER_CHECK_VALUE}

    def test_the_store_gets_its_own_secret_even_where_others_are_in_use(self, store: Connection) -> None:
        store.run(store.store.admit_secret(CHECK_VALUE))

        state = store.run(store.store.secrets(CANDIDATE))

        assert state == SecretState(generated=CANDIDATE, check_values=frozenset({CHECK_VALUE}))

    def test_the_generated_secret_stays_when_others_are_admitted(self, store: Connection) -> None:
        store.run(store.store.secrets(CANDIDATE))
        store.run(store.store.admit_secret(CHECK_VALUE))

        state = store.run(store.store.secrets(OTHER_CANDIDATE))

        assert state == SecretState(generated=CANDIDATE, check_values=frozenset({CHECK_VALUE}))

    def test_a_secret_does_not_show_in_its_repr_sec26(self, store: Connection) -> None:
        state = store.run(store.store.secrets(CANDIDATE))

        assert repr(CANDIDATE)[2:20] not in repr(state)

    def test_a_secret_is_retired_once_no_record_was_made_with_it(self, store: Connection) -> None:
        store.run(store.store.admit_secret(CHECK_VALUE))
        store.run(store.store.admit_secret(OTHER_CHECK_VALUE))

        left = store.run(store.store.retire_secret(CHECK_VALUE, 99))

        assert left == 0
        assert store.run(store.store.secrets(None)).check_values == {OTHER_CHECK_VALUE}

    def test_a_secret_that_records_were_made_with_stays(self, store: Connection) -> None:
        store.run(store.store.admit_secret(CHECK_VALUE))
        store.run(store.store.apply([specimens.claim(fingerprints=((7 << 8 | 1, b"f" * 32),))]))

        left = store.run(store.store.retire_secret(CHECK_VALUE, 7))

        assert left == 1
        assert store.run(store.store.secrets(None)).check_values == {CHECK_VALUE}
