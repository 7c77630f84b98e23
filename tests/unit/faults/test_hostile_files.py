"""Checkpoints, savepoints and journals written by somebody else: nothing outside of them is read or changed."""

import json
import os
import shutil
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from respool.checkpoint import ownership
from respool.checkpoint.journal import apply, history, installation
from respool.checkpoint.journal.steps import Journal, LogEnds, Move, Prune, Replace, Restore
from respool.checkpoint.snapshot import CheckpointSnapshot
from respool.checkpoint.verify.run import verify as verify_checkpoint
from respool.cli.app import app
from respool.delta.restore import RestoreTable
from respool.errors import CheckpointError
from respool.savepoint.store import SavepointStore
from respool.storage import folder
from respool.storage.folder import FolderWriter
from respool.storage.local import LocalReader, LocalWriter
from respool.storage.open import new_writer, open_reader, open_writer
from support.checkpoints import unpack
from support.savepoints import save

OLD = datetime(2020, 1, 1, tzinfo=timezone.utc)
LEAVING = ("../x", "a/../../x", "/x", "..", "a//x", "./x", "a\nb", "")


def respool(*words: str, answer: str | None = None) -> Result:
    return CliRunner().invoke(app, list(words), input=answer, catch_exceptions=True)


def failure(*words: str, answer: str | None = None) -> str:
    """Run a command that must be refused; return the message."""
    result = respool(*words, answer=answer)
    assert isinstance(result.exception, CheckpointError), (result.exit_code, result.output, result.exception)
    return str(result.exception)


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder with a file that nobody may touch."""
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "precious").write_text("mine")
    return folder


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return unpack(tmp_path, "transform")


@pytest.fixture
def store(tmp_path: Path) -> SavepointStore:
    return SavepointStore(str(tmp_path / "store"))


def is_untouched(outside: Path) -> bool:
    return os.listdir(outside) == ["precious"] and (outside / "precious").read_text() == "mine"


def everything(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# Paths


@pytest.fixture(params=["local", "memory"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> FolderWriter:
    if request.param == "memory":
        return open_writer(f"memory://{tmp_path.name}/checkpoint")
    (tmp_path / "checkpoint").mkdir()
    return open_writer(str(tmp_path / "checkpoint"))


@pytest.mark.parametrize("path", LEAVING)
def test_a_path_that_leads_out_of_the_folder_is_refused_by_every_method(files: FolderWriter, path: str) -> None:
    files.create("a/b", b"1")
    calls: list[Callable[[], object]] = [
        lambda: files.read(path),
        lambda: list(files.chunks(path)),
        lambda: files.create(path, b"x"),
        lambda: files.replace(path, b"x"),
        lambda: files.write(path, [b"x"]),
        lambda: files.move("a/b", path),
        lambda: files.move(path, "c"),
        lambda: files.delete(path),
    ]
    if path:  # of a folder, the empty path is the folder itself
        calls += [lambda: files.below(path), lambda: files.names(path), lambda: files.folders(path)]
        calls += [lambda: files.prune(path)] if isinstance(files, LocalWriter) else []
    for call in calls if path or isinstance(files, LocalWriter) else calls[:0]:
        with pytest.raises(CheckpointError):
            call()
    assert files.facts([path]) == {} or not path
    assert files.read("a/b") == b"1"


def test_no_link_below_the_folder_is_followed(tmp_path: Path, outside: Path) -> None:
    root = tmp_path / "root"
    (root / "real").mkdir(parents=True)
    (root / "link").symlink_to(outside)
    (root / "real" / "file").symlink_to(outside / "precious")
    (root / "mine").write_text("x")
    files = LocalWriter(root)
    for call in (
        lambda: files.read("link/precious"),
        lambda: files.read("real/file"),
        lambda: list(files.chunks("real/file")),
        lambda: files.replace("link/precious", b"x"),
        lambda: files.create("link/new", b"x"),
        lambda: files.move("link/precious", "real/stolen"),
        lambda: files.move("real/file", "real/moved"),
        lambda: files.move("mine", "link/x"),
        lambda: files.delete("link/precious"),
        lambda: files.below("link"),
        lambda: files.names("link"),
        lambda: files.prune("link"),
    ):
        with pytest.raises(CheckpointError, match="symbolic link"):
            call()
    assert files.facts(["link/precious"]) == {}
    assert files.folders("") == ["real"]
    assert sorted(files.below("")) == ["link", "mine", "real/file"]
    assert set(files.walk().unreadable) == {"link", "real/file"}
    files.delete("real/file")  # the link, not what it leads to
    files.delete("link")
    assert is_untouched(outside)
    assert files.below("") == ["mine"]


def test_a_replaced_link_is_replaced_itself(tmp_path: Path, outside: Path) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "a").symlink_to(outside / "precious")
    LocalWriter(tmp_path / "root").replace("a", b"new")
    assert is_untouched(outside)
    assert (tmp_path / "root" / "a").read_bytes() == b"new"


def test_the_folder_itself_may_be_named_by_a_link(checkpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(checkpoint)
    assert (
        CheckpointSnapshot(LocalReader(tmp_path / "link")).offsets
        == CheckpointSnapshot(LocalReader(checkpoint)).offsets
    )


# Hangs


def test_links_that_lead_in_circles_are_reported(checkpoint: Path, store: SavepointStore, tmp_path: Path) -> None:
    (checkpoint / "state" / "a").symlink_to(".")
    (checkpoint / "state" / "b").symlink_to(".")
    result = respool("checkpoint", "verify", str(checkpoint))
    assert result.exit_code == 3
    assert "state/a cannot be read: it is a symbolic link" in result.stdout
    home = ("--home", str(tmp_path / "home"))
    assert "symbolic link" in failure("checkpoint", "rewind", str(checkpoint), "--last", "1", "--yes", *home)
    assert "symbolic link" in failure(
        "savepoint", "create", str(checkpoint), "one", "--savepoints", store.location, *home
    )
    assert store.names() == []
    assert {"state/a", "state/b"} < set(LocalReader(checkpoint).below("state"))


def test_state_behind_a_link_is_not_left_out_of_a_savepoint(
    checkpoint: Path, store: SavepointStore, tmp_path: Path
) -> None:
    (checkpoint / "state").rename(tmp_path / "other-disk")
    (checkpoint / "state").symlink_to(tmp_path / "other-disk")
    before = everything(tmp_path / "other-disk")
    with pytest.raises(CheckpointError, match="state cannot be read: it is a symbolic link"):
        save(checkpoint, store)
    message = failure("checkpoint", "rewind", str(checkpoint), "--last", "1", "--yes", "--home", str(tmp_path / "home"))
    assert "state cannot be read: it is a symbolic link" in message
    assert everything(tmp_path / "other-disk") == before


@pytest.mark.parametrize("path", ["offsets/5", "commits/5", "metadata", "state/0/0/13.delta", "_respool/pending.json"])
def test_a_fifo_in_place_of_a_file_is_reported_and_never_waited_for(checkpoint: Path, path: str) -> None:
    place = checkpoint / path
    place.parent.mkdir(exist_ok=True, parents=True)
    place.unlink(missing_ok=True)
    os.mkfifo(place)
    with pytest.raises(CheckpointError, match="is a FIFO; expected a regular file"):
        LocalReader(checkpoint).read(path)
    problems = [
        finding.what
        for check in verify_checkpoint(CheckpointSnapshot(LocalReader(checkpoint)))
        for finding in check.findings
    ]
    assert any("FIFO" in problem for problem in problems), problems
    with pytest.raises(CheckpointError, match="is a FIFO"):
        list(LocalReader(checkpoint).chunks(path))


def test_sockets_and_devices_are_not_read(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
        with pytest.raises(CheckpointError, match="is a socket; expected a regular file"):
            LocalReader(tmp_path).read("socket")
    with pytest.raises(CheckpointError, match="is a device; expected a regular file"):
        LocalReader(Path("/dev")).read("null")
    with pytest.raises(CheckpointError, match="is a folder; expected a regular file"):
        LocalReader(tmp_path.parent).read(tmp_path.name)


def test_a_huge_file_is_not_read_as_a_whole(tmp_path: Path) -> None:
    with (tmp_path / "offsets").open("wb") as file:
        file.truncate(20 * 2**30)
    with pytest.raises(CheckpointError, match="has 21,474,836,480 bytes; at most"):
        LocalReader(tmp_path).read("offsets")


def test_a_huge_object_is_not_read_as_a_whole(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    files = open_writer(f"memory://{tmp_path.name}/huge")
    files.replace("offsets/0", b"x" * 11)
    monkeypatch.setattr(folder, "MAX_BYTES", 10)
    again = open_reader(files.root)
    with pytest.raises(CheckpointError, match="offsets/0 has 11 bytes; at most 10 are read as a whole"):
        again.read("offsets/0")
    again.walk()
    assert isinstance(again.read_many(["offsets/0"])["offsets/0"], CheckpointError)
    assert list(again.chunks("offsets/0")) == [b"x" * 11]


# Places that a file names


@pytest.fixture
def server() -> Iterator[socket.socket]:
    """A server of somebody else, which does not answer."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        yield listening


def test_a_server_that_a_savepoint_names_is_not_contacted(
    store: SavepointStore, checkpoint: Path, tmp_path: Path, server: socket.socket
) -> None:
    manifest = Path(save(checkpoint, store).location) / "manifest.json"
    facts = json.loads(manifest.read_text())
    facts["checkpoint"] = f"ftp://127.0.0.1:{server.getsockname()[1]}/checkpoint"
    manifest.write_text(json.dumps(facts))
    place = ("--dry-run", "--savepoints", store.location, "--home", str(tmp_path / "home"))
    forked = respool("savepoint", "fork", "one", str(tmp_path / "fork"), *place)
    assert forked.exit_code == 0 or "input files" in forked.output, forked.output
    with pytest.raises(BlockingIOError):
        server.accept()


@pytest.mark.parametrize("kind", ["files", "table"])
def test_a_server_that_a_journal_names_is_not_contacted(
    checkpoint: Path, tmp_path: Path, server: socket.socket, kind: str
) -> None:
    now = CheckpointSnapshot(LocalReader(checkpoint))
    newest = LogEnds(now.offsets[-1], now.commits[-1])
    place = f"ftp://127.0.0.1:{server.getsockname()[1]}/out"
    step = (
        Move("x", "_respool/aside/j/x", 1, place) if kind == "files" else Restore(RestoreTable(place, 1, 0, "a", 1, 0))
    )
    plant(checkpoint, journal(step, newest=newest, left=newest), f"{history.FOLDER}/j.json")
    words = ("checkpoint", "undo", str(checkpoint), "--yes", "--home", str(tmp_path / "home"))
    assert f"{place} is named by a file in" in failure(*words)
    assert f"{place} is named by a file in" in failure(*words, "--accept-foreign-journal")
    with pytest.raises(BlockingIOError):
        server.accept()


@pytest.mark.parametrize("place", ["ftp://127.0.0.1:{port}/checkpoint", "x" * 5_000, "/a/" + "x" * 300])
def test_a_promotion_to_a_place_that_cannot_be_read_is_believed(
    checkpoint: Path, server: socket.socket, place: str
) -> None:
    promoted = {"checkpoint": place.format(port=server.getsockname()[1]), "journal": "20260101T000000Z-1"}
    (checkpoint / "_respool").mkdir(exist_ok=True)
    (checkpoint / ownership.PROMOTED).write_text(json.dumps(promoted))
    assert ownership.promotion_of(LocalReader(checkpoint)) == ownership.PromotionRecord(**promoted)
    with pytest.raises(BlockingIOError):
        server.accept()


@pytest.mark.parametrize("place", ["x" * 5_000, "/" + "x" * 300])
def test_a_path_that_is_too_long_is_one_message(place: str) -> None:
    for opened in (open_reader, open_writer, new_writer):
        with pytest.raises(CheckpointError, match=r"cannot be opened: File name too long\. Check the path"):
            opened(place)


# Savepoints


def test_a_link_named_like_a_savepoint_is_neither_read_nor_emptied(
    store: SavepointStore, checkpoint: Path, outside: Path
) -> None:
    os.makedirs(store.location)
    (Path(store.location) / "one").symlink_to(outside)
    for call in (lambda: store.delete("one"), lambda: save(checkpoint, store), lambda: store.get("one")):
        with pytest.raises(CheckpointError, match="symbolic link"):
            call()
    assert "symbolic link" in failure("savepoint", "delete", "one", "--yes", "--savepoints", store.location)
    assert "symbolic link" in store.read_all()[1][0]
    assert is_untouched(outside)


def test_a_link_in_a_savepoint_is_deleted_not_what_it_leads_to(
    store: SavepointStore, checkpoint: Path, outside: Path
) -> None:
    data = Path(save(checkpoint, store).data)
    (data / "state" / "away").symlink_to(outside)
    (data / "file").symlink_to(outside / "precious")
    store.delete("one")
    assert not (Path(store.location) / "one").exists()
    assert is_untouched(outside)


def test_a_link_in_leftovers_is_deleted_not_what_it_leads_to(
    store: SavepointStore, checkpoint: Path, outside: Path
) -> None:
    left = Path(store.location) / "one" / "20250101T000000Z-0123456789ab"
    left.mkdir(parents=True)
    (left / "state").symlink_to(outside)
    assert store.leftovers("one")
    save(checkpoint, store)
    assert not left.exists()
    assert is_untouched(outside)


@pytest.mark.parametrize("name", ["20250101T000000Z-0123456789ab", "notes", ".git"])
def test_only_what_is_a_savepoint_is_deleted(store: SavepointStore, checkpoint: Path, outside: Path, name: str) -> None:
    folder = Path(store.location) / "one"
    folder.mkdir(parents=True)
    (folder / name).symlink_to(outside) if name.startswith("2025") else shutil.copytree(outside, folder / name)
    (folder / "file").write_text("mine")
    before = sorted(os.listdir(folder))
    for call in (lambda: store.delete("one"), lambda: save(checkpoint, store)):
        with pytest.raises(CheckpointError, match="is not a savepoint"):
            call()
    assert sorted(os.listdir(folder)) == before
    assert is_untouched(outside)


@pytest.mark.parametrize("bad", ["../../../x", "/x", "_respool/pending.json", "_respool/lock"])
@pytest.mark.parametrize("field", ["files", "data"])
def test_a_manifest_that_names_other_files_is_refused(
    store: SavepointStore, checkpoint: Path, tmp_path: Path, bad: str, field: str
) -> None:
    saved = save(checkpoint, store)
    manifest = Path(saved.location) / "manifest.json"
    facts = json.loads(manifest.read_text())
    if field == "data":
        facts["data"] = bad
    else:
        facts["files"][0]["path"] = bad
    manifest.write_text(json.dumps(facts))
    (tmp_path / "x").write_text("mine")
    options = ("--home", str(tmp_path / "home"), "--savepoints", store.location)
    before = everything(tmp_path)
    verified = respool("savepoint", "verify", "one", *options)
    assert verified.exit_code == 3, verified.output
    assert "manifest.json is damaged" in verified.stdout
    as_json = json.loads(respool("savepoint", "verify", "one", "--json", *options).stdout)
    assert as_json["ok"] is False
    for words in (
        ("savepoint", "fork", "one", str(tmp_path / "fork")),
        ("savepoint", "restore", "one", str(checkpoint), "--yes", "--stopped"),
        ("savepoint", "copy", "one", str(tmp_path / "elsewhere")),
    ):
        assert "manifest.json is damaged" in failure(*words, *options)
    assert everything(tmp_path) == before


def test_the_folder_of_a_savepoints_files_must_not_be_a_link(
    store: SavepointStore, checkpoint: Path, tmp_path: Path
) -> None:
    saved = save(checkpoint, store)
    Path(saved.data).rename(tmp_path / "moved")
    Path(saved.data).symlink_to(tmp_path / "moved")
    with pytest.raises(CheckpointError, match="symbolic link"):
        store.get("one").files()


# Journals


def journal(*steps: Any, **more: Any) -> Journal:
    newest = LogEnds(99, 99)  # beyond all batches of the checkpoint
    facts: dict[str, Any] = {
        "of": None,
        "request": "--last 1",
        "reason": None,
        "started": OLD,
        "batch": 99,
        "same_range": False,
    }
    facts |= {"id": "j", "operation": "rewind", "newest": newest, "left": newest, "steps": steps}
    return Journal(**{**facts, **more})


def plant(checkpoint: Path, planted: Journal, where: str = history.PENDING) -> None:
    file = checkpoint / where
    file.parent.mkdir(parents=True, exist_ok=True)
    facts = {**asdict(planted), "version": 1, "started": planted.started.isoformat()}  # respool refuses to write some
    facts["steps"] = [{"step": type(step).__name__, **asdict(step)} for step in planted.steps]
    file.write_text(json.dumps(facts))


HOSTILE = {
    "moves out": journal(Move("offsets/5", "../outside/x", 1)),
    "moves in": journal(Move("../outside/precious", "offsets/5", 1)),
    "moves to another place": journal(Move("offsets/5", "offsets/6", 1)),
    "moves respool's own": journal(Move("_respool/run.json", "_respool/aside/j/_respool/run.json", 1)),
    "replaces outside": journal(Replace("../outside/precious", None, "x")),
    "plants a journal": journal(Replace("_respool/history/x.json", None, "x")),
    "prunes outside": journal(Prune("../outside")),
    "is named elsewhere": journal(id="../../outside/x"),
    "undoes elsewhere": journal(operation="undo", of="../../../outside"),
    "moves in a sink": journal(Move("../outside/precious", "_respool/aside/j/x", 1, "/tmp")),
}


@pytest.mark.parametrize("planted", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_journal_that_leads_out_of_the_checkpoint_is_refused(
    checkpoint: Path, outside: Path, tmp_path: Path, planted: Journal
) -> None:
    home = ("--home", str(tmp_path / "home"))
    for place in (history.PENDING, f"{history.FOLDER}/j.json"):
        plant(checkpoint, installation.sign(planted, str(checkpoint)), place)
        before = everything(checkpoint)
        for words in (
            ("rewind", str(checkpoint), "--last", "1", "--yes", "--accept-foreign-journal"),
            ("undo", str(checkpoint), "--yes", "--accept-foreign-journal"),
            ("purge", str(checkpoint), "--older-than", "1s", "--yes"),
        ):
            assert "is damaged" in failure("checkpoint", *words, *home)
        after = everything(checkpoint)
        after.pop("_respool/lock", None)
        assert after == before
        assert is_untouched(outside)
        (checkpoint / place).unlink()


@pytest.fixture
def sink(tmp_path: Path) -> Path:
    """A folder that a journal calls a sink."""
    folder = tmp_path / "sink"
    (folder / "_respool" / "aside" / "j").mkdir(parents=True)
    (folder / "part-0").write_text("rows")
    (folder / "_respool" / "aside" / "j" / "part-1").write_text("older rows")
    return folder


def in_sink(sink: Path) -> Journal:
    return journal(Move("part-0", "_respool/aside/j/part-0", 4, str(sink)))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda planted, where: planted, "does not record who wrote it"),
        (lambda planted, where: _by(planted, where, host="elsewhere"), "written on the host 'elsewhere'"),
        (lambda planted, where: _by(planted, where, user="mallory"), "written by the user 'mallory'"),
        (lambda planted, where: installation.sign(planted, "/somewhere/else"), "copied or moved"),
        (lambda planted, where: _by(planted, where, seal="0" * 64), "its seal is not that of this installation"),
        (
            lambda planted, where: replace(installation.sign(journal(), where), steps=planted.steps),
            "changed after it was",
        ),
    ],
    ids=["unknown", "host", "user", "copy", "forged", "changed"],
)
def test_a_foreign_journal_is_reported_and_acts_nowhere_unless_accepted(
    checkpoint: Path, sink: Path, tmp_path: Path, change: Callable[[Journal, str], Journal], why: str
) -> None:
    plant(checkpoint, change(in_sink(sink), str(checkpoint)))
    home = ("--home", str(tmp_path / "home"))
    before = (everything(checkpoint), everything(sink))
    for words in (("rewind", str(checkpoint), "--last", "1"), ("undo", str(checkpoint))):
        message = failure("checkpoint", *words, "--yes", *home)
        assert why in message
        assert "--accept-foreign-journal" in message
        shown = respool("checkpoint", *words, "--dry-run", *home)
        assert "did not write the journal" in shown.stderr
        assert "part-0 → _respool/aside/j/part-0" in shown.stderr
        assert str(sink) in shown.stderr
    as_json = respool("checkpoint", "rewind", str(checkpoint), "--last", "1", "--dry-run", "--json", *home)
    facts = json.loads(as_json.stdout)
    assert why in facts["foreign"]
    assert [step["step"] for step in facts["steps"]] == ["Move"]
    assert (everything(checkpoint), everything(sink)) == before
    # With the option it is still asked about.
    accepting = ("checkpoint", "rewind", str(checkpoint), "--last", "1", "--accept-foreign-journal", *home)
    assert respool(*accepting, answer="n\n").exit_code == 1
    assert (everything(checkpoint), everything(sink)) == before
    accepted = respool(*accepting, answer="y\n")
    assert accepted.exit_code == 0, accepted.output
    assert not (sink / "part-0").exists()
    assert installation.foreign(history.past(LocalReader(checkpoint))[0], str(checkpoint)) is None


def _by(planted: Journal, where: str, **more: str) -> Journal:
    signed = installation.sign(planted, where)
    assert signed.origin is not None
    return replace(signed, origin=replace(signed.origin, **more))


def test_a_pending_journal_of_this_installation_is_shown_and_confirmed(checkpoint: Path, tmp_path: Path) -> None:
    moves = [Move(f"state/0/0/{number}.x", f"_respool/aside/j/state/0/0/{number}.x", 1) for number in range(20)]
    for move in moves:
        (checkpoint / move.source).write_text("x")
    plant(checkpoint, installation.sign(journal(*moves, Prune("state")), str(checkpoint)))
    before = everything(checkpoint)
    words = ("checkpoint", "rewind", str(checkpoint), "--last", "1", "--home", str(tmp_path / "home"))
    refused = respool(*words, answer="n\n")
    assert refused.exit_code == 1
    assert "move to _respool/aside: 20" in refused.stderr
    assert "state/0/0/4.x → _respool/aside/j/state/0/0/4.x" in refused.stderr
    assert "5.x" not in refused.stderr
    assert "… and 15 more" in refused.stderr
    assert "Finish this rewind?" in refused.output
    assert everything(checkpoint) == before
    assert respool(*words, "--yes").exit_code == 0
    assert not (checkpoint / "state/0/0/4.x").exists()


@pytest.mark.parametrize("own", [True, False])
def test_purge_deletes_in_a_sink_only_for_a_journal_of_this_installation(
    checkpoint: Path, sink: Path, tmp_path: Path, own: bool
) -> None:
    (checkpoint / "_respool" / "aside" / "j").mkdir(parents=True)
    (checkpoint / "_respool" / "aside" / "j" / "old").write_text("x")
    done = journal(Move("old", "_respool/aside/j/old", 1), Move("part-1", "_respool/aside/j/part-1", 1, str(sink)))
    plant(checkpoint, installation.sign(done, str(checkpoint)) if own else done, f"{history.FOLDER}/j.json")
    purged = respool("checkpoint", "purge", str(checkpoint), "--yes", "--home", str(tmp_path / "home"))
    assert purged.exit_code == 0, purged.output
    assert not (checkpoint / "_respool/aside/j/old").exists()
    assert (sink / "_respool/aside/j/part-1").exists() is not own
    assert (sink / "part-0").exists()


def test_the_undo_of_a_foreign_change_that_reaches_a_sink_must_be_accepted(
    checkpoint: Path, sink: Path, tmp_path: Path
) -> None:
    now = CheckpointSnapshot(LocalReader(checkpoint))
    newest = LogEnds(now.offsets[-1], now.commits[-1])
    done = journal(Move("part-1", "_respool/aside/j/part-1", 1, str(sink)), newest=newest, left=newest)
    plant(checkpoint, done, f"{history.FOLDER}/j.json")
    words = ("checkpoint", "undo", str(checkpoint), "--yes", "--home", str(tmp_path / "home"))
    message = failure(*words)
    assert "does not record who wrote it" in message
    assert str(sink) in message
    assert not (sink / "part-1").exists()
    assert respool(*words, "--accept-foreign-journal").exit_code == 0
    assert (sink / "part-1").read_text() == "older rows"


def test_a_key_that_others_can_read_counts_for_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    signed = installation.sign(journal(), "/x")
    assert installation.foreign(signed, "/x") is None
    key = tmp_path / "respool" / "journal.key"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    key.chmod(0o644)
    assert installation.foreign(signed, "/x") is not None
    key.chmod(0o600)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "other"))
    assert installation.foreign(signed, "/x") is not None


def test_without_a_place_for_its_key_respool_works_and_asks_for_acceptance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    signed = installation.sign(journal(), "/x")
    assert "its seal" in str(installation.foreign(signed, "/x"))


# Leftovers


def leave(checkpoint: Path) -> None:
    for path in ("_respool/staged/gone/offsets/1", "_respool/.run.json.4711.tmp", "_respool/history/.a.json.4711.tmp"):
        (checkpoint / path).parent.mkdir(parents=True, exist_ok=True)
        (checkpoint / path).write_text("four")
    (checkpoint / "offsets" / ".13.4711.tmp").write_text("fence")


def test_leftovers_are_listed_and_purged(checkpoint: Path, tmp_path: Path) -> None:
    leave(checkpoint)
    home = ("--home", str(tmp_path / "home"))
    assert "_respool/staged/gone (4 B" in respool("checkpoint", "show", str(checkpoint), *home).stdout
    facts = json.loads(respool("checkpoint", "show", str(checkpoint), "--json", *home).stdout)["leftovers"]
    assert {"path": "_respool/staged/gone", "files": 1, "size": 4} in facts
    assert len(facts) == 4
    assert respool("checkpoint", "purge", str(checkpoint), "--yes", *home).exit_code == 0
    assert not (checkpoint / "_respool" / "staged").exists() or not os.listdir(checkpoint / "_respool" / "staged")
    assert not list(checkpoint.rglob("*.4711.tmp"))
    assert json.loads(respool("checkpoint", "show", str(checkpoint), "--json", *home).stdout)["leftovers"] == []


def test_a_link_among_staged_copies_is_a_leftover_and_is_not_followed(
    checkpoint: Path, tmp_path: Path, outside: Path
) -> None:
    leave(checkpoint)
    link = checkpoint / "_respool" / "staged" / "link"
    link.symlink_to(outside)
    home = ("--home", str(tmp_path / "home"))
    assert "_respool/staged/link" in respool("checkpoint", "show", str(checkpoint), *home).stdout
    assert respool("checkpoint", "purge", str(checkpoint), "--yes", *home).exit_code == 0
    assert not link.is_symlink()
    assert is_untouched(outside)


def test_the_next_change_removes_leftovers_but_not_what_is_pending(checkpoint: Path, tmp_path: Path) -> None:
    leave(checkpoint)
    files = LocalWriter(checkpoint)
    plant(checkpoint, journal(id="waiting"))
    (checkpoint / "_respool/staged/waiting").mkdir()
    (checkpoint / "_respool/staged/waiting/metadata").write_text("x")
    assert "_respool/staged/waiting" not in [leftover.path for leftover in apply.leftovers(files)]
    (checkpoint / history.PENDING).unlink()
    words = ("checkpoint", "rewind", str(checkpoint), "--last", "1", "--yes", "--stopped", "--sink", "console")
    done = respool(*words, "--allow-data-loss", "--home", str(tmp_path / "home"))
    assert done.exit_code == 0, (done.output, done.exception)
    assert apply.leftovers(files) == []
    assert not (checkpoint / "_respool" / "staged" / "waiting").exists()


# Permissions


def test_what_respool_writes_is_for_its_owner_only(checkpoint: Path, store: SavepointStore, tmp_path: Path) -> None:
    before = os.umask(0o000)
    try:
        saved = save(checkpoint, store)
        words = ("checkpoint", "rewind", str(checkpoint), "--last", "1", "--yes", "--stopped", "--sink", "console")
        done = respool(*words, "--allow-data-loss", "--home", str(tmp_path / "home"))
        assert done.exit_code == 0, (done.output, done.exception)
    finally:
        os.umask(before)
    inside = [Path(store.location), *Path(saved.location).rglob("*")]
    inside += (checkpoint / "_respool" / "history").rglob("*")
    assert len(inside) > 20
    for path in inside:
        assert stat.S_IMODE(path.lstat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_a_file_that_is_replaced_keeps_its_permissions(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    (tmp_path / "a").chmod(0o664)
    before = os.umask(0o077)
    try:
        LocalWriter(tmp_path).replace("a", b"y")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o664


def test_the_command_creates_files_for_their_owner_only(tmp_path: Path, checkpoint: Path) -> None:
    code = "import os, sys; sys.argv = ['respool', '--version']\nfrom respool.cli.app import main\n"
    shown = "import atexit; atexit.register(lambda: print(oct(os.umask(0))))\n"
    run = subprocess.run([sys.executable, "-c", code + shown + "main()"], capture_output=True, text=True, check=True)
    assert run.stdout.split()[-1] == "0o77"
    imported = subprocess.run([sys.executable, "-c", code + shown], capture_output=True, text=True, check=True)
    assert imported.stdout.split()[-1] != "0o77"


def test_a_journal_of_an_earlier_version_is_read(checkpoint: Path) -> None:
    facts = json.loads(history.text_of(journal()))
    del facts["origin"]
    (checkpoint / "_respool").mkdir(exist_ok=True)
    (checkpoint / history.PENDING).write_text(json.dumps(facts))
    pending = history.pending(LocalReader(checkpoint))
    assert pending == journal()
    assert installation.foreign(journal(), str(checkpoint)) == "it does not record who wrote it"
