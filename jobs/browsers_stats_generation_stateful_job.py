"""Statistics by browser, kept from batch to batch.

Start it with `python`, or with `spark-submit --jars "$(respool jars)"`; it takes the options of `respool run`.
"""

from respool.cli.app import run_job

run_job("browser-stats-stateful")
