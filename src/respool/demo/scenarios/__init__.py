"""The scenarios, by name; the first is the main one."""

from respool.demo.scenarios import micro_batch
from respool.demo.steps import Scenario

SCENARIOS: dict[str, Scenario] = {one.name: one for one in (micro_batch.SCENARIO,)}
