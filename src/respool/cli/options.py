"""The options that several commands share, and how a UsageError is reported: as wrong usage, with exit code 2."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from respool import settings
from respool.errors import UsageError
from respool.kafka.topics import cluster as cluster
from respool.kafka.topics import connect as connect
from respool.settings import Settings
from respool.storage import object_store

if TYPE_CHECKING:
    from respool.pipeline.definition import Pipeline


class Commands(TyperGroup):
    """A group of commands that reports a UsageError of any of them as wrong usage of that command."""

    def invoke(self, ctx: typer.Context) -> Any:  # type: ignore[override]  # typer vendors the base class
        """Run the command that the arguments name."""
        try:
            return super().invoke(ctx)
        except UsageError as error:
            name = ctx.invoked_subcommand
            command = self.get_command(ctx, name) if name else None
            where = ctx if command is None else typer.Context(command, parent=ctx, info_name=name)
            raise typer.BadParameter(error.message, where, param_hint=error.option) from error


Home = Annotated[
    Path | None,
    typer.Option(
        help="Folder of logs, broker data, and all that is not in the storage.  [default: .respool; RESPOOL_HOME]"
    ),
]
BootstrapServers = Annotated[
    str | None,
    typer.Option(metavar="HOST:PORT", help="An existing Kafka cluster, instead of the embedded broker."),
]
Storage = Annotated[
    str | None,
    typer.Option(
        metavar="PATH",
        help="Folder or URL of checkpoints, savepoints, archives and results.  [default: the home; RESPOOL_STORAGE]",
    ),
]
SavepointsOption = Annotated[
    str | None,
    typer.Option(
        metavar="PATH",
        help="Folder or URL of the savepoints.  [default: savepoints in the storage; RESPOOL_SAVEPOINTS]",
    ),
]
Where = Annotated[str, typer.Argument(metavar="PATH", help="A pipeline's name, a folder, or a URL such as s3://…")]
Reason = Annotated[str | None, typer.Option(help="The reason, recorded in the history.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the plan and change nothing.")]
Stopped = Annotated[
    bool, typer.Option("--stopped", help="The query has stopped, although its checkpoint looks as if it were running.")
]
AllowDataLoss = Annotated[
    bool, typer.Option("--allow-data-loss", help="Continue although the source no longer has all records.")
]
SinkOption = Annotated[
    str | None,
    typer.Option(
        metavar="KIND[:PLACE]",
        help="Where the query writes, if respool did not run it: delta:PATH, files:PATH, kafka:TOPIC, …",
    ),
]
AcceptForeign = Annotated[
    bool,
    typer.Option(
        "--accept-foreign-journal",
        help="Carry out a journal in the checkpoint that this installation did not write: by another host or user, or "
        "for another folder that this one is a copy of. You have read its steps, and trust who wrote them.",
    ),
]
Master = Annotated[str | None, typer.Option(help="Spark's master.  [default: local[*]; RESPOOL_MASTER]")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


PipelineArgument = Annotated[
    str, typer.Argument(metavar="PIPELINE", help="A name of `respool pipelines`, or module:object.")
]
StartArgument = Annotated[str, typer.Argument(metavar="START", help="Start of the span, in ISO 8601.")]
EndArgument = Annotated[str, typer.Argument(metavar="END", help="End of the span, exclusive, in ISO 8601.")]
ArchiveOption = Annotated[
    str | None,
    typer.Option(metavar="PATH", help="The archive's table.  [default: the pipeline's, under the home's archive]"),
]
LiveCheckpoint = Annotated[
    str | None,
    typer.Option(metavar="PATH", help="The live query's checkpoint.  [default: the pipeline's, under the home]"),
]
Slice = Annotated[
    str, typer.Option("--slice", metavar="TIME", help="How much event time to compute in each step, approximately.")
]
AllowPartial = Annotated[
    bool,
    typer.Option("--allow-partial", help="Continue although the archive lacks records that the live query has read."),
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="A parameter of the pipeline; use the live query's value."),
]
Timezone = Annotated[
    str | None,
    typer.Option(metavar="ZONE", help="Time zone of times without an offset, and of results; use the live query's."),
]
BROKEN = 3  # the exit code of `verify` and `audit` when something is broken


def load(**flags: Any) -> Settings:
    """Return the settings of a command from its flags, the environment and respool.toml."""
    return object_store.use(settings.load(flags))


def configured_pipeline(name: str, assignments: list[str], settings: Settings) -> "Pipeline":
    """Return a pipeline with the parameters of respool.toml and of --set."""
    [pipeline] = configured_pipelines([name], assignments, settings)
    return pipeline


def configured_pipelines(names: list[str], assignments: list[str], settings: Settings) -> "list[Pipeline]":
    """Return pipelines with the parameters of respool.toml, then those of --set for all that have them."""
    from respool.pipeline.registry import find_pipeline, parameters, section_values

    values = section_values(names, settings.pipelines)
    known = {name: {parameter.name for parameter in parameters(name)} for name in names}
    for assignment in assignments:
        key, equals, value = assignment.partition("=")
        if not (key and equals):
            raise UsageError(f"--set {assignment} is not NAME=VALUE")
        having = [name for name in names if key in known[name]]
        for name in having or names[:1]:  # a parameter that no pipeline has is reported by the first
            values[name][key] = value
    return [find_pipeline(name, values[name]) for name in names]


def require_answer(json: bool, yes: bool, dry_run: bool) -> None:
    """Refuse to ask for confirmation without a terminal."""
    if json and not (yes or dry_run):
        raise UsageError("--json cannot ask: add --yes or --dry-run")
