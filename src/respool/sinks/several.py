"""Several sinks that get the results of one computation."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from respool.errors import PipelineError
from respool.identity import Identity
from respool.kafka.cluster import KafkaCluster
from respool.settings import Settings
from respool.sinks.protocol import (
    SEVERAL,
    ForkableSink,
    ReadableSink,
    RecordingSink,
    Sink,
    SinkOutput,
    WriteContext,
    identity_of,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@runtime_checkable
class _Readable(Sink, ReadableSink, Protocol):
    """A sink whose results can be read back."""


@dataclass(frozen=True)
class SeveralSinks:
    """Rows to several places; a batch is computed once.

    The sinks write one after another. After a crash between two of them the batch is replayed to all: each does with it
    what it does when it is the only sink.

    Attributes:
        sinks: The sinks, in the order in which they write.
    """

    sinks: tuple[Sink, ...]

    def __post_init__(self) -> None:
        """Refuse two sinks of the same place."""
        if len(self.sinks) < 2:
            raise PipelineError(
                f"Pipeline.sinks has {len(self.sinks)} sinks; expected two at least. Use `sink` for one."
            )
        for number, sink in enumerate(self.sinks):
            if any(identity_of(sink).is_same(identity_of(other)) for other in self.sinks[:number]):
                raise PipelineError(
                    f"Pipeline.sinks has the {sink.describe()} twice: results would be written twice. Leave one out."
                )

    def with_suffix(self, suffix: str) -> "SeveralSinks":
        """Return the same sinks, each with a suffix to its name."""
        renamed = []
        for sink in self.sinks:
            if not isinstance(sink, ForkableSink):
                raise PipelineError(
                    f"One of the sinks is {sink.describe()}, which cannot take a suffix. Leave --sink-suffix out, or "
                    "print the results with --console."
                )
            renamed.append(sink.with_suffix(suffix))
        return SeveralSinks(tuple(renamed))

    def describe(self) -> str:
        """Return a few words for `respool pipelines`."""
        return ", ".join(sink.describe() for sink in self.sinks)

    def identity(self) -> Identity:
        """Return the identity of all places together."""
        places = tuple(identity_of(sink).text() for sink in self.sinks)
        return Identity(SEVERAL, {"text": self.describe(), "places": places})

    def replay_note(self) -> str:
        """Return what happens to a replayed batch, for the plan of a rewind."""
        return " ".join(sink.replay_note() for sink in self.sinks)

    def output(self, settings: Settings) -> SinkOutput:
        """Return where the results of the first sink can be read back that can be read back."""
        return next((sink.output(settings) for sink in self._readable()), SinkOutput(""))

    def recorded_at(self, settings: Settings) -> tuple[str, ...]:
        """Return the addresses of the places that record batches."""
        recording = (sink for sink in self.sinks if isinstance(sink, RecordingSink))
        return tuple(address for sink in recording for address in sink.recorded_at(settings))

    def prepare(self, kafka: KafkaCluster, source_topic: str | None) -> None:
        """Create what the sinks need before the first write."""
        for sink in self.sinks:
            sink.prepare(kafka, source_topic)

    def write(self, frame: "DataFrame", write: WriteContext) -> None:
        """Write all rows to every sink; they are computed once."""
        rows = frame.persist()
        try:
            for sink in self.sinks:
                sink.write(rows, write)
        finally:
            rows.unpersist()

    def at(self, address: str, settings: Settings) -> Sink | None:
        """Return the sink with an address; None when there is none."""
        return next((sink for sink in self._readable() if sink.output(settings).address == address), None)

    def addresses(self, settings: Settings) -> list[str]:
        """Return the addresses of the sinks that can be read back."""
        return [sink.output(settings).address for sink in self._readable()]

    def _readable(self) -> "Iterator[_Readable]":
        yield from (sink for sink in self.sinks if isinstance(sink, _Readable))


def all_sinks(sink: Sink) -> tuple[Sink, ...]:
    """Return the sinks of a pipeline: several, or the only one."""
    return sink.sinks if isinstance(sink, SeveralSinks) else (sink,)
