"""The key: its spellings, and everything that is not one (K1, F090, F091, SEC05)."""

from __future__ import annotations

import pytest

from nebis.testing.http_conformance.client import new_key
from nebis.testing.http_conformance.service import Service

_MALFORMED = [
    "",
    '""',
    '"',
    '"open',
    'close"',
    '"a".',
    '"a"b',
    '"a";p=1',
    '"a" ; p',
    "a;p=1",
    '"a\\n"',
    '"a\\',
    "a\\b",
    "a b",
    '"a b"',
    "a\tb",
    "\xe9t\xe9",
    '"\xe9"',
    "\xff",
    "\x7f",
    "\xa0a",
    'a"b',
    '"a""b"',
    "'a b'",
    "a" * 256,
    '"' + "a" * 256 + '"',
    '"' + "\\\\" * 256 + '"',
    "a" * 4000,
    '"' * 300,
    "\\" * 10,
    ";",
    "a;",
    '"a"=1',
    '"a"\t"b"',
    'x"y"',
    '"\x80"',
]
_REPEATED = ["a,b", "a, b", '"a", "b"', '"a,b"', ",", "a,", ",a"]
_ACCEPTED = [
    "8e03978e-40d5-43e8-bc93-6894a57f9324",
    '"8e03978e-40d5-43e8-bc93-6894a57f9325"',
    "a",
    "z" * 255,
    '"' + "y" * 255 + '"',
    '"' + '\\"' * 255 + '"',
    "order:17/2024#x",
    "!$%&'()*+-./:<=>?@[]^_`{|}~",
    '"a;b"',
    '"quoted\\"inside"',
    '"back\\\\slash"',
    "0",
    "true",
    ":YWJj:",
    "(a)",
    "?1",
    "%00",
]
assert len(_MALFORMED) + len(_REPEATED) + len(_ACCEPTED) == 60


class TestKeys:
    @pytest.mark.parametrize("key", _MALFORMED, ids=ascii)
    def test_a_malformed_key_is_refused_and_never_repeated(self, service: Service, key: str) -> None:
        tag = new_key()

        reply = service.client().post("/local", {"tag": tag}, key=key)

        # A server may refuse the bytes before any application sees them, and say so in its own way.
        if _is_problem(reply.header("content-type")):
            assert reply.code in ("key-malformed", "key-repeated")
        assert reply.status == 400
        assert len(key) < 8 or key not in reply.body.decode("latin-1")
        assert service.scenarios.runs[tag] == 0

    @pytest.mark.parametrize("key", _REPEATED, ids=ascii)
    def test_a_list_of_keys_is_refused(self, service: Service, key: str) -> None:
        tag = new_key()

        reply = service.client().post("/local", {"tag": tag}, key=key)

        assert (reply.status, reply.code) == (400, "key-repeated")
        assert service.scenarios.runs[tag] == 0

    @pytest.mark.parametrize("key", _ACCEPTED, ids=ascii)
    def test_a_key_in_either_spelling_is_accepted(self, service: Service, key: str) -> None:
        tag = new_key()
        client = service.client(f"caller-{tag}")

        replies = [client.post("/local", {"tag": tag}, key=key) for _ in range(2)]

        assert [reply.status for reply in replies] == [201, 201]
        assert [reply.is_replay for reply in replies] == [False, True]
        assert service.scenarios.runs[tag] == 1

    def test_both_spellings_are_one_key(self, service: Service) -> None:
        key = new_key()

        bare = service.client().post("/local", {"tag": key}, key=key)
        quoted = service.client().post("/local", {"tag": key}, key=f'"{key}"')

        assert quoted.body == bare.body
        assert quoted.is_replay

    def test_two_headers_are_refused_even_if_they_are_equal(self, service: Service) -> None:
        key = new_key()

        reply = service.client().post("/local", {"tag": key}, key=key, headers=[("Idempotency-Key", key)])

        assert (reply.status, reply.code) == (400, "key-repeated")
        assert service.scenarios.runs[key] == 0

    def test_two_halves_of_a_quoted_key_are_not_one(self, service: Service) -> None:
        """Servers that join headers with a comma would make a valid key of them."""
        tag = new_key()

        reply = service.client().post("/local", {"tag": tag}, key='"a', headers=[("Idempotency-Key", 'b"')])

        assert (reply.status, reply.code) == (400, "key-repeated")

    def test_a_missing_key_is_refused(self, service: Service) -> None:
        tag = new_key()

        reply = service.client().post("/local", {"tag": tag})

        assert (reply.status, reply.code) == (400, "key-missing")
        assert service.scenarios.runs[tag] == 0

    def test_a_header_of_a_similar_name_is_no_key(self, service: Service) -> None:
        reply = service.client().post("/local", {}, headers=[("Idempotency_Key", new_key())])

        # Some servers refuse such names altogether; none may take it for the key.
        assert reply.status == 400

    def test_where_a_key_is_optional_a_request_without_one_runs_each_time(self, service: Service) -> None:
        """K4."""
        tag, key = new_key(), new_key()

        for _ in range(2):
            assert service.client().post("/optional", {"tag": tag}).status == 201
        with_key = [service.client().post("/optional", {"tag": key}, key=key) for _ in range(2)]

        assert service.scenarios.runs[tag] == 2
        assert [reply.is_replay for reply in with_key] == [False, True]

    def test_a_business_key_stands_in_for_a_missing_one(self, service: Service) -> None:
        """K4."""
        tag = new_key()
        command = {"tag": tag, "order": tag}

        derived = [service.client().post("/business", command) for _ in range(2)]
        fresh = service.client().post("/business", command, key=new_key())

        assert [reply.is_replay for reply in derived] == [False, True]
        assert not fresh.is_replay
        assert service.scenarios.runs[tag] == 2

    def test_an_always_rule_catches_a_client_with_fresh_keys(self, service: Service) -> None:
        """K4."""
        tag = new_key()
        command = {"tag": tag, "order": tag}

        replies = [service.client().post("/business-always", command, key=new_key()) for _ in range(3)]

        assert [reply.is_replay for reply in replies] == [False, True, True]
        assert service.scenarios.runs[tag] == 1

    def test_a_key_may_be_a_member_of_the_body(self, service: Service) -> None:
        """K3."""
        key = new_key()

        replies = [service.client().post("/body-key", {"tag": key, "client_token": key}) for _ in range(2)]
        missing = service.client().post("/body-key", {"tag": key})
        number = service.client().post("/body-key", {"tag": key, "client_token": 17})

        assert [reply.is_replay for reply in replies] == [False, True]
        assert (missing.status, missing.code) == (400, "key-missing")
        assert (number.status, number.code) == (400, "body-refused")
        assert service.scenarios.runs[key] == 1

    def test_strangers_need_a_key_that_nobody_can_guess(self, service: Service) -> None:
        """SEC02, SEC06."""
        key, stranger = new_key(), service.client(None)

        short = stranger.post("/guests", {"tag": key}, key="short")
        long = [stranger.post("/guests", {"tag": key}, key=key) for _ in range(2)]

        assert (short.status, short.code) == (400, "key-malformed")
        assert [reply.is_replay for reply in long] == [False, True]


def _is_problem(content_type: str | None) -> bool:
    return content_type == "application/problem+json"
