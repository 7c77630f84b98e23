"""Read a small text file that a setting names."""

import errno
import stat
from pathlib import Path

MOST_BYTES = 2**20  # the certificates of all public authorities take a quarter of it


def read_small_text(file: Path) -> str:
    """Return the text of a regular file; a device, which may never end, and a pipe, which may block, are refused.

    Raises:
        OSError: It cannot be read, is not a regular file, or is too large; `strerror` says which.
        UnicodeDecodeError: It is not UTF-8.
    """
    facts = file.stat()
    if stat.S_ISDIR(facts.st_mode):
        raise IsADirectoryError(errno.EISDIR, "Is a directory", str(file))
    if not stat.S_ISREG(facts.st_mode):
        raise OSError(errno.EINVAL, "it is a device, a pipe or a socket; expected a regular file", str(file))
    if facts.st_size > MOST_BYTES:
        raise OSError(errno.EFBIG, f"it has {facts.st_size:,} bytes; expected at most {MOST_BYTES:,}", str(file))
    return file.read_text(encoding="utf-8")
