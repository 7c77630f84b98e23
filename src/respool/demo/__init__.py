"""The scenarios: walk-throughs that are played on a real broker and checked."""
