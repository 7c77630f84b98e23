"""What a running pipeline printed is read back as it was meant."""

import json
from datetime import datetime, timezone

from respool.cli.render.output import json_text
from respool.demo.process import ConsoleTable, draw, printed_visits, reported_batches, tables
from respool.running.progress import BatchProgress

NINE = datetime(2024, 1, 1, 9, 8, tzinfo=timezone.utc)


def test_tables_are_read_sorted_and_only_when_complete() -> None:
    text = draw(0, "|window|count|") + draw(3, "|window|count|", "|b     |2    |", "|a     |1    |")
    lines = text.splitlines()
    # A line of another pipeline in between does no harm.
    lines.insert(5, '{"pipeline": "visits-archive", "batch": 0}')
    empty = ConsoleTable(0, "|window|count|", ())
    assert tables(lines) == [empty, ConsoleTable(3, "|window|count|", ("|a     |1    |", "|b     |2    |"))]
    assert tables(lines[:-1]) == [empty]


def test_batches_are_read_from_the_json_that_a_run_prints() -> None:
    batches = [
        BatchProgress("visit-counts", 12, 1010, 843.2, NINE, 3, 0, 4, 1, 1.2, 0),
        BatchProgress("micro-batch", 0, 0, 0.0, None, None, None, None, 0, 3.8),
    ]
    lines = [json_text(batch.to_json()) for batch in batches]
    assert json.loads(lines[0])["watermark"] == "2024-01-01T09:08:00Z"
    others = ["something else", "{", "{}", '{"pipeline": "x"}', '{"watermark": "soon"}', "[1]", str(batches[0])]
    assert reported_batches([*lines, *others]) == batches


def test_printed_visits_are_read_back_with_their_times() -> None:
    line = "Partition[1] > Printing visit=Row(visit_id='v_4', event_time=datetime.datetime({}), page='main')"
    lines = ["✍️ Printing visits", line.format("2024, 1, 1, 1, 0"), line.format("2024, 1, 1, 1, 0, 7")]
    assert printed_visits(lines) == [("v_4", "2024-01-01T01:00:00", "main"), ("v_4", "2024-01-01T01:00:07", "main")]
