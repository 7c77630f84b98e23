"""A query's state as a table."""
