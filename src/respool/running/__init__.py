"""Live queries."""
