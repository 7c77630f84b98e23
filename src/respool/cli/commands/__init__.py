"""The commands: parse, call an operation, render."""
