"""A fork runs a changed session rule on the records since a savepoint; it is compared, then promoted."""

from respool.demo.steps import AwaitBatch, Command, ExpectCommand, ExpectRecords, Narrate, Scenario, Send, Start, Stop


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
_RUN = ("run", "sessions", *_RULE, "--available-now", "--no-dead-letter")
_FORK = ("--from-savepoint", "yesterday", "--sink-suffix", "-v2")

SCENARIO = Scenario(
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
            (*_RUN, *_FORK, "--checkpoint", "{home}/checkpoints/sessions-v2"),
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
        Command(_RUN),
        ExpectRecords(_TOPIC, (_session(3, "08:30", "08:45", 2),)),
    ),
)
