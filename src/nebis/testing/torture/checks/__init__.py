"""The checks, by what they ask about."""
