"""What is wrong with the definition of a pipeline, as far as that can be decided without Spark and Kafka.

Each function yields a sentence for each problem, which names the field.
"""

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, get_args

from respool.kafka.topics import name_problem
from respool.pipeline.inputs import Input
from respool.pipeline.results import Events, Results, Sessions, Windows
from respool.sinks.protocol import Sink
from respool.sinks.several import all_sinks
from respool.text import did_you_mean

OutputMode = Literal["append", "update", "complete"]
IdleInputs = Literal["wait", "ignore"]
Columns = Callable[[], list[str] | None]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def pipeline_name_problem(name: str) -> str | None:
    """Return why a name cannot be a pipeline's; None when it can."""
    if isinstance(name, str) and _NAME.fullmatch(name):
        return None
    return f"Invalid pipeline name '{name}'. Use letters, digits, dots, dashes and underscores."


def transform_problems(pipeline: str, transform: Any, inputs: Mapping[str, Input]) -> Iterator[str]:
    """Yield why a transform cannot be called with events of the inputs; none are given for a single input."""
    if not callable(transform):
        yield f"The transform of the pipeline {pipeline} is not a function. Give it one from events to results."
        return
    if not inputs:
        return
    try:
        parameters = inspect.signature(transform).parameters.values()
    except (TypeError, ValueError):  # such as of a function in C
        return
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters):
        return
    names = [parameter.name for parameter in parameters]
    missing = [name for name in inputs if name not in names]
    required = [parameter.name for parameter in parameters if parameter.default is inspect.Parameter.empty]
    unknown = [name for name in required if name not in inputs]
    if missing or unknown:
        yield (
            f"The transform of the pipeline {pipeline} has the parameters {', '.join(names) or 'none'}; its "
            f"inputs are {', '.join(inputs)}. Give the transform a parameter of the name of each input."
        )


def sink_problems(pipeline: str, sink: Any, columns_of: Columns) -> Iterator[str]:
    """Yield what is wrong with a sink; `columns_of` returns the columns of results, if they are known."""
    if sink is None:
        yield f"The pipeline {pipeline} has no sink. Give it one, such as sink=KafkaSink(…) or sink=ConsoleSink()."
        return
    for each in all_sinks(sink):
        yield from _problems_of_sink(pipeline, each, columns_of)


def _problems_of_sink(pipeline: str, sink: Any, columns_of: Columns) -> Iterator[str]:
    if not isinstance(sink, Sink):
        yield (
            f"The pipeline {pipeline} writes to a {type(sink).__name__}, which is not a sink: it lacks one of the "
            "methods describe, replay_note, prepare and write. Use KafkaSink, DeltaSink, FileSink, JdbcSink, "
            "FunctionSink or ConsoleSink."
        )
        return
    topic = getattr(sink, "topic", None)
    if topic is not None and (problem := name_problem(topic)) is not None:
        yield f"The pipeline {pipeline} writes to the topic '{topic}', which {problem}"
    key: tuple[str, ...] = getattr(sink, "key", ())
    if isinstance(key, str) or not all(isinstance(name, str) and name for name in key):
        yield (
            f"The key of the sink of {pipeline} is {key!r}; expected a tuple of names of columns, such as "
            "('window', 'shop')."
        )
        return
    if len(set(key)) < len(key):
        yield f"The key of the sink of {pipeline} has a column twice: {', '.join(key)}. Leave one of them out."
    withdrawn = getattr(sink, "withdrawn", None)
    if withdrawn in key:
        yield (
            f"The key of the sink of {pipeline} has the column {withdrawn}, which is not sent: it says that a "
            "result is withdrawn. Leave it out of the key."
        )
    columns = columns_of() if key else None
    if columns is not None:
        present = {name.lower() for name in columns}
        for name in (*key, *([withdrawn] if withdrawn else ())):
            if name.lower() not in present:
                yield (
                    f"The key of the sink of {pipeline} has the column '{name}', which its results do not have "
                    f"({', '.join(columns)}).{did_you_mean(name, columns)} Correct the key."
                )


def mode_problems(
    pipeline: str, mode: str, stateless: bool, streams: Mapping[str, Input], results: Results | None
) -> Iterator[str]:
    """Yield why an output mode, a state and watermarks contradict each other."""
    modes = list(get_args(OutputMode))
    if mode not in modes:
        yield (
            f"The output mode of the pipeline {pipeline} is '{mode}'.{did_you_mean(str(mode), modes)} "
            "Expected append, update or complete."
        )
    if mode == "complete" and stateless:
        yield (
            f"The pipeline {pipeline} is stateless, and its output mode is 'complete', which needs an "
            "aggregation. Use append."
        )
    if stateless and len(streams) > 1:
        yield (
            f"The pipeline {pipeline} is stateless and has several inputs, which only a state can join. Leave "
            "stateless out."
        )
    has_watermark = any(each.watermark is not None for each in streams.values())
    if stateless and has_watermark:
        yield f"The pipeline {pipeline} is stateless: a watermark has no effect. Leave it out."
    if mode == "append" and not has_watermark and isinstance(results, Windows | Sessions):
        yield (
            f"The pipeline {pipeline} has {results.describe()} in the output mode 'append' and no "
            "watermark: no result would ever be complete. Give it a watermark, or use the output mode 'update'."
        )


def idle_problems(pipeline: str, idle: str, streams: Mapping[str, Input]) -> Iterator[str]:
    """Yield why a policy for idle inputs has no effect or is unknown."""
    policies = list(get_args(IdleInputs))
    if idle not in policies:
        yield (
            f"idle_inputs of the pipeline {pipeline} is '{idle}'.{did_you_mean(str(idle), policies)} Expected wait or "
            "ignore."
        )
    elif idle == "ignore" and sum(each.watermark is not None for each in streams.values()) < 2:
        yield (
            f"idle_inputs of the pipeline {pipeline} is 'ignore', which needs at least two inputs with watermarks. "
            "Leave it out."
        )


def results_problems(
    pipeline: str,
    results: Results | None,
    stateless: bool,
    streams: Mapping[str, Input],
    fields_of: Columns,
) -> Iterator[str]:
    """Yield why results cannot relate to event time as declared; `fields_of` returns the fields of events."""
    if not isinstance(results, Windows | Sessions | Events):
        return
    has_time = any(each.time_column is not None for each in streams.values())
    if not has_time or (stateless and not isinstance(results, Events)):
        kind = "is stateless" if has_time else "has no event time"
        yield (
            f"The pipeline {pipeline} {kind}: its results cannot be {results.describe()}. Leave `results` out, or give "
            f"it {'a state' if has_time else 'a decoder'}."
        )
    fields = fields_of() if isinstance(results, Sessions) else None
    if isinstance(results, Sessions) and fields is not None:
        for name in results.key:
            if name not in fields:
                yield (
                    f"The sessions of {pipeline} are by the column '{name}', which is not a field of its events"
                    f" ({', '.join(fields)}).{did_you_mean(name, fields)} Correct the key of Sessions."
                )


def setting_problems(pipeline: str, most: Any, spark: Mapping[Any, Any]) -> Iterator[str]:
    """Yield what is wrong with the number of records of a batch, and with Spark's settings."""
    if most is not None and (isinstance(most, bool) or not isinstance(most, int) or most < 1):
        yield f"max_offsets_per_trigger of the pipeline {pipeline} is {most!r}; expected 1 or more. Correct it."
    for name, value in spark.items():
        if not isinstance(name, str) or not isinstance(value, str):
            yield (
                f"spark of the pipeline {pipeline} has {name!r}: {value!r}; expected names and values as text. "
                "Put it in quotes."
            )
