"""OpenAPI documents of Django REST framework: what a protected handler adds to its own operation.

    REST_FRAMEWORK = {"DEFAULT_SCHEMA_CLASS": "nebis.integrations.drf_schema.IdempotencySchema"}

Another schema class, such as that of drf-spectacular, takes the mixin in front of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nebis.extras import needed
from nebis.integrations.openapi import merge
from nebis.integrations.protection import SAFE_METHODS, Admission
from nebis.integrations.report import mark_of

with needed("drf"):
    from rest_framework.schemas.openapi import AutoSchema

    from nebis.integrations.routetable.django import WRAPPED_BY_DRF, enclosed

__all__ = ["IdempotencySchema", "IdempotencySchemaMixin"]


class IdempotencySchemaMixin:
    """Adds header, terms and problems to the operation of a protected handler; others stay as they are."""

    if TYPE_CHECKING:
        view: Any

    def get_operation(self, *arguments: Any, **named: Any) -> Any:
        """Describe one method of one view."""
        operation: Any = super().get_operation(*arguments, **named)  # type: ignore[misc]  # Of the class beside it.
        method = str(getattr(self, "method", None) or arguments[-1])
        admission = self._admission(method)
        if operation is not None and admission is not None and method.upper() not in SAFE_METHODS:
            merge(operation, admission)
        return operation

    def _admission(self, method: str) -> Admission | None:
        name = getattr(self.view, "action", None) or method.lower()
        handler = getattr(self.view, name, None)
        mark = mark_of(handler) or mark_of(enclosed(handler, WRAPPED_BY_DRF))
        return mark if isinstance(mark, Admission) else None


class IdempotencySchema(IdempotencySchemaMixin, AutoSchema):  # type: ignore[misc]  # It ships no types.
    """REST framework's own documents, with the terms of protected handlers."""
