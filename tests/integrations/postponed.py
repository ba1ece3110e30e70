"""An endpoint whose annotations nobody has evaluated yet."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import BaseModel

from nebis import AsyncAttempt, AsyncNebis, Opaque
from nebis.integrations.fastapi import idempotent


class Postponed(BaseModel):
    tag: str


def tenant() -> str:
    return "acct-1"


def declare(nebis: AsyncNebis, router: APIRouter) -> None:
    @router.post("/things")
    @idempotent(nebis, "make", effects=Opaque, tenant=tenant)
    async def make(thing: Postponed, attempt: AsyncAttempt) -> Postponed:
        return thing
