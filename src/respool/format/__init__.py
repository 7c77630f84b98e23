"""The bytes that Spark writes into a checkpoint. Pure: bytes in, values out."""
