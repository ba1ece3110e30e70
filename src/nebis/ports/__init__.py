"""What flows ask of the world, as interfaces. Stores and runtimes fulfil them; neither knows the other."""
