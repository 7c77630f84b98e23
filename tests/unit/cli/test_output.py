"""How commands show progress."""

import logging
from collections.abc import Iterator

import pytest

from respool.cli.render.output import DownloadHandler, slices

LOGGER = logging.getLogger("respool.jars")


@pytest.fixture
def handler(monkeypatch: pytest.MonkeyPatch) -> Iterator[DownloadHandler]:
    handler = DownloadHandler()
    monkeypatch.setattr(LOGGER, "handlers", [handler])  # without those of commands that ran in this process
    before = LOGGER.level
    LOGGER.setLevel(logging.INFO)
    yield handler
    LOGGER.setLevel(before)


def download(total: int) -> None:
    LOGGER.info("Downloading the %s jars …", "spark")
    for done in range(1, total + 1):
        LOGGER.info("  %d of %d jars", done, total, extra={"done": done, "total": total})


@pytest.mark.usefixtures("handler")
def test_a_download_is_shown_in_a_line_for_every_tenth_jar(capsys: pytest.CaptureFixture[str]) -> None:
    download(25)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == ["Downloading the spark jars …", "  10 of 25 jars", "  20 of 25 jars"]


@pytest.mark.usefixtures("handler")
def test_a_download_is_shown_as_a_bar_on_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    download(25)
    assert "  10 of 25 jars" not in capsys.readouterr().err


def test_a_single_slice_shows_no_progress_and_many_show_twenty_lines(capsys: pytest.CaptureFixture[str]) -> None:
    with slices() as on_progress:
        on_progress(1, 1)
    assert capsys.readouterr() == ("", "")
    with slices() as on_progress:
        for done in range(1, 41):
            on_progress(done, 40)
    lines = capsys.readouterr().err.splitlines()
    assert (len(lines), lines[0], lines[-1]) == (20, "slice 2 of 40", "slice 40 of 40")
