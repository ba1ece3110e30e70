"""Deterministic simulation: the real flows on a seeded scheduler and a virtual clock, with everything going wrong."""

from nebis.testing.simulate.faults import Fault, Trouble, minimised
from nebis.testing.simulate.promises import Rule, Violation
from nebis.testing.simulate.scenario import Run, simulate

__all__ = ["Fault", "Rule", "Run", "Trouble", "Violation", "minimised", "simulate"]
