"""The same statistics by browser, stateless and stateful, and which late events the watermark accepts."""

from respool.demo.steps import (
    AwaitBatch,
    AwaitWatermark,
    Command,
    ExpectNothingNew,
    ExpectRecords,
    Narrate,
    Scenario,
    Send,
    Start,
    Stop,
)


def _visits(*visits: tuple[str, str]) -> Send:
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


_FIRST = _visits(("Firefox", "10:00"), ("Chrome", "10:01"), ("Safari", "10:02"))
_FIRST_STATS = (
    _stats("Chrome", "10:00", "10:05", 1, "10:01"),
    _stats("Safari", "10:00", "10:05", 1, "10:02"),
    _stats("Firefox", "10:00", "10:05", 1, "10:00"),
)
_SECOND = _visits(("Firefox", "10:00"), ("Firefox", "10:03"))
_STATELESS, _STATEFUL = "browser-stats-stateless", "browser-stats-stateful"

SCENARIO = Scenario(
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
        _visits(("Firefox", "09:40")),
        ExpectRecords(_STATEFUL, (_stats("Firefox", "09:40", "09:45", 1, "09:40"),)),
        Narrate("A visit from before the watermark: nothing is published."),
        _visits(("Firefox", "09:30")),
        ExpectNothingNew(_STATEFUL, _STATEFUL),
        Narrate("10:30 moves the watermark to 10:10."),
        _visits(("Firefox", "10:30")),
        ExpectRecords(_STATEFUL, (_stats("Firefox", "10:30", "10:35", 1, "10:30"),)),
        AwaitWatermark(_STATEFUL, "2024-10-06T10:10:00Z"),
        Narrate("The window of 10:00 existed; the watermark has closed it, and nothing is published."),
        _visits(("Firefox", "10:00")),
        ExpectNothingNew(_STATEFUL, _STATEFUL),
        Stop(),
    ),
)
