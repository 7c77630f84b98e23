"""Compute a span of event time again from the archive, publish it, and compare it with what was published."""
