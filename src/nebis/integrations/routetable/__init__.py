"""Reads the routes of an application from its framework's own table, whatever is wrapped around it."""

from nebis.integrations.routetable.announcing import announce, announced
from nebis.integrations.routetable.application import report_of

__all__ = ["announce", "announced", "report_of"]
