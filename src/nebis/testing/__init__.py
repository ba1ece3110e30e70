"""What Nebis is tested with, for its users too: a contract for stores, and a search of the state machine."""
