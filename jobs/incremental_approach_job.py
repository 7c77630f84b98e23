"""Sessions written early, by the walk-through's rule.

Start it with `python`, or with `spark-submit --jars "$(respool jars)"`; it takes the options of `respool run`.
"""

from respool.cli.app import run_job

run_job("sessions", "--set", "rule=timer", "--console")
