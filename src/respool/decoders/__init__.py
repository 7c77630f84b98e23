"""Records → events."""
