"""Where results are written, and what a sink does with replayed batches."""
