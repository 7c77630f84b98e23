"""Check a savepoint: that its bytes are what was saved, and that a query could start from it."""

from dataclasses import dataclass

from respool.checkpoint import target
from respool.checkpoint.verifying.verify import verify as verify_checkpoint
from respool.savepoint.copying import Tell, check
from respool.savepoint.store import Savepoint


@dataclass(frozen=True)
class Verified:
    """What was found of a savepoint.

    Attributes:
        wrong: What is broken; nothing when a query can start from it.
        notes: What else to know.
    """

    wrong: tuple[str, ...]
    notes: tuple[str, ...]


def verify(savepoint: Savepoint, on_file: Tell = lambda done, total: None) -> Verified:
    """Return what is wrong with a savepoint; every byte of it is read."""
    manifest, files = savepoint.manifest, savepoint.files()
    wrong = check(manifest.files, files, on_file)
    if wrong:
        return Verified(tuple(wrong), ())
    known = {one.path for one in manifest.files}
    notes = [f"{path} is not of this savepoint." for path in sorted(files.below("")) if path not in known]
    checkpoint = savepoint.checkpoint()
    why = target.obstacle(checkpoint, manifest.next_batch, same_range=False)
    checks = verify_checkpoint(checkpoint)
    found = [one.what for group in checks if group.status == "broken" for one in group.found]
    return Verified(tuple([f"{why}."] if why else found), tuple(notes))
