"""Scenarios whose jobs write to Kafka topics."""

from respool.demo.steps import (
    AwaitBatch,
    AwaitWatermark,
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

# Visits are counted live and archived; late clicks reach only the archive, and their window is reprocessed.
REPROCESSOR = Scenario(
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


def _browser_visits(*visits: tuple[str, str]) -> Send:
    return Send(
        "visits",
        tuple(
            f'{{"userId": 1, "page": "index.html", "eventTime": "2024-10-06T{time}:00Z", "browser": "{browser}"}}'
            for browser, time in visits
        ),
    )


def _stats(browser: str, start: str, end: str, count: int, last: str) -> str:
    window = f'{{"start":"2024-10-06T{start}:00.000Z","end":"2024-10-06T{end}:00.000Z"}}'
    newest = f'"last_event_time_in_window":"2024-10-06T{last}:00.000Z"'
    return f'{{"browser":"{browser}","window":{window},"count":{count},{newest}}}'


_FIRST = _browser_visits(("Firefox", "10:00"), ("Chrome", "10:01"), ("Safari", "10:02"))
_FIRST_STATS = (
    _stats("Chrome", "10:00", "10:05", 1, "10:01"),
    _stats("Safari", "10:00", "10:05", 1, "10:02"),
    _stats("Firefox", "10:00", "10:05", 1, "10:00"),
)
_SECOND = _browser_visits(("Firefox", "10:00"), ("Firefox", "10:03"))
_STATELESS, _STATEFUL = "browser-stats-stateless", "browser-stats-stateful"

# The same statistics by browser, stateless and stateful, and which late events the watermark accepts.
BROWSERS = Scenario(
    name="browsers",
    title="Statistics by browser: a stateless job counts each batch, a stateful job adds up within a watermark",
    steps=(
        Command(("topic", "create", "visits", "--partitions", "2")),
        Narrate("The stateless job: every batch is counted on its own."),
        Start((_STATELESS, "--trigger", "1s", "--no-dead-letter")),
        AwaitBatch(_STATELESS, 0),
        _FIRST,
        ExpectRecords(_STATELESS, _FIRST_STATS),
        Narrate("Two more Firefox visits of the same window: it counts 2, without the first."),
        _SECOND,
        ExpectRecords(_STATELESS, (_stats("Firefox", "10:00", "10:05", 2, "10:03"),)),
        Stop(),
        Narrate("The stateful job, on an empty broker, with the same visits."),
        Command(("broker", "reset", "--yes")),
        Command(("broker", "start")),
        Command(("topic", "create", "visits", "--partitions", "2")),
        Start((_STATEFUL, "--trigger", "1s", "--no-dead-letter")),
        AwaitBatch(_STATEFUL, 0),
        _FIRST,
        ExpectRecords(_STATEFUL, _FIRST_STATS),
        Narrate("The same two Firefox visits: it counts 3."),
        _SECOND,
        ExpectRecords(_STATEFUL, (_stats("Firefox", "10:00", "10:05", 3, "10:03"),)),
        Narrate("An old visit, but not older than the watermark allows: it opens a window."),
        _browser_visits(("Firefox", "09:40")),
        ExpectRecords(_STATEFUL, (_stats("Firefox", "09:40", "09:45", 1, "09:40"),)),
        Narrate("A visit from before the watermark: nothing is published."),
        _browser_visits(("Firefox", "09:30")),
        ExpectNothingNew(_STATEFUL, _STATEFUL),
        Narrate("10:30 moves the watermark to 10:10."),
        _browser_visits(("Firefox", "10:30")),
        ExpectRecords(_STATEFUL, (_stats("Firefox", "10:30", "10:35", 1, "10:30"),)),
        AwaitWatermark(_STATEFUL, "2024-10-06T10:10:00Z"),
        Narrate("The window of 10:00 existed; the watermark has closed it, and nothing is published."),
        _browser_visits(("Firefox", "10:00")),
        ExpectNothingNew(_STATEFUL, _STATEFUL),
        Stop(),
    ),
)


def _visits(*visits: tuple[int, str]) -> Send:
    return Send(
        "visits",
        tuple(
            f'{{"visit_id": {visit}, "event_time": "2025-09-04T{time}:00Z", "page": "home"}}' for visit, time in visits
        ),
    )


def _session(visit: int, start: str, end: str, pages: int, finished: bool = False) -> str:
    times = f'"session_start":"2025-09-04T{start}:00.000Z","session_end":"2025-09-04T{end}:00.000Z"'
    return f'{{"visit_id":"{visit}",{times},"visited_pages":{pages},"is_finished":{str(finished).lower()}}}'


_TOPIC, _FORKED_TOPIC = "visit_sessions", "visit_sessions-v2"
_RULE = ("--set", "gap=20 minutes")
_RUN_RULE = ("run", "sessions", *_RULE, "--available-now", "--no-dead-letter")
_FORK = ("--from-savepoint", "yesterday", "--sink-suffix", "-v2")

# A fork runs a changed session rule on the records since a savepoint; it is compared, then promoted.
FORK = Scenario(
    name="fork",
    title="A fork runs a changed session rule on the records since yesterday; it is compared, then promoted",
    steps=(
        Command(("topic", "create", "visits", "--partitions", "2")),
        Narrate("Sessions, live: pages of a visit more than 10 minutes apart belong to two sessions."),
        Start(("sessions", "--trigger", "1s", "--no-dead-letter")),
        AwaitBatch("sessions", 0),
        _visits((1, "07:00"), (1, "07:05")),
        ExpectRecords(_TOPIC, (_session(1, "07:00", "07:05", 2),)),
        AwaitBatch("sessions", 2),
        Narrate("Create a savepoint while the query runs. The session of visit 1 is open in it."),
        ExpectCommand(
            ("savepoint", "create", "sessions", "yesterday", "--reason", "before the new rule"), 0, ("at batch 2",)
        ),
        Narrate("More visits. Visit 1 returns after 15 minutes: a second session, by the rule."),
        _visits((1, "07:20"), (2, "07:20"), (2, "07:24"), (3, "08:30")),
        ExpectRecords(
            _TOPIC,
            (
                _session(1, "07:20", "07:20", 1),
                _session(2, "07:20", "07:24", 2),
                _session(3, "08:30", "08:30", 1),
                _session(1, "07:00", "07:05", 2, finished=True),
                _session(1, "07:20", "07:20", 1, finished=True),
                _session(2, "07:20", "07:24", 2, finished=True),
            ),
        ),
        Narrate(
            "A fork of the savepoint runs the new rule, 20 minutes, on the records since then, and writes to its own "
            "topic."
        ),
        ExpectCommand(
            (*_RUN_RULE, *_FORK, "--checkpoint", "{home}/checkpoints/sessions-v2"),
            0,
            (
                "changed: setting results: sessions with a gap of 10 minutes → sessions with a gap of 20 minutes",
                "Spark starts the changed pipeline from the savepoint.",
                "Batch 3 is the next to run.",
            ),
        ),
        ExpectRecords(
            _FORKED_TOPIC,
            (
                _session(1, "07:00", "07:20", 3),
                _session(2, "07:20", "07:24", 2),
                _session(3, "08:30", "08:30", 1),
                _session(1, "07:00", "07:20", 3, finished=True),
                _session(2, "07:20", "07:24", 2, finished=True),
            ),
        ),
        Narrate("The original query kept running. What does the new rule change? Visit 1 has one session, not two."),
        ExpectCommand(
            ("diff", "sessions", "sessions-v2"),
            3,
            (
                "differs visit_id=1 session_start=2025-09-04T07:00:00.000Z",
                "session_end 2025-09-04T07:05:00.000Z → 2025-09-04T07:20:00.000Z, visited_pages 2 → 3",
                "only in A visit_id=1 session_start=2025-09-04T07:20:00.000Z",
                "2 rows equal, 1 differs, 1 only in A, 0 only in B.",
            ),
        ),
        Narrate("As intended. The original stops, and the fork replaces it; the original is kept as a savepoint."),
        Stop(),
        ExpectCommand(
            ("promote", "sessions-v2", "sessions", "--keep-as", "old-rule", "--yes"),
            0,
            (
                "The fork ran a changed pipeline: setting",
                "kept as the savepoint old-rule.",
                "Batch 5 is the next to run.",
            ),
        ),
        ExpectCommand(("savepoint", "list"), 0, ("yesterday sessions 2", "old-rule sessions 4")),
        ExpectCommand(
            ("checkpoint", "show", "sessions"), 0, ("5 is next", "yesterday at batch 2", "old-rule at batch 4")
        ),
        Narrate("The pipeline continues with the new rule, in its own topic: visit 3 also returns after 15 minutes."),
        _visits((3, "08:45")),
        Command(_RUN_RULE),
        ExpectRecords(_TOPIC, (_session(3, "08:30", "08:45", 2),)),
    ),
)
