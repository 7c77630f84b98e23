"""Savepoints: the position and state of a query under a name, to restore it or to start a second query from it."""
