"""Sessions of visits: their rules, a table of open sessions, its log in Spark's state, and packed events."""
