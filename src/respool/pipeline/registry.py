"""Find a pipeline by its name: a built-in, or `module:object`."""

import importlib
import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path

from respool.errors import PipelineError, RespoolError, SettingsError
from respool.pipeline.definition import Pipeline
from respool.pipeline.inputs import built_in
from respool.pipeline.parameters import Parameter, parameters_of
from respool.text import did_you_mean

# The pipelines that come with respool. Each name leads to a function whose keyword arguments are the parameters.
BUILT_IN: Mapping[str, str] = {
    "visit-counts": "respool.visits.counts:visit_counts",
    "visits-archive": "respool.visits.counts:visits_archive",
    "browser-visits-archive": "respool.visits.counts:browser_visits_archive",
    "visit-windows": "respool.visits.counts:visit_windows",
    "sessions": "respool.visits.sessions:sessions",
    "browser-stats-stateless": "respool.visits.counts:browser_stats_stateless",
    "browser-stats-stateful": "respool.visits.counts:browser_stats_stateful",
    "micro-batch": "respool.visits.counts:micro_batch",
}


def find_pipeline(name: str, values: Mapping[str, object] | None = None) -> Pipeline:
    """Return a pipeline by its name, or by `module:object` from a module that can be imported.

    Args:
        name: One of BUILT_IN, or `module:object`: a Pipeline, or a function that makes one.
        values: Parameters that differ from their defaults, as text or as values.
    """
    target = _load(name)
    values = values or {}
    if isinstance(target, Pipeline):
        if values:
            raise PipelineError(
                f"{name} is a Pipeline without parameters; found {', '.join(values)}. To have some, make it a function "
                "with keyword arguments that returns a Pipeline."
            )
        return target
    known = {parameter.name: parameter for parameter in parameters(name)}
    for key in values:
        if key not in known:
            raise PipelineError(
                f"The pipeline {name} has no parameter '{key}'.{did_you_mean(key, list(known))} "
                f"Its parameters are: {', '.join(known) or 'none'}."
            )
    for parameter in known.values():
        if parameter.is_required and parameter.name not in values:
            raise PipelineError(
                f"The pipeline {name} needs a value for its parameter '{parameter.name}'. Set it with --set "
                f'{parameter.name}=VALUE, or in [pipelines."{name}"] of respool.toml.'
            )
    with built_in() if name in BUILT_IN else nullcontext():
        made = _call(target, {key: known[key].read(value) for key, value in values.items()}, name)
    if not isinstance(made, Pipeline):
        raise PipelineError(
            f"{name} is a {type(made).__name__}; expected a respool.Pipeline, or a function that makes one."
        )
    return made


def section_values(names: Sequence[str], sections: Mapping[str, Mapping[str, object]]) -> dict[str, dict[str, object]]:
    """Return the parameters that respool.toml sets for each pipeline.

    The section of a pipeline is `[pipelines.NAME]` with its name in a command, such as "shop:orders", or with the name
    that the Pipeline has itself.

    Args:
        names: The pipelines of a command.
        sections: The tables under `pipelines` in respool.toml.

    Raises:
        SettingsError: A section is not of any pipeline.
    """
    values: dict[str, dict[str, object]] = {}
    used = set(names)
    for name in names:
        values[name] = dict(sections.get(name, {}))
        own = _own_name(name, values[name]) if set(sections) - used - set(BUILT_IN) else name
        if own != name and own not in BUILT_IN and own in sections:
            values[name] = {**sections[own], **values[name]}
            used.add(own)
    for section in sections:
        if section not in used and section not in BUILT_IN and ":" not in section:
            raise SettingsError(
                f"[pipelines.{section}] in respool.toml is not of a pipeline."
                f"{did_you_mean(section, [*BUILT_IN, *names])} The pipelines are: {', '.join(BUILT_IN)}. For a "
                "pipeline of your own write its module and object: "
                f'[pipelines."my_app.pipelines:{section}"].'
            )
    return values


def _own_name(name: str, values: Mapping[str, object]) -> str:
    """Return the name that a pipeline has itself; as far as it can be made without more parameters."""
    try:
        target = _load(name)
        return target.name if isinstance(target, Pipeline) else find_pipeline(name, values).name
    except RespoolError:  # reported when it is made with all its parameters
        return name.rpartition(":")[2]


def parameters(name: str) -> list[Parameter]:
    """Return the parameters of a pipeline: the keyword arguments of the function that makes it."""
    target = _load(name)
    return parameters_of(target, name) if callable(target) and not isinstance(target, Pipeline) else []


def _load(name: str) -> object:
    target = BUILT_IN.get(name, name)
    module_name, _, attribute = target.partition(":")
    if not (module_name and attribute):
        known = ", ".join(BUILT_IN)
        raise PipelineError(
            f"There is no pipeline '{name}'.{did_you_mean(name, list(BUILT_IN))} The pipelines are: {known}. "
            "One of your own is named module:object, such as my_app.pipelines:orders."
        )
    module = load_module(module_name, name)
    value: object = getattr(module, attribute, None)
    if value is None:
        raise PipelineError(f"The module {module_name} has no '{attribute}'. Check the name behind the colon.")
    return value


def _call(make: object, values: Mapping[str, object], name: str) -> object:
    if not callable(make):
        return make
    try:
        return make(**values)
    except RespoolError:
        raise
    except Exception as error:
        raise PipelineError(f"{name}() does not make a pipeline: {type(error).__name__}: {error}") from error


def load_file(file: Path, name: str) -> object:
    """Return the module of a Python file; `name` is how the user named it."""
    if not file.is_file():
        raise PipelineError(
            f"The file {file} does not exist. Name a file of Python and a function, such as my_job.py:build."
        )
    folder = str(file.parent.absolute())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    return load_module(file.stem, name)


def load_module(module_name: str, name: str) -> object:
    """Return a module that can be imported; `name` is what the user named in it."""
    # As `python -m` does: a module in the working folder can be named. Python workers get the same path from Spark.
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and module_name.startswith(error.name):
            raise PipelineError(
                f"The module {module_name} of {name} cannot be found. Run respool in its folder, or install it."
            ) from error
        raise PipelineError(f"The module {module_name} needs {error.name}, which is not installed.") from error
    except PipelineError:
        raise
    except (Exception, SystemExit) as error:
        raise PipelineError(f"The module {module_name} cannot be imported: {type(error).__name__}: {error}") from error
