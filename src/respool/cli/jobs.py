"""What the files in `jobs/` call: a pipeline's `respool run`, under the name of a script."""

import sys

from respool.cli.app import main


def run_job(pipeline: str, *words: str) -> None:
    """Run a pipeline with these words, and the options that stand behind the name of the script."""
    sys.argv = ["respool", "run", pipeline, *words, *sys.argv[1:]]
    main()
