"""The scenarios: walk-throughs played live on a real broker and checked."""
