"""What makes respool run on one machine with nothing installed: jars, Spark session, Kafka broker."""
