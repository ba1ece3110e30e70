"""Ways to receive messages, one module for each kind of broker."""
