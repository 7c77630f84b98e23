"""The micro-batch consumer: generator, consumer, stop, restart; no visit is printed twice or missed."""

from respool.demo.steps import (
    AwaitAllPrinted,
    AwaitBatches,
    Command,
    ExpectEachPrintedOnce,
    Narrate,
    Scenario,
    Start,
    Stop,
)

_RUN = Start(("micro-batch", "--trigger", "2s", "--max-offsets-per-trigger", "100"))

SCENARIO = Scenario(
    name="micro-batch",
    title="The micro-batch consumer: stop it, start it again, and no visit is printed twice or missed",
    steps=(
        Narrate("600 visits are waiting in Kafka, in a topic of two partitions."),
        Command(("generate", "--count", "600", "--seed", "1", "--partitions", "2")),
        Narrate("The consumer reads at most 100 records per batch, and prints each visit from the task that read it."),
        _RUN,
        AwaitBatches(3),
        Narrate("It is stopped before it has read all visits. Its checkpoint holds the last committed batch."),
        Stop(),
        Narrate("While it is down, 200 more visits arrive."),
        Command(("generate", "--count", "200", "--seed", "2", "--start", "2024-01-02T01:00:00")),
        Narrate("It is restarted, and continues where it stopped."),
        _RUN,
        AwaitAllPrinted("visits"),
        Stop(),
        ExpectEachPrintedOnce("visits"),
    ),
)
