"""Names and texts as Spark's SQL writes them.

A column said in SQL reaches the JVM in one call; one made by Python takes a call for each of its parts.
"""


def quoted(name: str) -> str:
    """Return a name of a column, whatever signs are in it."""
    return "`" + name.replace("`", "``") + "`"


def literal(text: str) -> str:
    """Return a text as a literal."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
