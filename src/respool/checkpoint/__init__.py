"""A streaming query's checkpoint folder."""
