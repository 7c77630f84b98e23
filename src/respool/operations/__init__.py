"""What the commands do, as Python functions: they return values, and never print or ask."""
