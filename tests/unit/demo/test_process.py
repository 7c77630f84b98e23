"""What a running pipeline printed is read back as it was meant."""

from respool.demo.process import BatchLine, ConsoleTable, batch_lines, draw, printed_visits, tables


def test_tables_are_read_sorted_and_only_when_complete() -> None:
    text = draw(0, "|window|count|") + draw(3, "|window|count|", "|b     |2    |", "|a     |1    |")
    lines = text.splitlines()
    # A line of another pipeline in between does no harm.
    lines.insert(5, "visits-archive batch 0  3 rows  1 rows/s  rejected 0  0.2 s")
    empty = ConsoleTable(0, "|window|count|", ())
    assert tables(lines) == [empty, ConsoleTable(3, "|window|count|", ("|a     |1    |", "|b     |2    |"))]
    assert tables(lines[:-1]) == [empty]


def test_batch_lines_show_rows_and_watermark() -> None:
    lines = [
        "visit-counts batch 12  1,010 rows  843 rows/s  watermark 2024-01-01T09:08:00Z  state 3 rows  late 0",
        "micro-batch batch 0  0 rows  0 rows/s  rejected 0  3.8 s",
        "something else",
    ]
    assert batch_lines(lines) == [
        BatchLine("visit-counts", 12, 1010, "2024-01-01T09:08:00Z"),
        BatchLine("micro-batch", 0, 0, None),
    ]


def test_printed_visits_are_read_back_with_their_times() -> None:
    line = "Partition[1] > Printing visit=Row(visit_id='v_4', event_time=datetime.datetime({}), page='main')"
    lines = ["✍️ Printing visits", line.format("2024, 1, 1, 1, 0"), line.format("2024, 1, 1, 1, 0, 7")]
    assert printed_visits(lines) == [("v_4", "2024-01-01T01:00:00", "main"), ("v_4", "2024-01-01T01:00:07", "main")]
