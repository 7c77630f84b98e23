"""The scenarios, by name; the first is the main one."""

from respool.demo.scenarios import console, topics
from respool.demo.steps import Scenario

SCENARIOS: dict[str, Scenario] = {
    scenario.name: scenario
    for scenario in (
        topics.REPROCESSOR,
        console.WINDOWS,
        console.MICRO_BATCH,
        topics.BROWSERS,
        console.EARLY_WRITER,
        topics.FORK,
    )
}
