"""The slow shop in Flask, for gunicorn in processes of its own; its effects are lines in a file."""

import os
import time
from typing import Any

from flask import Flask, request

from nebis import Nebis, Opaque, seconds
from nebis.integrations.flask import idempotent
from tests.integrations.slow_shop import LEASE_SECONDS, STORE, WORK_SECONDS, charge

nebis = Nebis(os.environ.get(STORE, "memory://"))
app = Flask(__name__)


@app.post("/payments")
@idempotent(
    nebis,
    "pay",
    effects=Opaque,
    tenant=lambda: "acct-1",
    lease=seconds(LEASE_SECONDS),
    renewal=seconds(1),
    effect_timeout=seconds(2),
)
def pay() -> tuple[dict[str, Any], int]:
    tag = request.get_json()["tag"]
    time.sleep(WORK_SECONDS)  # Work that takes its time, so that something can happen in the middle of it.
    charge(tag)
    return {"paid": tag, "by": os.getpid()}, 201
