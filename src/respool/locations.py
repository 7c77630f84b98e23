"""Paths on a local disk and URLs of other filesystems, told apart in one place."""

import re
from pathlib import Path

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")


def scheme_of(location: str) -> str | None:
    """Return the scheme of a URL in lower case, as s3 of `s3://bucket/folder`; None for a path.

    `dbfs:/folder`, with one slash, is a URL, too. A scheme has two letters at least: `c:/folder` is a path.
    """
    match = _SCHEME.match(location)
    return match[1].lower() if match else None


def canonical_location(location: str) -> str:
    """Return the one spelling of a path or URL, as two places compare it; a relative path stays relative."""
    if scheme_of(location) is not None:
        return location.rstrip("/")
    return str(Path(location).expanduser())
