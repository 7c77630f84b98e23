"""`respool pipelines`: what there is to run."""

from respool.cli.options import Home, Json, load
from respool.cli.render import out_json, table


def pipelines(home: Home = None, json: Json = False) -> None:
    """List the pipelines: what each reads, does and writes, and whether it has run in this home."""
    from respool import pipeline

    settings = load(home=home)
    rows = []
    for name in pipeline.BUILT_IN:
        checkpoint = settings.checkpoints / name
        has_run = (checkpoint / "offsets").is_dir()
        rows.append({**pipeline.find(name).describe(), "has run": has_run, "checkpoint": str(checkpoint)})
    if json:
        out_json(rows)
    else:
        table(rows, ("pipeline", "reads", "does", "writes", "has run"), "There are no pipelines.")
