"""The steps of a change, and the only code that applies them."""
