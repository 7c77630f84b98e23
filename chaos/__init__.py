"""Faults injected into running pipelines, and a check that nothing was lost, duplicated or left behind."""
