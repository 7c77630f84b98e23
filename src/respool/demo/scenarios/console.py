"""Scenarios whose jobs print to the console."""

from respool.demo.process import draw
from respool.demo.steps import (
    AwaitAllPrinted,
    AwaitBatches,
    Command,
    ExpectEachPrintedOnce,
    ExpectNoBatch,
    ExpectTables,
    Narrate,
    Scenario,
    ScenarioStep,
    Send,
    Start,
    Stop,
)


def _empty(batch: int) -> str:
    return draw(batch, "|window|count|")


def _counts(batch: int, *rows: str) -> str:
    return draw(batch, "|window                                    |count|", *rows)


def _visits(*visits: tuple[str, int, str]) -> Send:
    return Send(
        "visits",
        tuple(
            f'{{"event_id": "{event}", "visit_id": {visit}, "event_time": "2025-09-04T{time}:00.000000"}}'
            for event, visit, time in visits
        ),
    )


_BATCHES_5_AND_6 = _counts(
    5,
    "|{2025-09-04 07:20:00, 2025-09-04 07:30:00}|2    |",
    "|{2025-09-04 07:30:00, 2025-09-04 07:40:00}|1    |",
) + _empty(6)

# Windows counted in update mode on the console, with empty batches; then rewound, and counted again.
WINDOWS = Scenario(
    name="windows",
    title="Windows counted batch by batch on the console; then a rewind replays the same batches",
    steps=(
        Command(("topic", "create", "visits", "--partitions", "2")),
        Start(("visit-windows", "--trigger", "1s")),
        ExpectTables(_empty(0)),
        Narrate("Three visits of one window; then the watermark moves on, in a batch without records."),
        _visits(("click-1", 1, "07:00"), ("click-2", 1, "07:01"), ("click-3", 1, "07:02")),
        ExpectTables(_counts(1, "|{2025-09-04 07:00:00, 2025-09-04 07:10:00}|3    |") + _empty(2)),
        Narrate("One more visit of the first window, which is still open, and two of later windows."),
        _visits(("click-4", 1, "07:00"), ("click-1", 2, "07:10"), ("click-1", 2, "07:20")),
        ExpectTables(
            _counts(
                3,
                "|{2025-09-04 07:00:00, 2025-09-04 07:10:00}|4    |",
                "|{2025-09-04 07:10:00, 2025-09-04 07:20:00}|1    |",
                "|{2025-09-04 07:20:00, 2025-09-04 07:30:00}|1    |",
            )
            + _empty(4)
        ),
        Narrate("The last two visits."),
        _visits(("click-1", 2, "07:25"), ("click-1", 2, "07:35")),
        ExpectTables(_BATCHES_5_AND_6),
        Stop(),
        Narrate("The contents of the checkpoint, and how far back it can be rewound."),
        Command(("checkpoint", "show", "visit-windows")),
        Narrate("Make batch 5 the next to run, and undo that: the query continues as if nothing had happened."),
        Command(("checkpoint", "rewind", "visit-windows", "--to-batch", "5", "--yes")),
        Command(("checkpoint", "undo", "visit-windows", "--yes")),
        Command(("checkpoint", "verify", "visit-windows")),
        Start(("visit-windows", "--available-now")),
        ExpectNoBatch(),
        Narrate("Rewind again, and start the query: it replays batches 5 and 6, with the same rows."),
        Command(("checkpoint", "rewind", "visit-windows", "--to-batch", "5", "--reason", "a look back", "--yes")),
        Start(("visit-windows", "--trigger", "1s")),
        ExpectTables(_BATCHES_5_AND_6),
        Narrate("The query continues: one more visit of the last window."),
        _visits(("click-2", 2, "07:36")),
        ExpectTables(_counts(7, "|{2025-09-04 07:30:00, 2025-09-04 07:40:00}|2    |")),
        Stop(),
        Command(("checkpoint", "history", "visit-windows")),
    ),
)


def _visit(event: str, visit: int, time: str) -> Send:
    return Send("visits", (f'{{"event_id": "{event}", "visit_id": {visit}, "event_time": "{time}"}}',))


def _sessions(batch: int, *rows: tuple[int, int, str]) -> str:
    drawn = [f"|{visit:<8}|{pages:<13}|{finished:<11}|" for visit, pages, finished in rows]
    return draw(batch, "|visit_id|visited_pages|is_finished|", *drawn)


def _then(text: str, visit: Send, *expected: str) -> tuple[ScenarioStep, ...]:
    return (Narrate(text), visit, ExpectTables("".join(expected)))


# Sessions written early: every update while they are open, and once more when the watermark closes them.
EARLY_WRITER = Scenario(
    name="early-writer",
    title="Sessions with early results: a row at every update, and a final row when the session is closed",
    steps=(
        Command(("topic", "create", "visits", "--partitions", "2")),
        Narrate("The first page of visit 1 is in Kafka when the job starts."),
        _visit("click-1", 1, "2025-09-04T07:00:00.000000"),
        Start(("sessions", "--set", "rule=timer", "--console", "--trigger", "1s")),
        ExpectTables(_sessions(0, (1, 1, "false")) + _sessions(1)),
        *_then(
            "Each further page is an early result; a batch without records follows when the watermark moves.",
            _visit("click-2", 1, "2025-09-04T07:01:00.000000"),
            _sessions(2, (1, 2, "false")),
            _sessions(3),
        ),
        *_then("", _visit("click-3", 1, "2025-09-04T07:02:00.000000"), _sessions(4, (1, 3, "false")), _sessions(5)),
        *_then(
            "An older page: it counts, and the watermark stays.",
            _visit("click-4", 1, "2025-09-04T07:00:00.000000"),
            _sessions(6, (1, 4, "false")),
        ),
        *_then(
            "Another visit.",
            _visit("click-1", 2, "2025-09-04T07:10:00.000000"),
            _sessions(7, (2, 1, "false")),
            _sessions(8),
        ),
        *_then(
            "An event far in the future moves the watermark past every open session: both are closed.",
            _visit("stop", 1, "2026-12-29T07:49:15.189575"),
            _sessions(9, (1, 5, "false")),
            _sessions(10, (2, 1, "true"), (1, 5, "true")),
        ),
        Stop(),
    ),
)


_RUN = Start(("micro-batch", "--trigger", "2s", "--max-offsets-per-trigger", "100"))

# The micro-batch consumer: generator, consumer, stop, restart; no visit is printed twice or missed.
MICRO_BATCH = Scenario(
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
