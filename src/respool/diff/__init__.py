"""What two runs wrote, compared: the rows only in one, the rows that differ."""
