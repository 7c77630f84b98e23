"""What a pipeline is."""
