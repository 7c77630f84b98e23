"""`python -m respool` is the `respool` command."""

from respool.cli.app import main

main()
