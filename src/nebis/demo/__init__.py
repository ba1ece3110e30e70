"""One protected endpoint to play with: `make demo`."""
