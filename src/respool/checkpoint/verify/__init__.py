"""Whether a checkpoint has all that a restart and a rewind rely on."""
