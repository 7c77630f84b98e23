"""Sessions written early: every update while they are open, and once more when the watermark closes them."""

from respool.demo.process import draw
from respool.demo.steps import Command, ExpectTables, Narrate, Scenario, ScenarioStep, Send, Start, Stop


def _visit(event: str, visit: int, time: str) -> Send:
    return Send("visits", (f'{{"event_id": "{event}", "visit_id": {visit}, "event_time": "{time}"}}',))


def _table(batch: int, *rows: tuple[int, int, str]) -> str:
    drawn = [f"|{visit:<8}|{pages:<13}|{finished:<11}|" for visit, pages, finished in rows]
    return draw(batch, "|visit_id|visited_pages|is_finished|", *drawn)


def _then(text: str, visit: Send, *expected: str) -> tuple[ScenarioStep, ...]:
    return (Narrate(text), visit, ExpectTables("".join(expected)))


SCENARIO = Scenario(
    name="early-writer",
    title="Sessions with early results: a row at every update, and a final row when the session is closed",
    steps=(
        Command(("topic", "create", "visits", "--partitions", "2")),
        Narrate("The first page of visit 1 is in Kafka when the job starts."),
        _visit("click-1", 1, "2025-09-04T07:00:00.000000"),
        Start(("sessions", "--set", "rule=timer", "--console", "--trigger", "1s")),
        ExpectTables(_table(0, (1, 1, "false")) + _table(1)),
        *_then(
            "Each further page is an early result; a batch without records follows when the watermark moves.",
            _visit("click-2", 1, "2025-09-04T07:01:00.000000"),
            _table(2, (1, 2, "false")),
            _table(3),
        ),
        *_then("", _visit("click-3", 1, "2025-09-04T07:02:00.000000"), _table(4, (1, 3, "false")), _table(5)),
        *_then(
            "An older page: it counts, and the watermark stays.",
            _visit("click-4", 1, "2025-09-04T07:00:00.000000"),
            _table(6, (1, 4, "false")),
        ),
        *_then(
            "Another visit.", _visit("click-1", 2, "2025-09-04T07:10:00.000000"), _table(7, (2, 1, "false")), _table(8)
        ),
        *_then(
            "An event far in the future moves the watermark past every open session: both are closed.",
            _visit("stop", 1, "2026-12-29T07:49:15.189575"),
            _table(9, (1, 5, "false")),
            _table(10, (2, 1, "true"), (1, 5, "true")),
        ),
        Stop(),
    ),
)
