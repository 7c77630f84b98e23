"""Statistics by browser, of each batch on its own.

Start it with `python`, or with `spark-submit --jars "$(respool jars)"`; it takes the options of `respool run`.
"""

from respool.cli.app import run_job

run_job("browser-stats-stateless")
