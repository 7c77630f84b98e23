"""The micro-batch consumer, by `python` or by `spark-submit --jars "$(respool jars)"`; options as in `respool run`."""

from respool.cli.jobs import run_job

run_job("micro-batch")
