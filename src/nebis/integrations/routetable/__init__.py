"""Reads the routes of an application from its framework's own table, whatever is wrapped around it."""

from nebis.integrations.routetable.announcing import TOLD, announce, announce_inside, announced, is_told
from nebis.integrations.routetable.application import report_of

__all__ = ["TOLD", "announce", "announce_inside", "announced", "is_told", "report_of"]
