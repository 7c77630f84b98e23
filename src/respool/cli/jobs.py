"""What the files in `jobs/` call: respool's commands on one pipeline, under the name of a script."""

import sys

from respool.cli.app import main


def run_job(pipeline: str, *words: str) -> None:
    """Run a pipeline with these words, and the options that stand behind the name of the script."""
    sys.argv = ["respool", "run", pipeline, *words, *sys.argv[1:]]
    main()


def rewind_job(pipeline: str) -> None:
    """Rewind a pipeline to the batch that stands behind the name of the script, without a question."""
    script, *words = sys.argv
    if not words or (words[0].startswith("-") and "--help" not in words):
        raise SystemExit(f"Usage: {script} N [options of: respool checkpoint rewind]")
    batch = () if "--help" in words else ("--to-batch", words.pop(0), "--yes")
    sys.argv = ["respool", "checkpoint", "rewind", pipeline, *batch, *words]
    main()


def reprocess_job(pipeline: str) -> None:
    """Reprocess the span that stands behind the name of the script."""
    sys.argv = ["respool", "reprocess", pipeline, *sys.argv[1:]]
    main()
