"""The command line and the progress lines of the peers' programs.

Each peer runs in a separate environment, so only the standard library is used here. `engines.environ_of` puts the
repository on their PYTHONPATH.
"""

import argparse
import json
from collections.abc import Sequence


def make_parser(jobs: Sequence[str] = ("counts", "sessions")) -> argparse.ArgumentParser:
    """Return a parser for the job, the topic that is read, the broker, and where results go."""
    parser = argparse.ArgumentParser()
    parser.add_argument("job", choices=jobs)
    for name in ("topic", "servers", "output"):
        parser.add_argument(f"--{name}", required=True)
    return parser


def parse_arguments() -> argparse.Namespace:
    """Return the arguments of a program that reads a fixed number of events."""
    parser = make_parser()
    parser.add_argument("--events", type=int, required=True)
    return parser.parse_args()


def report(**values: object) -> None:
    """Print a line of JSON for `measure.py`: `events` for all events so far, or `rows` for those of one batch."""
    print(json.dumps(values), flush=True)
