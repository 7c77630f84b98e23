"""The scenarios, by name; the first is the main one."""

from respool.demo.scenarios import browsers, early_writer, fork, micro_batch, reprocessor, windows
from respool.demo.steps import Scenario

SCENARIOS: dict[str, Scenario] = {
    scenario.name: scenario
    for scenario in (
        reprocessor.SCENARIO,
        windows.SCENARIO,
        micro_batch.SCENARIO,
        browsers.SCENARIO,
        early_writer.SCENARIO,
        fork.SCENARIO,
    )
}
