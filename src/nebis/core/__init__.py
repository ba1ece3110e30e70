"""The pure heart: what a record is and what any event does to it. No I/O, no clock, no randomness."""
