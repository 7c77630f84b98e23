"""The version of respool."""

__version__ = "0.1.0"
