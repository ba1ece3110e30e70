"""The payments API while nothing is killed: every route, on both stores, through the running demo."""

from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import pytest

from tests.demo.stage import Demo, Reply, payment, wait_until

DECLINED = "4000000000000002"


def invoice() -> str:
    return f"inv_{uuid4().hex[:12]}"


def code(reply: Reply) -> str:
    found: str = reply.json["type"].rpartition(":")[2]
    return found


def entries(demo: Demo, transaction: str, **options: Any) -> dict[str, int]:
    found = demo.get("/v1/ledger", **options)["entries"]
    return {entry["account"]: entry["amount_cents"] for entry in found if entry["transaction_id"] == transaction}


def test_a_payment_is_charged_booked_and_receipted_once(demo: Demo) -> None:
    bill, key = invoice(), str(uuid4())

    first, again = [demo.pay(bill, key) for _ in range(2)]

    told = first.json
    assert (first.status, again.status, again.is_replay) == (201, 201, True)
    assert first.body == again.body
    assert set(told) == {
        "payment_id", "charge_id", "invoice_id", "amount_cents", "currency", "status", "created_at",
    }  # fmt: skip
    assert [charge["charge_id"] for charge in demo.charges(bill)] == [told["charge_id"]]
    assert entries(demo, told["payment_id"]) == {"card_clearing": 4200, "sales": -4200}
    assert demo.get(f"/v1/payments/{told['payment_id']}").items() >= told.items()
    wait_until(lambda: receipts(demo, bill) == [told["payment_id"]], seconds=20)


def receipts(demo: Demo, bill: str, **options: Any) -> list[str]:
    found = demo.get("/v1/receipts", **options)["receipts"]
    assert all(set(receipt) == {"receipt_id", "payment_id", "invoice_id", "created_at"} for receipt in found)
    return [receipt["payment_id"] for receipt in found if receipt["invoice_id"] == bill]


def test_a_declined_card_is_declined_for_good(demo: Demo) -> None:
    bill, key = invoice(), str(uuid4())

    told = [demo.post("/v1/payments", payment(bill, card=DECLINED), key) for _ in range(2)]

    assert [(reply.status, code(reply), reply.is_replay) for reply in told] == [
        (402, "card_declined", False),
        (402, "card_declined", True),
    ]
    assert demo.charges(bill) == []
    assert len([row for row in demo.get("/requests", gateway=True)["requests"] if row["invoice_id"] == bill]) == 1


def test_a_gateway_that_does_not_answer_is_asked_again_under_the_same_key(demo: Demo) -> None:
    """F004: its reply was lost, or it was not there; the client is told to come back, and is charged once."""
    bill, key = invoice(), str(uuid4())
    demo.behave(fail_before_next=1)
    unavailable = demo.pay(bill, key)
    demo.behave(lose_reply_next=1)
    lost = demo.pay(bill, key)

    paid = demo.pay(bill, key)

    assert [(told.status, code(told)) for told in (unavailable, lost)] == [
        (503, "retryable"),
        (503, "effect-timed-out"),
    ]
    assert all("retry-after" in told.headers for told in (unavailable, lost))
    assert (paid.status, len(demo.charges(bill))) == (201, 1)
    assert (
        len(
            {
                row["idempotency_key"]
                for row in demo.get("/requests", gateway=True)["requests"]
                if row["invoice_id"] == bill
            }
        )
        == 1
    )


def test_another_amount_under_the_key_is_refused(demo: Demo) -> None:
    bill, key = invoice(), str(uuid4())
    demo.pay(bill, key)

    other = demo.pay(bill, key, cents=5200)

    assert (other.status, code(other)) == (422, "key-reused")
    assert [charge["amount_cents"] for charge in demo.charges(bill)] == [4200]


@pytest.mark.parametrize("token", [None, "demo-carol", ""])
def test_nobody_is_told_so_before_anything_else(demo: Demo, token: str | None) -> None:
    told = [
        demo.call("POST", "/v1/payments", {"nonsense": 1}, token=token),
        demo.call("GET", "/v1/ledger", token=token),
        demo.call("GET", "/v1/nowhere", token=token),
    ]

    assert [reply.status for reply in told] == [401, 401, 401]


def test_tenants_do_not_see_or_block_each_other(demo: Demo) -> None:
    bill, key = invoice(), str(uuid4())

    alices, bobs = demo.pay(bill, key), demo.pay(bill, key, token="demo-bob")

    assert (alices.status, bobs.status) == (201, 201)
    assert alices.json["payment_id"] != bobs.json["payment_id"]
    assert len(demo.charges(bill)) == 2
    assert demo.call("GET", f"/v1/payments/{alices.json['payment_id']}", token="demo-bob").status == 404
    assert entries(demo, alices.json["payment_id"], token="demo-bob") == {}
    refund = {"payment_id": alices.json["payment_id"], "amount_cents": 1}
    assert demo.post("/v1/refunds", refund, token="demo-bob").status == 404


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"amount_cents": 0}, 422),
        ({"amount_cents": "4200"}, 422),
        ({"currency": "XYZ"}, 422),
        ({"invoice_id": ""}, 422),
        ({"card": None}, 422),
    ],
)
def test_an_invalid_payment_leaves_the_key_usable(demo: Demo, change: dict[str, object], status: int) -> None:
    bill, key = invoice(), str(uuid4())

    refused = demo.post("/v1/payments", payment(bill) | change, key)

    assert refused.status == status
    assert demo.pay(bill, key).status == 201


def test_a_payment_needs_a_key(demo: Demo) -> None:
    told = demo.call("POST", "/v1/payments", payment(invoice()))

    assert (told.status, code(told)) == (400, "key-missing")


def test_of_six_parallel_refunds_that_fit_once_one_succeeds(demo: Demo) -> None:
    bill = invoice()
    paid = demo.pay(bill).json["payment_id"]
    keys = [str(uuid4()) for _ in range(6)]

    def refund(key: str) -> Reply:
        return demo.post("/v1/refunds", {"payment_id": paid, "amount_cents": 3000}, key)

    with ThreadPoolExecutor(6) as pool:
        told, again = list(pool.map(refund, keys)), list(pool.map(refund, keys))

    assert sorted(reply.status for reply in told) == [201, 409, 409, 409, 409, 409]
    assert {code(reply) for reply in told if reply.status == 409} == {"refund_exceeds_payment"}
    assert [reply.body for reply in again] == [reply.body for reply in told]
    moved = [row["amount_cents"] for row in demo.get("/refunds", gateway=True)["refunds"] if row["invoice_id"] == bill]
    assert moved == [3000]
    rest = demo.post("/v1/refunds", {"payment_id": paid, "amount_cents": 1200})
    assert rest.status == 201
    assert entries(demo, rest.json["refund_id"]) == {"card_clearing": -1200, "sales": 1200}


def test_a_refund_that_the_gateway_refuses_gives_its_reservation_back(demo: Demo) -> None:
    bill = invoice()
    paid = demo.pay(bill).json
    # Somebody refunded it at the gateway itself, of which our books know nothing.
    moved = {"charge_id": paid["charge_id"], "amount_cents": 4200}
    assert demo.post("/refunds", moved, gateway=True).status == 201

    told = demo.post("/v1/refunds", {"payment_id": paid["payment_id"], "amount_cents": 4200})

    assert (told.status, code(told)) == (409, "refund_exceeds_charge")
    assert demo.get(f"/v1/payments/{paid['payment_id']}")["refunded_cents"] == 0


def test_transfers_move_money_between_accounts_that_need_not_exist(demo: Demo) -> None:
    key, source, target = str(uuid4()), f"a-{uuid4()}", f"b-{uuid4()}"
    body = {"from_account": source, "to_account": target, "amount_cents": 700}

    with ThreadPoolExecutor(4) as pool:
        told = list(pool.map(lambda _: demo.post("/v1/transfers", body, key), range(4)))

    done = next(reply for reply in told if reply.status == 201)
    assert {reply.body for reply in told if reply.status == 201} == {done.body}
    assert entries(demo, done.json["transfer_id"]) == {source: -700, target: 700}
    only = demo.get(f"/v1/ledger?account={source}")["entries"]
    assert [entry["amount_cents"] for entry in only] == [-700]
    assert demo.post("/v1/transfers", body | {"to_account": source}).status == 422

    def balances() -> dict[str, int]:
        return {row["account"]: row["amount_cents"] for row in demo.get("/v1/balances")["balances"]}

    wait_until(lambda: balances().get(source) == -700 and balances().get(target) == 700, seconds=20)


def test_an_order_charges_reserves_and_ships(demo: Demo) -> None:
    bill, key = invoice(), str(uuid4())
    body = {"payment": payment(bill), "sku": "apple", "quantity": 3}

    first, again = [demo.post("/v1/orders", body, key) for _ in range(2)]

    assert (first.status, again.status, first.body == again.body) == (201, 201, True)
    assert len(demo.charges(bill)) == 1
    assert entries(demo, first.json["payment_id"]) == {"card_clearing": 4200, "sales": -4200}


@pytest.mark.parametrize(
    ("sku", "quantity", "reason"), [("out-of-stock", 1, "out_of_stock"), ("pear", 1001, "parcel_too_large")]
)
def test_an_order_that_is_rejected_after_the_charge_is_undone(demo: Demo, sku: str, quantity: int, reason: str) -> None:
    bill, key = invoice(), str(uuid4())
    body = {"payment": payment(bill), "sku": sku, "quantity": quantity}

    told = [demo.post("/v1/orders", body, key) for _ in range(2)]

    assert [(reply.status, code(reply)) for reply in told] == [(409, reason)] * 2
    refunds = [
        row["amount_cents"] for row in demo.get("/refunds", gateway=True)["refunds"] if row["invoice_id"] == bill
    ]
    assert (len(demo.charges(bill)), refunds) == (1, [4200])


def test_a_running_operation_can_be_looked_up_by_its_tenant_alone(demo: Demo) -> None:
    bill, key = invoice(), str(uuid4())
    demo.behave(delay_ms=1500)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(demo.pay, bill, key)
        wait_until(lambda: len(demo.charges(bill)) == 1, seconds=20)
        twin = demo.pay(bill, key)
        place = f"/v1/operations/{twin.json['operation_id']}"
        while_running = demo.get(place)["state"]
        paid = first.result()
    demo.behave(delay_ms=0)

    assert (twin.status, code(twin), twin.headers["location"]) == (409, "in-flight", place)
    assert "retry-after" in twin.headers
    assert (paid.status, while_running, demo.get(place)["state"]) == (201, "in_progress", "completed")
    assert demo.call("GET", place, token="demo-bob").status == 404


def test_every_transaction_of_the_ledger_sums_to_zero(demo: Demo) -> None:
    sums: dict[str, int] = defaultdict(int)
    for entry in demo.get("/v1/ledger")["entries"]:
        sums[entry["transaction_id"]] += entry["amount_cents"]

    assert sums
    assert set(sums.values()) == {0}
