"""What the files in `jobs/` call: a pipeline's `respool run`, under the name of a script."""

import sys

from respool.cli.app import main


def run_job(pipeline: str) -> None:
    """Run a pipeline with the options that stand behind the script's name."""
    sys.argv = ["respool", "run", pipeline, *sys.argv[1:]]
    main()
