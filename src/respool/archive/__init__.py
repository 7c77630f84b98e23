"""The archive: a Delta table of all raw records, by hour of event time, each record once."""
