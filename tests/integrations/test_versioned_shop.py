"""Conditional updates, natural keys and the page of the contract, alike in every framework."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from nebis.testing.http_conformance import Client
from nebis.testing.http_conformance.client import Reply, new_key
from tests.integrations.versioned_shop import SERVERS, serving


def change(client: Client, condition: str | None, key: str | None = None) -> Reply:
    headers = () if condition is None else (("If-Match", condition),)
    return client.post("/thing", {}, key=key or new_key(), headers=headers, method="PATCH")


def told(reply: Reply) -> tuple[int, str]:
    """Return the status and the code of a problem, whose type leads to the page of the contract."""
    assert reply.header("content-type") == "application/problem+json"
    page, _, code = str(reply.json()["type"]).partition("#")
    assert page == "/idempotency"
    return reply.status, code


@pytest.mark.parametrize("framework", SERVERS)
def test_editors_payers_and_readers(framework: str) -> None:
    with serving(framework) as client:
        _two_editors_with_one_tag_have_one_winner(client)
        _a_retry_of_a_change_is_answered_from_its_record(client)
        _a_refused_change_leaves_its_key_free(client)
        _fresh_keys_on_one_reference_get_the_original_answer(client)
        _the_page_states_the_contract(client)


def _two_editors_with_one_tag_have_one_winner(client: Client) -> None:
    with ThreadPoolExecutor(2) as editors:
        replies = list(editors.map(lambda _: change(client, '"1"'), range(2)))

    assert sorted(reply.status for reply in replies) == [200, 412]
    [lost] = [reply for reply in replies if reply.status == 412]
    assert told(lost) == (412, "precondition-failed")


def _a_retry_of_a_change_is_answered_from_its_record(client: Client) -> None:
    key = new_key()
    first, again = [change(client, '"0", "2"', key) for _ in range(2)]

    assert (first.status, first.json(), first.is_replay) == (200, {"version": 3}, False)
    assert (again.status, again.body, again.is_replay) == (200, first.body, True)


def _a_refused_change_leaves_its_key_free(client: Client) -> None:
    key = new_key()

    assert told(change(client, '"2"', key)) == (412, "precondition-failed")
    assert told(change(client, 'W/"3"', key)) == (412, "precondition-failed")
    assert told(change(client, None, key)) == (428, "precondition-required")
    assert told(change(client, "3", key)) == (400, "precondition-malformed")
    assert change(client, "*", key).json() == {"version": 4}


def _fresh_keys_on_one_reference_get_the_original_answer(client: Client) -> None:
    command = {"reference": "order-1", "amount": 5}
    first = client.post("/payments", command, key=new_key())
    key = new_key()
    second, again = [client.post("/payments", command, key=key) for _ in range(2)]
    other = client.post("/payments", {**command, "amount": 6}, key=new_key())

    assert first.status == 201
    assert (second.status, second.body, second.header("content-type")) == (
        201,
        first.body,
        first.header("content-type"),
    )
    assert (again.body, again.is_replay) == (first.body, True)
    assert told(other) == (422, "natural-key-reused")


def _the_page_states_the_contract(client: Client) -> None:
    html = client.get("/idempotency")
    data: Any = client.post("/idempotency", body=b"", method="GET", headers=(("Accept", "application/json"),))

    assert (html.status, html.header("content-type")) == (200, "text/html; charset=utf-8")
    assert "retry the same key after Retry-After, do not show an error" in html.body.decode()
    assert 'id="precondition-failed"' in html.body.decode()
    assert data.header("content-type") == "application/json"
    operations = {one["path"].rstrip("/"): one for one in data.json()["operations"]}
    paying = operations["/payments"]
    assert paying["method"] in ("POST", "ANY")
    assert (paying["operation"], paying["header"], paying["required"]) == ("pay", "Idempotency-Key", True)
    assert paying["window_seconds"] == 86_400
    assert paying["answers"]["409"] == ["in-flight", "outcome-unknown"]
