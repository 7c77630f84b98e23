"""`respool pipelines`: what there is to run."""

from respool.cli.options import Json
from respool.cli.render import out_json, table


def pipelines(json: Json = False) -> None:
    """List the pipelines: what each reads, does and writes."""
    from respool import pipeline

    rows = [pipeline.find(name).describe() for name in pipeline.BUILT_IN]
    if json:
        out_json(rows)
    else:
        table(rows, ("pipeline", "reads", "does", "writes"), "There are no pipelines.")
