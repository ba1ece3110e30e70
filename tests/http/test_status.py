import json
from uuid import uuid4

import pytest

from nebis import OperationUnknown
from nebis.core.envelope import seal
from nebis.http.exchange import Exchange, Storage, freeze
from nebis.http.status import operation_id_of, status_view
from tests.core.records import completed, running

MOMENT = 1_700_000_000_000_000


def test_a_completed_operation_tells_its_status_and_not_its_body() -> None:
    """R3."""
    body = seal(freeze(Exchange(status=201, body=b"secret"), Storage(limit_bytes=100)))
    done = completed(created_at=MOMENT, completed_at=MOMENT + 1_000, outcome=body)

    view = status_view(done, tenant=done.tenant)

    told = json.loads(view.body)
    assert told["state"] == "completed"
    assert told["outcome"] == {"kind": "succeeded", "status": 201}
    assert told["created_at"] == "2023-11-14T22:13:20.000Z"
    assert told["completed_at"] == "2023-11-14T22:13:20.001Z"
    assert told["retry_after"] is None
    assert b"secret" not in view.body


def test_an_outcome_that_did_not_come_over_http_has_no_status() -> None:
    done = completed(outcome=seal(b"{}"))

    assert json.loads(status_view(done, tenant=done.tenant).body)["outcome"] == {"kind": "succeeded", "status": None}


def test_a_running_operation_says_when_to_ask_again() -> None:
    view = status_view(running(), tenant=running().tenant)

    assert json.loads(view.body)["retry_after"] == int(dict(view.headers)["retry-after"]) >= 1


def test_another_tenants_operation_is_unknown() -> None:
    """I12, SEC07."""
    for found in (None, running()):
        with pytest.raises(OperationUnknown):
            status_view(found, tenant="somebody else")


def test_what_is_no_id_is_the_id_of_nothing() -> None:
    given = uuid4()

    assert operation_id_of(str(given)) == given
    assert operation_id_of("../etc") == operation_id_of("") != given
