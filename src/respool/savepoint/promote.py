"""Make a fork the checkpoint of its pipeline."""

import json
from dataclasses import asdict

from respool.checkpoint.claim import PROMOTED, Promoted
from respool.checkpoint.files import Writer
from respool.checkpoint.steps import Journal
from respool.savepoint import bring
from respool.savepoint.bring import Cargo
from respool.savepoint.copying import Tell


def promote(
    journal: Journal, brought: Cargo, files: Writer, fork: Writer, on_file: Tell = lambda done, total: None
) -> None:
    """Bring a fork's files into a checkpoint, and note in the fork where its query goes on.

    The note counts only while the journal is in the checkpoint's history, and not undone: so it is made first.
    """
    note = Promoted(files.root, journal.id)
    fork.replace(PROMOTED, (json.dumps(asdict(note)) + "\n").encode())
    fork.sync()
    bring.carry_out(journal, brought, files, on_file)
