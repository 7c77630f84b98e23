"""Results in a table of PostgreSQL."""
