"""The pipelines of the website-visits systems, each built only from the parts of the library."""
