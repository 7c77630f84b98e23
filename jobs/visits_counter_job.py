"""Counts of visits, each window once.

Start it with `python`, or with `spark-submit --jars "$(respool jars)"`; it takes the options of `respool run`.
"""

from respool.cli.app import run_job

run_job("visit-counts")
