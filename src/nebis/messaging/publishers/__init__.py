"""Ways to publish a message, one module for each kind of receiver."""
