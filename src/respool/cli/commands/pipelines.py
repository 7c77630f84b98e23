"""`respool pipelines`: the pipelines that can be run."""

from typing import Annotated, Any

import typer

from respool.cli.options import Home, Json, Storage, load
from respool.cli.render.output import out_json, print_result, table
from respool.settings import Settings


def pipelines(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="Show this pipeline with its parameters; module:object for yours."),
    ] = None,
    storage: Storage = None,
    home: Home = None,
    json: Json = False,
) -> None:
    """List the pipelines: what each reads, does and writes; or show one, with its parameters."""
    from respool.pipeline import registry

    settings = load(storage=storage, home=home)
    names = [name] if name is not None else list(registry.BUILT_IN)
    values = registry.section_values(names, settings.pipelines)
    if name is None:
        rows = [_summary(pipeline, values[pipeline], settings) for pipeline in names]
        if json:
            out_json(rows)
        else:
            table(rows, ("pipeline", "reads", "does", "writes", "has run"), "There are no pipelines.")
        return
    summary = _summary(name, values[name], settings)
    parameters = _parameters(name, values[name])
    if json:
        out_json({**summary, "parameters": parameters})
        return
    for key, value in summary.items():
        print_result(f"{key + ':':<12}{'yes' if value is True else 'no' if value is False else value}")
    print_result("")
    table(parameters, ("parameter", "value", "default"), "It has no parameters.")


def _summary(name: str, values: dict[str, object], settings: Settings) -> dict[str, Any]:
    from respool.pipeline import registry
    from respool.storage.open import new_writer

    pipeline = registry.find_pipeline(name, values)
    checkpoint = settings.checkpoint_of(pipeline.name)
    has_run = bool(new_writer(checkpoint).names("offsets"))
    return {**pipeline.describe(), "has run": has_run, "checkpoint": checkpoint}


def _parameters(name: str, values: dict[str, object]) -> list[dict[str, Any]]:
    from respool.pipeline import registry

    return [
        {"parameter": item.name, "value": values.get(item.name, item.default), "default": item.default}
        for item in registry.parameters(name)
    ]
