"""Folders on any filesystem: read, write, and hold them."""
