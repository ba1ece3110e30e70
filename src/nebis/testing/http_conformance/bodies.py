"""The command: read whole, compared by meaning, refused where two readers could understand it differently."""

from __future__ import annotations

import json
import socket

import pytest

from nebis.testing.http_conformance.application import COMMAND_LIMIT_BYTES
from nebis.testing.http_conformance.client import Client, Reply, new_key, read
from nebis.testing.http_conformance.service import Service

_TRAPS = {
    "a name twice": b'{"tag":"T","amount":1,"amount":100}',
    "NaN": b'{"tag":"T","amount":NaN}',
    "Infinity": b'{"tag":"T","amount":-Infinity}',
    "beyond 2^53": b'{"tag":"T","amount":9007199254740993}',
    "five thousand digits": b'{"tag":"T","amount":1' + b"0" * 5000 + b"}",
    "too large for a double": b'{"tag":"T","amount":1e400}',
    "half of a surrogate pair": b'{"tag":"T","note":"\\ud800"}',
    "two hundred levels": b'{"tag":"T","deep":' + b"[" * 200 + b"]" * 200 + b"}",
    "a deep hole": b"[" * 30_000,
    "not UTF-8": b'{"tag":"T","note":"\xff"}',
    "byte order mark": b'\xef\xbb\xbf{"tag":"T"}',
    "cut off": b'{"tag":"T"',
    "two documents": b'{"tag":"T"}{"tag":"T"}',
    "single quotes": b"{'tag':'T'}",
    "a comment": b'{"tag":"T"}//',
}


class TestBodies:
    @pytest.mark.parametrize("trap", _TRAPS)
    def test_ambiguous_json_is_refused_and_binds_nothing(self, service: Service, trap: str) -> None:
        """F097-F100, SEC19."""
        key = new_key()

        refused = service.client().post("/local", body=_TRAPS[trap].replace(b"T", key.encode()), key=key)
        corrected = service.client().post("/local", {"tag": key}, key=key)

        assert refused.status in (400, 422), refused
        assert service.scenarios.runs[key] == 1
        assert (corrected.status, corrected.is_replay) == (201, False)

    def test_order_white_space_and_the_spelling_of_numbers_do_not_count(self, service: Service) -> None:
        """P8."""
        key = new_key()
        spellings = [
            f'{{"tag":"{key}","echo":1,"list":[1,2]}}',
            f'{{ "list" : [ 1.0, 2e0 ],\n "echo": 1.0, "tag": "{key}" }}',
            f'{{"tag":"{key}","echo":1e0,"list":[1,2]}}',
        ]

        replies = [service.client().post("/local", body=text.encode(), key=key) for text in spellings]

        assert [reply.is_replay for reply in replies] == [False, True, True]
        assert len({reply.body for reply in replies}) == 1

    def test_the_query_counts(self, service: Service) -> None:
        key = new_key()
        service.client().post("/local", {"tag": key}, key=key, query="?amount=1")

        same = service.client().post("/local", {"tag": key}, key=key, query="?amount=1")
        other = service.client().post("/local", {"tag": key}, key=key, query="?amount=2")

        assert same.is_replay
        assert (other.status, other.code) == (422, "key-reused")

    def test_a_header_counts_only_where_the_route_says_so(self, service: Service) -> None:
        """F5."""
        kept, key = new_key(), new_key()
        wanted = [[("Accept", "application/json")], [("Accept", "text/csv")]]

        ignored = [service.client().post("/local", {"tag": kept}, key=kept, headers=accept) for accept in wanted]
        counted = [service.client().post("/varying", {"tag": key}, key=key, headers=accept) for accept in wanted]

        assert [reply.status for reply in ignored] == [201, 201]
        assert [reply.status for reply in counted] == [201, 422]

    @pytest.mark.parametrize("body", [b"17", b'"text"', b"null", b"[1,2]"], ids=ascii)
    def test_a_body_that_is_no_object_is_a_command_like_any_other(self, service: Service, body: bytes) -> None:
        key = new_key()

        replies = [service.client().post("/local", body=body, key=key) for _ in range(2)]
        other = service.client().post("/local", body=b'["another"]', key=key)

        assert [reply.is_replay for reply in replies] == [False, True], replies
        assert (other.status, other.code) == (422, "key-reused")

    def test_an_empty_body_is_a_command_like_any_other(self, service: Service) -> None:
        """Where a framework wants a body it may refuse to be without; nothing is bound then."""
        key = new_key()

        first, again = [service.client().post("/local", body=b"", key=key, content_type="") for _ in range(2)]
        other = service.client().post("/local", {"tag": key}, key=key)

        if first.status < 400:
            assert (again.body, again.is_replay) == (first.body, True)
            assert (other.status, other.code) == (422, "key-reused")
        else:
            assert (first.status, again.status, other.status) == (again.status, first.status, 201)

    def test_a_body_above_its_cap_is_refused_before_anything_is_claimed(self, service: Service) -> None:
        """F079, SEC17."""
        key = new_key()
        large = {"tag": key, "echo": "x" * COMMAND_LIMIT_BYTES}

        refused = service.client().post("/local", large, key=key)
        smaller = service.client().post("/local", {"tag": key}, key=key)

        assert (refused.status, refused.code) == (413, "body-too-large")
        assert (smaller.status, smaller.is_replay) == (201, False)
        assert service.scenarios.runs[key] == 1

    def test_a_body_without_a_length_is_cut_at_its_cap(self, service: Service) -> None:
        """F079."""
        key, client = new_key(), service.client()
        chunk = b"2000\r\n" + b" " * 0x2000 + b"\r\n"
        with client.connect() as connection:
            connection.sendall(client.request("POST", "/local", b"", key=key, is_chunked=True))
            try:
                for _ in range(2 * COMMAND_LIMIT_BYTES // 0x2000):
                    connection.sendall(chunk)
                connection.sendall(b"0\r\n\r\n")
            except OSError:
                pass  # The server may stop reading as soon as it has seen enough.
            reply = read(connection)

        assert (reply.status, reply.code) == (413, "body-too-large")

    @pytest.mark.parametrize("is_chunked", [False, True], ids=["length", "chunked"])
    def test_a_truncated_body_binds_nothing(self, service: Service, is_chunked: bool) -> None:  # noqa: FBT001 - a parameter of a test.
        """F081, F080."""
        key, client = new_key(), service.client()
        whole = json.dumps({"tag": key}).encode()
        part = b"400\r\n" + whole if is_chunked else b""
        with client.connect() as connection:
            head = client.request("POST", "/local", b"" if is_chunked else whole, key=key, is_chunked=is_chunked)
            connection.sendall(head + part if is_chunked else head[:-5])
            connection.shutdown(socket.SHUT_WR)
            _drained(connection)

        reply = client.post("/local", {"tag": key, "echo": "another command"}, key=key)

        assert (reply.status, reply.is_replay) == (201, False)
        assert service.scenarios.runs[key] == 1

    def test_a_body_of_another_type_counts_too(self, service: Service) -> None:
        """F2. Where a framework wants JSON it may refuse the type; nothing is bound then."""
        key = new_key()

        first = self._plain(service.client(), b"1", key)
        again = self._plain(service.client(), b"1", key)
        other = self._plain(service.client(), b"2", key)

        if first.status < 400:
            assert again.is_replay
            assert (other.status, other.code) == (422, "key-reused")
        else:
            assert [first.status, again.status, other.status] == [first.status] * 3

    def test_json_under_another_name_is_read_as_strictly(self, service: Service) -> None:
        """F097: an endpoint that gets the last of two values must not have been reached."""
        key = new_key()

        reply = self._plain(service.client(), f'{{"tag":"{key}","amount":1,"amount":100}}'.encode(), key)

        assert reply.status >= 400 or service.scenarios.runs[key] == 0

    @staticmethod
    def _plain(client: Client, body: bytes, key: str) -> Reply:
        return client.post("/local", body=body, key=key, content_type="text/plain")


def _drained(connection: socket.socket) -> None:
    """Read until the server hangs up, so that it is known to have seen the end."""
    try:
        while connection.recv(4096):
            pass
    except OSError:
        pass
