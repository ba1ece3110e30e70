"""The work that every system protects: it takes no time, so that what is measured is the protection."""

import asyncio
import json
import time
from typing import Any

COMMAND: dict[str, Any] = {"amount": 4200, "currency": "EUR", "card": "4242", "reference": "order-1138"}
ANSWER: dict[str, Any] = {
    "payment_id": "8e03978e-40d5-43e8-bc93-6894a57f9324",
    "amount": 4200,
    "currency": "EUR",
    "status": "succeeded",
    "note": "n" * 176,
}
ANSWER_BYTES = json.dumps(ANSWER).encode()
"""300 bytes of JSON."""


class Work:
    """Counts how often it is run; it pauses only while somebody checks what becomes of twins."""

    def __init__(self) -> None:
        self.executions = 0
        self.pause_seconds = 0.0
        self.started_at = 0.0
        """When the last run began: what came before was the claim, what came after the completion."""

    async def run(self) -> dict[str, Any]:
        self._begin()
        if self.pause_seconds:
            await asyncio.sleep(self.pause_seconds)
        return ANSWER

    def run_blocking(self) -> dict[str, Any]:
        self._begin()
        if self.pause_seconds:
            time.sleep(self.pause_seconds)
        return ANSWER

    def _begin(self) -> None:
        self.executions += 1
        self.started_at = time.perf_counter()
