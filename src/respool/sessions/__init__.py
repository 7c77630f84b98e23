"""The open sessions of many visits at once: a table of them, its log in Spark's state, and events packed for it."""
