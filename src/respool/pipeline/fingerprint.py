"""The code and settings of a pipeline when it ran, to be compared with a later version.

Secrets are never in it: a setting whose name or value looks like a secret is replaced by its digest.
"""

import re
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from typing import Any

from respool.code_digest import collect_code, digest
from respool.errors import CheckpointError, SettingsError
from respool.identity import Identity, canonical_json, canonical_text, results_from_text
from respool.pipeline.definition import Pipeline
from respool.pipeline.inputs import Input
from respool.pipeline.job import JobPipeline
from respool.pipeline.results import text_of
from respool.sinks.console import FunctionSink
from respool.sinks.protocol import Sink
from respool.sinks.several import all_sinks
from respool.sources.kafka import KafkaSource
from respool.spark.sql import DdlError, canonical_ddl
from respool.times import duration_text, parse_duration

_SECRET_OPTION = re.compile(r"password|secret|token|key|sasl|credential", re.IGNORECASE)
_SECRET_NAME = re.compile(r"passw|secret|token|credential|api_?key|private", re.IGNORECASE)
_SECRET_VALUE = re.compile(r"(?:password|secret|token|credential)\w*[\"']?\s*[=:]|://[^/\s]*:[^/\s]*@", re.IGNORECASE)
_FIELDS = "fields of events"
# Fields of sinks that change what is written. Their values are names and flags.
_OPTIONS = frozenset({"mode", "overwrite_by", "evolve_schema", "headers", "partition", "format", "latest_by"})
_LONGEST = 200  # characters of a value that are shown


@dataclass(frozen=True)
class Fingerprint:
    """The code and the settings of a pipeline.

    Attributes:
        code: The digest of the source of each function, class and constant that results depend on, by its whole name.
        settings: The settings of the pipeline, as text, by name.
    """

    code: Mapping[str, str]
    settings: Mapping[str, str]

    @property
    def digest(self) -> str:
        """A short digest of code and settings."""
        return digest(repr((sorted(self.code.items()), sorted(self.settings.items()))))

    @property
    def values(self) -> dict[str, str]:
        """The settings that are values held by functions of the code."""
        return {name: value for name, value in self.settings.items() if ":" in name}

    def without(self, setting: str) -> "Fingerprint":
        """Return it without a setting."""
        return Fingerprint(self.code, {name: value for name, value in self.settings.items() if name != setting})

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON holds it."""
        return {"code": dict(sorted(self.code.items())), "settings": dict(sorted(self.settings.items()))}

    @staticmethod
    def from_json(facts: Any) -> "Fingerprint":
        """Return the fingerprint that `to_json` wrote; raise CheckpointError for other content."""
        try:
            parts = [{str(name): str(value) for name, value in facts[part].items()} for part in ("code", "settings")]
        except (KeyError, TypeError, AttributeError) as error:
            raise CheckpointError(
                f"The fingerprint of a pipeline cannot be read: expected 'code' and 'settings', found {facts!r:.80}."
            ) from error
        code, settings = parts
        if _FIELDS in settings:
            settings.setdefault("decoder", "json")  # earlier versions had no other decoder
        return Fingerprint(code, {name: _canonical(name, value) for name, value in settings.items()})


def fingerprint_of(pipeline: Pipeline, parameters: Mapping[str, object] | None = None) -> Fingerprint:
    """Return the fingerprint of a pipeline.

    Args:
        pipeline: The pipeline.
        parameters: The parameters that it was made with, without defaults.
    """
    functions: list[object] = list(pipeline.code) if isinstance(pipeline, JobPipeline) else [pipeline.transform]
    functions += [sink.function for sink in all_sinks(pipeline.sink) if isinstance(sink, FunctionSink)]
    dependencies = collect_code(*functions)
    settings = _settings(pipeline)
    for name, value in (parameters or {}).items():
        settings[f"parameter {name}"] = _shown(name, value if isinstance(value, str) else canonical_text(value) or "?")
    for name, text in dependencies.values.items():
        settings[name] = _shown(name.rpartition(":")[2], text)
    return Fingerprint(dict(sorted(dependencies.code.items())), dict(sorted(settings.items())))


def changes(old: Fingerprint, new: Fingerprint) -> list[str]:
    """Return what has changed from one fingerprint to another, a sentence for each; empty when they are equal."""
    sentences = []
    for name in sorted({*old.settings, *new.settings}):
        before, after = old.settings.get(name, "none"), new.settings.get(name, "none")
        if before != after:
            sentences.append(f"setting {name}: {before} → {after}")
    for name in sorted({*old.code, *new.code}):
        if name not in new.code:
            sentences.append(f"code {name} is gone")
        elif name not in old.code:
            sentences.append(f"code {name} is new")
        elif old.code[name] != new.code[name]:
            sentences.append(f"code {name} changed")
    return sentences


def summarize_changes(changes: list[str], most: int = 5) -> str:
    """Return changes as one line, the first of them in full."""
    more = f"; and {len(changes) - most} more" if changes[most:] else ""
    return "; ".join(changes[:most]) + more


def _canonical(name: str, text: str) -> str:
    """Return a setting with its durations in canonical form, which earlier versions kept as they were written."""
    try:
        if name in ("watermark", "trigger"):
            return duration_text(parse_duration(text))
        if name == _FIELDS:
            return canonical_ddl(text)
        if name == "results" and (identity := results_from_text(text)) is not None:
            return text_of(identity)
    except (SettingsError, DdlError):
        pass  # a trigger of another kind, a schema that only Spark can read
    return text


def _settings(pipeline: Pipeline) -> dict[str, str]:
    results, sink = pipeline.results, pipeline.sink
    values: dict[str, object] = {
        "output mode": pipeline.output_mode,
        "time zone": pipeline.timezone,
        "trigger": pipeline.trigger,
        "records in a batch at most": pipeline.max_offsets_per_trigger,
        "stateless": "yes" if pipeline.stateless else "no",
        "idle inputs": pipeline.idle_inputs if pipeline.idle_inputs != "wait" else None,
        "results": results.describe() if results else None,
        "sink": f"{type(sink).__qualname__}, {sink.describe()}",
        "sink's key": "; ".join(", ".join(key) for each in all_sinks(sink) if (key := getattr(each, "key", ())))
        or None,
        "sink's options": "; ".join(filter(None, map(_options, all_sinks(sink)))) or None,
    }
    for name, each in pipeline.streams.items():
        of_input = f"{name}: " if pipeline.inputs else ""
        values |= {f"{of_input}{setting}": value for setting, value in _input_settings(each).items()}
    settings = {
        name: _canonical(name.rpartition(": ")[2], str(value)) for name, value in values.items() if value is not None
    }
    for name, value in pipeline.spark.items():
        settings[name] = _hidden(value) if _SECRET_OPTION.search(name) else _shown(name, value)
    return settings


def _input_settings(each: Input) -> dict[str, object]:
    """Return the settings of an input; those that have their default value are left out."""
    source, decoder = each.source, each.decode
    values: dict[str, object] = {
        "watermark": each.watermark,
        "event time": each.time_column,
        "static": "yes" if each.static else None,
        **(_decoder_settings(decoder.identity()) if decoder is not None else {}),
    }
    if isinstance(source, KafkaSource):
        values["topic"] = source.reads()
        values["starting"] = source.starting_text() if source.starting != "earliest" else None
        values["on data loss"] = source.on_data_loss if source.on_data_loss != "fail" else None
    else:
        values["source"] = source.identity().text()
    for name, value in getattr(source, "options", {}).items():
        values[f"option {name}"] = _hidden(value) if _SECRET_OPTION.search(name) else _shown(name, value)
    return values


def _decoder_settings(decoder: Identity) -> dict[str, str]:
    names = {"schema": _FIELDS, "event_time": "event time"}
    texts = {name: value if isinstance(value, str) else canonical_json(value) for name, value in decoder.fields.items()}
    texts = {name: text if name in names else _shown("", text) for name, text in texts.items()}
    return {"decoder": decoder.kind, **{names.get(name, f"decoder's {name}"): text for name, text in texts.items()}}


def _options(sink: Sink) -> str:
    """Return the fields of a sink that are not the default, besides its place and its key."""
    if not is_dataclass(sink):
        return ""
    options = (entry for entry in fields(sink) if entry.name in _OPTIONS and _differs(sink, entry))
    return ", ".join(f"{entry.name} {getattr(sink, entry.name)}" for entry in options)


def _differs(sink: Sink, entry: "Field[Any]") -> bool:
    return entry.default is MISSING or getattr(sink, entry.name) != entry.default


def _shown(name: str, text: str) -> str:
    if _SECRET_NAME.search(name) or _SECRET_VALUE.search(text) or len(text) > _LONGEST:
        return _hidden(text)
    return text


def _hidden(text: str) -> str:
    return f"digest {digest(text)}"


def changed(old: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> list[str]:
    """Return what differs between two fingerprints; a changed output does not count."""
    if not old or not new:
        return []
    return changes(*(Fingerprint.from_json(facts).without("sink") for facts in (old, new)))
