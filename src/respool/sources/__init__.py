"""Where a pipeline reads: Kafka, Delta, files, generated rows, any source of Spark."""
