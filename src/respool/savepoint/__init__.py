"""Savepoints: a moment of a query, kept under a name; to go back to it, or to start a second query from it."""
