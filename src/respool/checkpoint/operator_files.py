"""The files that Spark reads for a stateful operator when a query starts: its metadata and its schemas.

Version 1 of the metadata is one file, written once; Spark can start without it. Version 2 is one file for each run of
the query. It names the schema files by their full address; Spark reads the newest file of an earlier batch.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass

from respool.checkpoint.snapshot import CheckpointSnapshot
from respool.errors import CheckpointError, UnknownFormatVersionError
from respool.format import layout, logs, state_schema
from respool.format.model import OperatorMetadata
from respool.format.state_schema import UnknownSchemaError
from respool.locations import local_path
from respool.storage.folder import is_denied, reason


@dataclass(frozen=True)
class OperatorFlaw:
    """A problem with a file of an operator.

    Attributes:
        path: The file.
        what: The problem, as a predicate that follows the path.
        elsewhere: Whether the only problem is that it names files of another folder.
        denied: Whether the only problem is a missing permission.
        unknown: Whether it has a format version that respool does not support: it need not be damaged.
    """

    path: str
    what: str
    elsewhere: bool = False
    denied: bool = False
    unknown: bool = False


def has_runs(checkpoint: CheckpointSnapshot, operator: int) -> bool:
    """Return whether an operator has metadata for each run of the query: version 2."""
    base = f"state/{operator}"
    return any(folder.startswith((f"{base}/_metadata/v2", f"{base}/_stateSchema")) for folder in checkpoint.folders)


def runs(checkpoint: CheckpointSnapshot, operator: int) -> tuple[int, ...]:
    """Return the first batches of the runs for which an operator has metadata of version 2."""
    return layout.batches(checkpoint.folders.get(f"state/{operator}/_metadata/v2", ()))


def flaw_of_run(checkpoint: CheckpointSnapshot, operator: int, batch: int) -> OperatorFlaw | None:
    """Return why Spark cannot read an operator's metadata of version 2 for a start at a batch; None if it can."""
    if batch == 0:
        return None
    folder = f"state/{operator}/_metadata/v2"
    run = max((first for first in runs(checkpoint, operator) if first < batch), default=None)
    if run is None:
        return OperatorFlaw(folder, f"has no file of a run before batch {batch}")
    path = f"{folder}/{run}"
    try:
        addresses = logs.schema_paths(path, logs.decode(path, checkpoint.files.read(path)))
    except (CheckpointError, OSError) as error:
        return _flaw_of_error(path, error)
    for address in addresses:
        flaw = _flaw_of_address(checkpoint, path, address)
        if flaw is not None:
            return flaw
    return None


def schemas(checkpoint: CheckpointSnapshot, operator: int) -> Iterator[tuple[str, bool]]:
    """Yield the path of each schema file of an operator of version 1, and whether it exists."""
    for name in checkpoint.store_names(operator) or ("default",):
        folder = f"state/{operator}/0" + ("" if name == "default" else f"/{name}") + "/_metadata"
        yield f"{folder}/schema", "schema" in checkpoint.folders.get(folder, ())


def flaw_of_metadata(checkpoint: CheckpointSnapshot, path: str) -> OperatorFlaw | None:
    """Return why Spark cannot read an operator's metadata of version 1; None if it can, or if the file is missing."""
    try:
        logs.operator_stores(path, logs.decode(path, checkpoint.files.read(path)))
    except FileNotFoundError:
        return None
    except (CheckpointError, OSError) as error:
        return _flaw_of_error(path, error)
    return None


def flaw_of_schema(checkpoint: CheckpointSnapshot, path: str) -> OperatorFlaw | None:
    """Return why Spark cannot read a schema file; None if it can."""
    try:
        state_schema.families(checkpoint.files.read(path))
    except (CheckpointError, OSError) as error:
        return OperatorFlaw(path, f"cannot be read: {reason(error)}", denied=is_denied(error))
    except UnknownSchemaError as error:
        return OperatorFlaw(path, str(error), unknown=True)
    except ValueError as error:
        return OperatorFlaw(path, f"is damaged: {error}")
    return None


def _flaw_of_error(path: str, error: Exception) -> OperatorFlaw:
    return OperatorFlaw(
        path, reason(error), denied=is_denied(error), unknown=isinstance(error, UnknownFormatVersionError)
    )


def _flaw_of_address(checkpoint: CheckpointSnapshot, path: str, address: str) -> OperatorFlaw | None:
    before, _, after = address.rpartition("/state/")
    inside = f"state/{after}"
    folder, _, name = inside.rpartition("/")
    exists = name in checkpoint.folders.get(folder, ())
    if not checkpoint.is_copy and _place(before) != _place(checkpoint.root):
        return OperatorFlaw(path, f"names the schema {address}, which is not in this checkpoint", elsewhere=exists)
    if not exists:
        return OperatorFlaw(path, f"names the schema {inside}, which is missing")
    return flaw_of_schema(checkpoint, inside)


def _place(address: str) -> str:
    """Return the canonical form of an address, equal for two addresses of the same folder."""
    local = local_path(address)
    if local is not None:
        return os.path.realpath(local)  # Spark writes these addresses as they are, without percent-encoding
    return address.partition("://")[2].rstrip("/")


def metadata_path(checkpoint: CheckpointSnapshot, number: int, batch: int) -> str | None:
    """Return the path of an operator's metadata as it was when a batch ran; None when there is no such file."""
    base = f"state/{number}/_metadata"
    runs = [run for run in layout.batches(checkpoint.folders.get(f"{base}/v2", ())) if run <= batch]
    if runs:
        return f"{base}/v2/{runs[-1]}"
    return f"{base}/metadata" if "metadata" in checkpoint.folders.get(base, ()) else None


def metadata_of(checkpoint: CheckpointSnapshot, number: int, batch: int) -> OperatorMetadata | None:
    """Return the metadata of an operator as it was when a batch ran; None when there is no such file."""
    path = metadata_path(checkpoint, number, batch)
    return None if path is None else logs.operator_metadata(path, logs.decode(path, checkpoint.files.read(path)))
