"""Make an earlier batch of `visit-windows` the next to run: `python jobs/clean_checkpoint_files.py N`.

It takes the options of `respool checkpoint rewind`; `respool checkpoint undo visit-windows` undoes it.
"""

from respool.cli.app import rewind_job

rewind_job("visit-windows")
