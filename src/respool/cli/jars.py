"""`respool jars`: the jars that a Spark which respool did not start needs."""

from respool.cli.options import Home, Json, load
from respool.cli.render import out, out_json


def jars(home: Home = None, json: Json = False) -> None:
    """Print the jars that Spark needs, for: spark-submit --jars "$(respool jars)". Downloads them if need be."""
    from respool.local.jars import spark_jars

    found = [str(jar) for jar in spark_jars(load(home=home))]
    if json:
        out_json(found)
    else:
        out(",".join(found))
