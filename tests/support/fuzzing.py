"""Seeded mutations of the files that respool reads: of bytes, of the JSON in them, of what is packed, and of names."""

import io
import json
import os
import shutil
import struct
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

from respool.format import state_stream

_BLOCK = struct.Struct("<8sBiiI")
_SIZES = (b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x80\0\0\0", b"\0\0\0\0", b"\xff\xff", b"\0\x01\0\0")
_NAMES = (
    b"9" * 30,
    b"9" * 18,
    b"9" * 19,
    b"2147483648",
    "٣".encode(),
    "７".encode(),
    b"-1",
    b"+1",
    b"1_0",
    b" 7",
    b"007",
    b"7\n",
    b"a\nb",
    b"\x1b[2J",
    b"\xff\xfe",
    b"\xed\xa0\x80",
    b"x" * 250,
    b"7.compact",
    b"99999999999999.compact",
    b".7.crc",
    b".9.tmp",
    b"7.delta",
    b"99999999999.delta",
    b"99999999999.zip",
    b"12345_a.zip",
    b"3.changelog",
    b"7.snapshot",
    b"a.json",
    b"%41",
    b"...",
    b"0",
)


def change(data: bytes, path: str, rng: Random) -> bytes:
    """Return other content for a file, by what the file is."""
    if rng.random() < 0.3:
        return change_bytes(data, rng)
    name = path.rpartition("/")[2]
    if name.endswith(".zip"):
        return _change_zip(data, rng)
    if name.endswith((".delta", ".snapshot", ".changelog")):
        return _change_stream(data, name.rpartition(".")[2], rng)
    if name == "schema" or "/_stateSchema/" in path:
        return _change_schema(data, rng)
    if name.startswith(".") and name.endswith(".crc"):
        return change_bytes(data, rng)
    return _change_text(data, rng)


def change_bytes(data: bytes, rng: Random) -> bytes:
    """Return other bytes."""
    at = rng.randrange(len(data) + 1)
    end = min(len(data), at + rng.randrange(1, 9))
    match rng.randrange(11):
        case 0:
            return data[:at]
        case 1:
            return data[at:]
        case 2:
            return b""
        case 3:
            return data[:at] + rng.randbytes(rng.randrange(1, 9)) + data[at:]
        case 4:
            return data[:at] + data[end:]
        case 5:
            return data + data
        case 6:
            return data + rng.choice((b"\0", b"\n", b" ", b"[", b"9")) * 100_000
        case 7:
            window = rng.choice(_SIZES)
            return data[:at] + window + data[at + len(window) :]
        case 8:
            return b"\0" * len(data)
        case 9:
            return data[:at] + rng.choice((b"\xff", b"\xed\xa0\x80", b"\xc0\x80", b"\xef\xbb\xbf", b"\r\n")) + data[at:]
        case _:
            changed = bytearray(data or b"\0")
            for _ in range(rng.choice((1, 1, 1, 8))):
                changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
            return bytes(changed)


def change_value(value: Any, rng: Random) -> Any:
    """Return a JSON value with another value, or other keys, somewhere in it."""
    places = list(_places(value))
    if not places:
        return _other(value, rng)
    holder, key = rng.choice(places)
    match rng.randrange(6):
        case 0:
            del holder[key]
        case 1 if isinstance(holder, dict):
            holder[str(_other(key, rng))] = holder.pop(key)
        case 1 | 2 if isinstance(holder, list):
            holder.append(holder[key])
        case 3 if isinstance(holder, dict):
            holder[rng.choice(("", "extra", "٣", "-1", "9" * 25, "\ud800", "__class__"))] = holder[key]
        case _:
            holder[key] = _other(holder[key], rng)
    return value


@contextmanager
def renamed(root: Path, path: str, rng: Random) -> Iterator[str]:
    """Give a file or its folder a strange name, or a strange companion, within a `with` block."""
    base, strange = os.fsencode(root / path), rng.choice(_NAMES)
    how = rng.randrange(6)
    if how > 3:
        with _irregular(base, rng) as what:
            yield f"{path} {what}"
        return
    if how == 3 and path.count("/") > 1:
        base = os.path.dirname(base)
    target = os.path.join(os.path.dirname(base), strange)
    if os.path.lexists(target):
        yield f"{path} as it is"
        return
    if how == 0:  # a folder in place of a file
        os.rename(base, base + b".away")
        os.mkdir(base)
        try:
            yield f"{path} is a folder"
        finally:
            shutil.rmtree(base)
            os.rename(base + b".away", base)
    elif how == 1 and os.path.isfile(base):
        shutil.copyfile(base, target)
        try:
            yield f"{path} copied to {strange!r}"
        finally:
            os.unlink(target)
    else:
        os.rename(base, target)
        try:
            yield f"{path} renamed to {strange!r}"
        finally:
            os.rename(target, base)


@contextmanager
def _irregular(base: bytes, rng: Random) -> Iterator[str]:
    """Put something that is neither a file nor a folder in the place of a file within a `with` block."""
    away = base + b".away"
    target = rng.choice((b".", b"..", base, away, b"nowhere", b"/dev/zero", b"/proc/self/mem", b""))
    os.rename(base, away)
    if target:
        os.symlink(target, base)
    else:
        os.mkfifo(base)
    try:
        yield f"is a link to {target!r}" if target else "is a FIFO"
    finally:
        os.unlink(base)
        os.rename(away, base)


@contextmanager
def changed(root: Path, path: str, rng: Random) -> Iterator[str]:
    """Give a file other content within a `with` block."""
    file = root / path
    data = file.read_bytes()
    crc = file.parent / f".{file.name}.crc"
    hidden = crc.read_bytes() if crc.exists() and rng.random() < 0.7 else None
    new = change(data, path, rng)
    file.write_bytes(new)
    if hidden is not None:
        crc.unlink()
    try:
        yield f"{path} = {new[:300]!r}"
    finally:
        file.write_bytes(data)
        if hidden is not None:
            crc.write_bytes(hidden)


def _change_text(data: bytes, rng: Random) -> bytes:
    """Change the JSON in a text: all of it, or that of one of its lines."""
    try:
        return _dumped(change_value(json.loads(data), rng), rng)
    except ValueError:
        pass
    lines = data.split(b"\n")
    at = rng.randrange(len(lines))
    start = lines[at].find(b"{") if b"{" in lines[at] else 0
    try:
        value = json.loads(lines[at][start:])
    except ValueError:
        lines[at] = rng.choice((b"v0", b"v99", b"v1", b"v2", b"v" + b"9" * 30, "v٣".encode(), b"-", b"", b"null", b"x"))
    else:
        lines[at] = lines[at][:start] + _dumped(change_value(value, rng), rng)
    if rng.random() < 0.1:
        lines = rng.choice((lines[:at], lines[at:], [*lines, lines[at]], lines[::-1]))
    return b"\n".join(lines)


def _change_zip(data: bytes, rng: Random) -> bytes:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            inside = {name: archive.read(name) for name in archive.namelist()}
    except (zipfile.BadZipFile, KeyError):
        return change_bytes(data, rng)
    if rng.random() < 0.9:
        inside["metadata"] = _change_text(inside.get("metadata", b""), rng)
    else:
        inside[rng.choice(("../x", "/x", "metadata", "a" * 300))] = rng.choice((b"", b"\0" * 10_000_000))
        if rng.random() < 0.3:
            inside.pop("metadata", None)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in inside.items():
            archive.writestr(name, content)
    return packed.getvalue()


def _change_stream(data: bytes, kind: str, rng: Random) -> bytes:
    """Change what is in a state file, in a block whose checksum fits."""
    try:
        plain = state_stream._lz4(data)
    except Exception:
        return change_bytes(data, rng)
    plain = change_bytes(plain, rng)
    part = plain[: 1 << 16]
    fits = state_stream.checksum(part) if part else 0
    level = 0x10 | 6
    block = _BLOCK.pack(b"LZ4Block", level, len(part), len(part), fits) + part
    end = _BLOCK.pack(b"LZ4Block", level, 0, 0, 0) if rng.random() < 0.8 else b""
    return block + end


def _change_schema(data: bytes, rng: Random) -> bytes:
    """Change a text of a schema, with the length that stands before it."""
    start = data.find(b"{")
    if start < 2:
        return change_bytes(data, rng)
    (size,) = struct.unpack_from(">H", data, start - 2)
    try:
        text = _dumped(change_value(json.loads(data[start : start + size]), rng), rng)[:65_535]
    except ValueError:
        return change_bytes(data, rng)
    return data[: start - 2] + struct.pack(">H", len(text)) + text + data[start + size :]


def _dumped(value: Any, rng: Random) -> bytes:
    text = json.dumps(value, ensure_ascii=rng.random() < 0.5, separators=(",", ":"))
    data = text.encode(errors="surrogatepass")
    return data.replace(b'"<deep>"', b"[" * 5_000 + b"]" * 5_000).replace(b'"<digits>"', b"9" * 5_000)


def _other(value: Any, rng: Random) -> Any:
    makers: tuple[Callable[[], Any], ...] = (
        lambda: None,
        lambda: rng.choice((True, False)),
        lambda: rng.choice((0, -1, 1, 2**31, 2**63 - 1, 2**63, -(2**63), 10**30, 10**400)),
        lambda: rng.choice((0.5, -0.0, 1e308, float("nan"), float("inf"), 1e-320)),
        lambda: "<deep>",
        lambda: "<digits>",
        lambda: rng.choice(([], [value], [[]], [None], [0] * 1000)),
        lambda: rng.choice(({}, {"a": value}, {"": None}, {"0": -1}, {"topic": {"0": 10**30}})),
        lambda: rng.choice(("", "x" * 100_000, "a\0b", "\x1b[2J\x07", "line\nline", "٣", "\u2028")),
        lambda: rng.choice(("\ud800", "a\udfffb", "\U0001f600")),
        lambda: rng.choice(("../../x", "/etc/passwd", "..", "file:///%zz/[", "s3:///", "a/../b", "file:/state/0")),
        lambda: str(value) if not isinstance(value, str) else len(value),
        lambda: value * 2 if isinstance(value, str | list) else value,
    )
    return rng.choice(makers)()


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    pending = [value]
    while pending:
        holder = pending.pop()
        keys = list(holder) if isinstance(holder, dict) else range(len(holder)) if isinstance(holder, list) else ()
        for key in keys:
            yield holder, key
            pending.append(holder[key])
