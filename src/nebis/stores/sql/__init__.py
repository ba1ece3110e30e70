"""Stores that speak SQL: one set of verbs, a dialect of `.sql` files each."""
