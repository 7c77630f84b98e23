"""Windows counted in update mode on the console, batch by batch, the empty batches included."""

from respool.demo.output import draw
from respool.demo.steps import Command, ExpectTables, Scenario, Send, Start, Stop, Tell


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


SCENARIO = Scenario(
    name="windows",
    title="Windows of 10 minutes on the console: each whenever it changes, batch by batch",
    steps=(
        Command(("topic", "create", "visits", "--partitions", "2")),
        Start(("visit-windows", "--trigger", "1s")),
        ExpectTables(_empty(0)),
        Tell("Three visits of one window; then the watermark moves on, in a batch without records."),
        _visits(("click-1", 1, "07:00"), ("click-2", 1, "07:01"), ("click-3", 1, "07:02")),
        ExpectTables(_table(1, "|{2025-09-04 07:00:00, 2025-09-04 07:10:00}|3    |") + _empty(2)),
        Tell("One more of the first window, which is open still, and two of later windows."),
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
        Tell("And the last two."),
        _visits(("click-1", 2, "07:25"), ("click-1", 2, "07:35")),
        ExpectTables(
            _table(
                5,
                "|{2025-09-04 07:20:00, 2025-09-04 07:30:00}|2    |",
                "|{2025-09-04 07:30:00, 2025-09-04 07:40:00}|1    |",
            )
            + _empty(6)
        ),
        Stop(),
    ),
)
