"""Companion pipelines, which keep the records that the decoders of a run's pipelines reject.

A topic has one companion for all decoders of a run. A decoder is applied by a single process, whatever pipelines each
process runs: its lock is the checkpoint of the companion that the decoder has when it is alone. A decoder that another
process applies is tried again later, since that process may end.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack

from respool.decoders.json import JsonDecoder
from respool.pipeline.definition import Pipeline, rejected
from respool.storage.lease import hold, holder


class Companions:
    """The decoders of a run whose rejected records are not kept by this process yet."""

    def __init__(
        self,
        pipelines: Sequence[Pipeline],
        checkpoint_of: Callable[[Pipeline], str],
        hold_companion: Callable[[Pipeline], bool],
        claims: ExitStack,
    ) -> None:
        """Collect the decoders of pipelines.

        Args:
            pipelines: The pipelines.
            checkpoint_of: Returns the checkpoint of a companion.
            hold_companion: Holds the checkpoint of a companion; returns False when another process holds it.
            claims: Closes the leases that have to last as long as the run.
        """
        self._checkpoint_of = checkpoint_of
        self._hold_companion = hold_companion
        self._claims = claims
        self._decoders = decoders_by_topic(pipelines)

    def topics(self) -> list[str]:
        """Return the topics that have decoders of which this process does not keep the rejected records."""
        return [topic for topic, decoders in self._decoders.items() if decoders]

    def claim(self, topic: str) -> Pipeline | None:
        """Hold the companion of as many decoders of a topic as possible; None when other processes hold all."""
        mine = dict(self._decoders[topic])
        if len(mine) > 1:
            leases = {decoder: hold(self._checkpoint_of(rejected(topic, {decoder: ()}))) for decoder in mine}
            mine = {decoder: mine[decoder] for decoder, lease in leases.items() if lease is not None}
            for lease in filter(None, leases.values()):
                if len(mine) > 1:
                    self._claims.callback(lease.close)
                else:
                    lease.close()  # its checkpoint is held below
        if not mine:
            return None
        companion = rejected(topic, mine)
        if not self._hold_companion(companion):
            return None
        for decoder in mine:
            del self._decoders[topic][decoder]
        return companion

    def holders(self, topic: str) -> list[str]:
        """Return which other processes keep rejected records of a topic, for messages."""
        alone = (self._checkpoint_of(rejected(topic, {decoder: ()})) for decoder in self._decoders[topic])
        return sorted({process for checkpoint in alone if (process := holder(checkpoint)) is not None})


def decoders_by_topic(pipelines: Sequence[Pipeline]) -> dict[str, dict[JsonDecoder, list[str]]]:
    """Return the decoders of pipelines by topic, each with the names of its pipelines."""
    decoders: dict[str, dict[JsonDecoder, list[str]]] = {}
    for pipeline in pipelines:
        if pipeline.decode is not None:
            decoders.setdefault(pipeline.topic, {}).setdefault(pipeline.decode, []).append(pipeline.name)
    return decoders
