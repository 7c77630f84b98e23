"""The README's tour is typed from top to bottom in an empty folder: every command, and the output that it shows.

A ```sh block holds commands; a comment `exit code 3` names the exit code of a command that does not return 0. A ```text
block shows the output of the block before it, where … stands for anything. A ```python block that begins with the name
of a file is saved under that name.
"""

import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from respool.pipeline.registry import find_pipeline
from respool.settings import load

KEPT = ("JDK_JAVA_OPTIONS", "PYTHONPATH", "XDG_STATE_HOME")  # quick JVMs, this source tree, a key of their own
ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PIPELINES = (ROOT / "docs" / "pipelines.md").read_text(encoding="utf-8")
CONFIGURATION = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")


class Block(NamedTuple):
    language: str
    text: str


class Command(NamedTuple):
    line: str
    exit_code: int


def blocks(document: str) -> list[Block]:
    return [Block(*match) for match in re.findall(r"^```(\w*)\n(.*?)^```$", document, re.DOTALL | re.MULTILINE)]


def commands(block: Block) -> list[Command]:
    lines = re.sub(r" *\\\n *", " ", block.text).splitlines()
    named = [re.search(r" # .*exit code (\d+)(?! if)", line) for line in lines]
    return [
        Command(re.sub(r" +# .*$", "", line), int(code[1]) if code else 0)
        for line, code in zip(lines, named, strict=True)
    ]


def shows(shown: str, output: str) -> bool:
    """Whether the output has the shown text in it: … stands for anything, and spaces and line breaks do not count."""
    pieces = [re.escape(piece.strip()).replace(r"\ ", " ") for piece in " ".join(shown.split()).split("…")]
    return re.search(".*?".join(pieces), " ".join(output.split())) is not None


def file_name(block: Block) -> str:
    return block.text.partition("\n")[0].removeprefix("# ")


def only_block(document: str, language: str, part: str) -> str:
    matches = [block.text for block in blocks(document) if block.language == language and part in block.text]
    assert len(matches) == 1
    return matches[0]


@cache
def help_of(respool: str, *command: str) -> str:
    return subprocess.run([respool, *command, "--help"], capture_output=True, text=True, check=True, timeout=60).stdout


def test_the_tour_works_as_it_is_written(tmp_path: Path, respool: str) -> None:
    environment = {
        "PATH": f"{Path(respool).parent}:/usr/bin:/bin",
        "HOME": str(Path.home()),
        **{
            name: os.environ[name]
            for name in ("JDK_JAVA_OPTIONS", "XDG_STATE_HOME", "PYTHONPATH")
            if name in os.environ
        },
    }

    def type_in(line: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-c", line],
            cwd=tmp_path,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
            check=False,
        )

    tour = blocks(README.partition("\n## The tour\n")[2])
    assert {block.language for block in tour} == {"sh", "text", "python"}
    output = ""
    try:
        for block in tour:
            if block.language == "python":
                (tmp_path / file_name(block)).write_text(block.text, encoding="utf-8")
            elif block.language == "text":
                assert shows(block.text, output), f"The README shows\n\n{block.text}\nand the output is\n\n{output}"
            else:
                output = ""
                for command in commands(block):
                    result = type_in(command.line)
                    print(f"$ {command.line}\n{result.stdout}[exit code {result.returncode}]")
                    assert result.returncode == command.exit_code, f"{command.line}\n{result.stdout}"
                    output += result.stdout
    finally:
        type_in("respool broker stop")


def test_the_readme_is_short_and_ordered() -> None:
    assert len(README.splitlines()) <= 200
    assert [line for line in README.splitlines() if re.match(r"### \d", line)] == [
        "### 1. Rewind and undo",
        "### 2. Savepoint and fork",
        "### 3. Audit and reprocess",
        "### 4. Your own pipeline",
        "### 5. The Python API",
    ]


def anchors(document: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", document.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


def test_every_link_leads_somewhere() -> None:
    for document in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")):
        for target, anchor in re.findall(r"\]\(([^)#:]*)#?([^)]*)\)", document.read_text(encoding="utf-8")):
            file = (document.parent / target) if target else document
            assert file.exists(), f"{document.name} links to {target}"
            assert not anchor or anchor in anchors(file), f"{document.name} links to {target}#{anchor}"


def test_contributing_names_files_that_exist() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    names = {name for name in re.findall(r"`([\w./]+(?:\.py|\.md|\.json|\.toml|/))`", text) if "<" not in name}
    assert len(names) > 20
    for name in names:
        folders = (
            ROOT,
            ROOT / "src" / "respool",
            ROOT / "src" / "respool" / "checkpoint",
            ROOT / "src" / "respool" / "cli",
        )
        assert any((folder / name).exists() for folder in (*folders, ROOT / "src/respool/spark")), (
            f"{name} does not exist"
        )


def test_the_test_of_a_pipeline_passes(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(only_block(README, "python", "orders = Pipeline("), encoding="utf-8")
    (tmp_path / "test_shop.py").write_text(only_block(PIPELINES, "python", "run_batches("), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout


def test_the_settings_of_the_documentation_are_read(tmp_path: Path) -> None:
    (tmp_path / "respool.toml").write_text(only_block(CONFIGURATION, "toml", "[kafka]"), encoding="utf-8")
    settings = load(environ={"KAFKA_PASSWORD": "secret"}, folder=tmp_path)
    assert settings.kafka["sasl.password"] == "secret"
    assert settings.spark == {"spark.executor.memory": "4g"}
    assert find_pipeline("visit-counts", settings.pipelines["visit-counts"]).summary.startswith(
        "Counts visits in windows of 15"
    )


DOCUMENTS = [README, *(file.read_text(encoding="utf-8") for file in sorted((ROOT / "docs").glob("*.md")))]
LINES = {
    command.line.removeprefix("$ ")
    for document in DOCUMENTS
    for block in blocks(document)
    for command in commands(block)
    if command.line.startswith(("$ respool ", "respool ")) and block.language in ("", "sh")
}


@pytest.mark.parametrize("line", sorted(LINES))
def test_every_command_and_option_of_the_documentation_exists(line: str, respool: str) -> None:
    words = line.split()[1:]
    command = words[:2] if words[0] in ("archive", "broker", "checkpoint", "savepoint", "topic") else words[:1]
    text = help_of(respool, *command)
    for option in (word for word in words if word.startswith("--")):
        assert option in text, f"respool {' '.join(command)} has no {option}"
