"""Compare the outputs of two runs: the rows that only one has, and the rows that differ."""
