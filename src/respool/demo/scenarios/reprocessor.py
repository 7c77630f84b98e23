"""Visits are counted live and archived; late clicks reach only the archive, and their window is reprocessed."""

from respool.demo.steps import (
    AwaitBatch,
    Command,
    ExpectCommand,
    ExpectCommits,
    ExpectNothingNew,
    ExpectRecords,
    Narrate,
    Scenario,
    Send,
    Start,
    Stop,
)


def _clicks(*clicks: tuple[str, str, str]) -> Send:
    return Send(
        "visits",
        tuple(
            f'{{"event_id": "{event}", "visit_id": 1, "event_time": "2025-09-04T{time}:00.000000", "page": "{page}"}}'
            for event, time, page in clicks
        ),
    )


def _window(start: str, end: str, count: int) -> str:
    times = f'"start":"2025-09-04T{start}:00.000+02:00","end":"2025-09-04T{end}:00.000+02:00"'
    return f'{{"window":{{{times}}},"count":{count}}}'


_SPAN = ("visit-counts", "2025-09-04T07:00:00.000", "2025-09-04T07:10:00.000")

SCENARIO = Scenario(
    name="reprocessor",
    title="The live count misses late clicks; their window is reprocessed from the archive",
    steps=(
        Command(("topic", "create", "visits", "--partitions", "2")),
        Narrate(
            "Two pipelines in one Spark session: counts in windows of 10 minutes, and the archive of every record."
        ),
        Start(("visit-counts", "visits-archive", "--timezone", "Europe/Paris", "--trigger", "1s")),
        AwaitBatch("visit-counts", 0),
        AwaitBatch("visits-archive", 0),
        Narrate("The first clicks. They are archived immediately; their window is still open."),
        _clicks(("click-1", "07:00", "home"), ("click-2", "07:01", "index"), ("click-3", "07:02", "page")),
        ExpectCommits("visits_table", 1),
        ExpectNothingNew("visits_counter", "visit-counts"),
        Narrate("Half an hour later: the watermark passes the end of the first window, and the window is published."),
        _clicks(("click-4", "07:33", "home-2"), ("click-5", "07:34", "index-2"), ("click-6", "07:35", "page-2")),
        ExpectCommits("visits_table", 2),
        ExpectRecords("visits_counter", (_window("07:00", "07:10", 3),)),
        Narrate("The same again: the window of 07:30 is closed."),
        _clicks(("click-7", "08:06", "home-3"), ("click-8", "08:07", "index-3"), ("click-9", "08:08", "page-3")),
        ExpectCommits("visits_table", 3),
        ExpectRecords("visits_counter", (_window("07:30", "07:40", 3),)),
        Narrate(
            "Two clicks arrive an hour late. The count ignores them: their window is closed. The archive has them."
        ),
        _clicks(("click-300", "07:03", "page"), ("click-301", "07:04", "page")),
        ExpectCommits("visits_table", 4),
        ExpectNothingNew("visits_counter", "visit-counts"),
        Narrate("Are the published results right? The audit compares them with the archive, and lists the window."),
        ExpectCommand(
            ("audit", *_SPAN, "--timezone", "Europe/Paris"),
            3,
            ("wrong", "2025-09-04T07:00+02:00", "count=3", "count=5", "2", "1 window compared: 1 wrong"),
        ),
        Narrate("Reprocess the window from the archive, with the same code. The live query keeps running."),
        Command(("reprocess", *_SPAN, "--timezone", "Europe/Paris")),
        ExpectRecords("visits_counter", (_window("07:00", "07:10", 5),)),
        ExpectCommand(
            ("audit", *_SPAN, "--timezone", "Europe/Paris"), 0, ("1 window compared: 0 wrong, 0 missing, 0 unexpected",)
        ),
        Narrate("The live query never stopped: more clicks close the next window."),
        _clicks(("click-10", "08:31", "home-4")),
        ExpectRecords("visits_counter", (_window("08:00", "08:10", 3),)),
        Stop(),
    ),
)
