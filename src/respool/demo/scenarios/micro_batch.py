"""The micro-batch consumer: generator, consumer, stop, restart; nothing twice, nothing missed."""

from respool.demo.steps import (
    AwaitAllPrinted,
    AwaitBatches,
    Command,
    ExpectEachPrintedOnce,
    Scenario,
    Start,
    Stop,
    Tell,
)

_RUN = Start(("micro-batch", "--trigger", "2s", "--max-offsets-per-trigger", "100"))

SCENARIO = Scenario(
    name="micro-batch",
    title="The micro-batch consumer: stop it, start it again, and no visit is printed twice or missed",
    steps=(
        Tell("600 visits are waiting in Kafka, in a topic of two partitions."),
        Command(("generate", "--count", "600", "--seed", "1", "--partitions", "2")),
        Tell("The consumer takes at most 100 records a batch, and prints each visit from the task that read it."),
        _RUN,
        AwaitBatches(3),
        Tell("It stops in the middle of the work. Its checkpoint remembers the last finished batch."),
        Stop(),
        Tell("While it is down, 200 more visits come in."),
        Command(("generate", "--count", "200", "--seed", "2", "--start", "2024-01-02T01:00:00")),
        Tell("It starts again, and goes on where it stopped."),
        _RUN,
        AwaitAllPrinted("visits"),
        Stop(),
        ExpectEachPrintedOnce("visits"),
    ),
)
