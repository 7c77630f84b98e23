"""Counts of visits again, for a span of event time: `python jobs/visits_counter_reprocessing_job.py START END`.

It takes the options of `respool reprocess`; the live query keeps running.
"""

from respool.cli.app import reprocess_job

reprocess_job("visit-counts")
