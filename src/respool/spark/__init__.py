"""Spark sessions, the JVM, and everything that relies on private parts of Spark."""
