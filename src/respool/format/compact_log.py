"""The compacted log of a file source or a file sink: which of its files Spark reads.

`sources/<source>/N` and `_spark_metadata/N` hold the entries of batch N, `N.compact` the entries of all batches up to
N. Spark reads the newest compact file and the files after it; a log without a compact file starts at 0.
"""

from collections.abc import Collection, Iterable, Iterator

from respool.format import layout

_COMPACT = ".compact"


def number_of(name: str) -> int | None:
    """Return the number of a log file from its name, `N` or `N.compact`; None for any other name."""
    return layout.batch(name.removesuffix(_COMPACT))


def numbers_by_name(names: Iterable[str]) -> dict[str, int]:
    """Return the log files among the names of a folder, each with its number."""
    return {name: number for name in names if (number := number_of(name)) is not None}


def files_up_to(names: Collection[str], last: int) -> list[str] | None:
    """Return the log files that hold all entries up to `last`, the oldest first; None when one of them is missing."""
    files: list[str] = []
    for number in range(last, -1, -1):
        if f"{number}{_COMPACT}" in names:
            return [f"{number}{_COMPACT}", *reversed(files)]
        if str(number) not in names:
            return None
        files.append(str(number))
    return files[::-1]


def expected_files(names: Collection[str], last: int) -> Iterator[str]:
    """Yield the log files that Spark reads when `last` is the newest; few need to exist, whatever number `last` is.

    Spark derives which files are compact from the distance between the last two compact files.
    """
    compact = sorted(int(name.removesuffix(_COMPACT)) for name in names if name.endswith(_COMPACT))
    if len(compact) > 1:
        every = compact[-1] - compact[-2]
        first = max(0, (last + 1) // every * every - 1)
        for number in range(first, last + 1):
            yield f"{number}{_COMPACT}" if (number + 1) % every == 0 else str(number)
    elif compact:
        yield f"{compact[0]}{_COMPACT}"
        yield from (str(number) for number in range(compact[0] + 1, last + 1))
    else:
        yield from (str(number) for number in range(last + 1))
