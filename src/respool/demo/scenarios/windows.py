"""Windows counted in update mode on the console, with empty batches; then rewound, and counted again."""

from respool.demo.process import draw
from respool.demo.steps import Command, ExpectNoBatch, ExpectTables, Narrate, Scenario, Send, Start, Stop


def _empty(batch: int) -> str:
    return draw(batch, "|window|count|")


def _table(batch: int, *rows: str) -> str:
    return draw(batch, "|window                                    |count|", *rows)


def _visits(*visits: tuple[str, int, str]) -> Send:
    return Send(
        "visits",
        tuple(
            f'{{"event_id": "{event}", "visit_id": {visit}, "event_time": "2025-09-04T{time}:00.000000"}}'
            for event, visit, time in visits
        ),
    )


_BATCHES_5_AND_6 = _table(
    5,
    "|{2025-09-04 07:20:00, 2025-09-04 07:30:00}|2    |",
    "|{2025-09-04 07:30:00, 2025-09-04 07:40:00}|1    |",
) + _empty(6)

SCENARIO = Scenario(
    name="windows",
    title="Windows counted batch by batch on the console; then a rewind replays the same batches",
    steps=(
        Command(("topic", "create", "visits", "--partitions", "2")),
        Start(("visit-windows", "--trigger", "1s")),
        ExpectTables(_empty(0)),
        Narrate("Three visits of one window; then the watermark moves on, in a batch without records."),
        _visits(("click-1", 1, "07:00"), ("click-2", 1, "07:01"), ("click-3", 1, "07:02")),
        ExpectTables(_table(1, "|{2025-09-04 07:00:00, 2025-09-04 07:10:00}|3    |") + _empty(2)),
        Narrate("One more visit of the first window, which is still open, and two of later windows."),
        _visits(("click-4", 1, "07:00"), ("click-1", 2, "07:10"), ("click-1", 2, "07:20")),
        ExpectTables(
            _table(
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
        ExpectTables(_table(7, "|{2025-09-04 07:30:00, 2025-09-04 07:40:00}|2    |")),
        Stop(),
        Command(("checkpoint", "history", "visit-windows")),
    ),
)
