"""Recovery as a process of its own, or inside another one: finishes what nobody owns and settles what is in doubt."""

from __future__ import annotations

from nebis.recovery import Deed, Report
from nebis.worker.blocking import Worker
from nebis.worker.eventloop import AsyncWorker

__all__ = ["AsyncWorker", "Deed", "Report", "Worker"]
