"""Kafka clients, and Kafka as a source of Spark."""
