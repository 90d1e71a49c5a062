"""Opening what a job sent. Nothing in it is believed: not its sizes, its names, its digests.

Everything is read into memory, within limits, and nothing is written anywhere. Sources: PKWARE
APPNOTE 6.3.10 (end of central directory, general purpose flags, external attributes).
"""

from __future__ import annotations

import re
import stat
import struct
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

MIB: Final = 1024 * 1024
#: What a job leaves, and the record of a patch on a machine.
JOB_FILE: Final = "job.json"
PLAN_FILE: Final = "plan.json"
_RECORD: Final = re.compile(
    r"records/([a-z0-9][a-z0-9._-]{0,79})/([A-Za-z0-9_][A-Za-z0-9_.-]{0,119}\.json)"
)
#: It is for people; nothing here opens it.
_LOGS: Final = "logs.tgz"
_END: Final = struct.Struct("<4s4H2LH")
_END_MARK: Final = b"PK\x05\x06"
#: What stands before it where the numbers are elsewhere (zip64), and how long that is.
_LOCATOR_MARK: Final = b"PK\x06\x07"
_LOCATOR: Final = 20
#: What says that the true number is elsewhere (zip64).
_ELSEWHERE_16: Final = 0xFFFF
_ELSEWHERE_32: Final = 0xFFFFFFFF
_ENCRYPTED: Final = 0x1
_METHODS: Final = frozenset({zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED})
#: Characters of a name that are shown.
_SHOWN: Final = 80
#: Names that are devices on some systems, whatever their ending.
_DEVICES: Final = re.compile(r"(?:con|prn|aux|nul|com[0-9]|lpt[0-9])(?:\.|$)", re.IGNORECASE)


@dataclass(frozen=True)
class Limits:
    """What an artifact may be at most.

    Attributes:
        packed: Bytes of the zip.
        files: Files in it.
        file: Bytes of one, unpacked.
        unpacked: Bytes of all, unpacked.
        directory: Bytes of the list of files.
    """

    packed: int = 64 * MIB
    files: int = 4096
    file: int = 16 * MIB
    unpacked: int = 256 * MIB
    directory: int = 2 * MIB


LIMITS: Final = Limits()


class RefusedArtifactError(Exception):
    """An artifact that is not what a job of contribbot leaves; says why, in one line."""


def open_answer(path: Path, limits: Limits = LIMITS) -> dict[str, bytes]:
    """Return the files that a job left: `job.json` and `records/NAME/MACHINE.json`."""
    return _open(path, limits, _RECORD.fullmatch, JOB_FILE)


def open_plan(path: Path, limits: Limits = LIMITS) -> bytes:
    """Return the `plan.json` of a zip."""
    files = _open(path, limits, lambda _name: None, PLAN_FILE)
    if PLAN_FILE not in files:
        raise RefusedArtifactError(f"it has no {PLAN_FILE}")
    return files[PLAN_FILE]


def check_names(names: Mapping[str, int], limits: Limits = LIMITS) -> None:
    """Hold the files of a folder, which somebody unpacked, against the same limits."""
    if len(names) > limits.files:
        raise RefusedArtifactError(f"{len(names)} files; at most {limits.files}")
    for name, size in names.items():
        _check_name(name)
        _check_size(name, size, limits)
        if not (_RECORD.fullmatch(name) or name in {JOB_FILE, PLAN_FILE, _LOGS}):
            raise RefusedArtifactError(f"it has {_shown(name)}, which no job leaves")
    if sum(names.values()) > limits.unpacked:
        raise RefusedArtifactError(f"more than {limits.unpacked // MIB} MiB")


def too_large(size: int, limits: Limits = LIMITS) -> str:
    """Say that an artifact is too large."""
    return f"{size / MIB:,.0f} MiB; at most {limits.packed // MIB}"


def _open(path: Path, limits: Limits, fits: Callable[[str], object], only: str) -> dict[str, bytes]:
    size = path.stat().st_size
    if size > limits.packed:
        raise RefusedArtifactError(too_large(size, limits))
    _check_end(path, size, limits)
    try:
        with zipfile.ZipFile(path) as archive:
            return _read(archive, limits, fits, only)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        raise RefusedArtifactError(f"not a sound zip: {error}") from error
    except (OSError, ValueError, RuntimeError, struct.error, UnicodeError) as error:
        # What the reader says of broken ones, beside its own class.
        raise RefusedArtifactError(f"not a sound zip: {error}") from error


def _check_end(path: Path, size: int, limits: Limits) -> None:
    """Look at the list of files before anything reads all of it into memory."""
    with path.open("rb") as file:
        file.seek(max(size - _LOCATOR - _END.size, 0))
        tail = file.read(_LOCATOR + _END.size)
    end = tail[-_END.size :]
    if len(end) < _END.size or not end.startswith(_END_MARK) or end[-2:] != b"\0\0":
        raise RefusedArtifactError("not a zip, or cut short, or with something after its end")
    _, _, _, _, count, length, start, _ = _END.unpack(end)
    # A reader that sees it believes other numbers than these.
    if tail[: -_END.size].startswith(_LOCATOR_MARK):
        count = _ELSEWHERE_16
    if count == _ELSEWHERE_16 or _ELSEWHERE_32 in {length, start}:
        raise RefusedArtifactError(f"{_ELSEWHERE_16} files or more; at most {limits.files}")
    if count > limits.files:
        raise RefusedArtifactError(f"{count} files; at most {limits.files}")
    # The count is only a claim: what is read is as long as this says.
    if length > limits.directory:
        raise RefusedArtifactError(f"a list of files of {length} bytes; at most {limits.directory}")


def _read(
    archive: zipfile.ZipFile, limits: Limits, fits: Callable[[str], object], only: str
) -> dict[str, bytes]:
    """Read what is expected; whatever else there is makes all of it doubtful."""
    infos = archive.infolist()
    if len(infos) > limits.files:
        raise RefusedArtifactError(f"{len(infos)} files; at most {limits.files}")
    _check_entries(infos, limits)
    found: dict[str, bytes] = {}
    folders = {"records/", *_folders(infos)}
    for info in infos:
        name = info.orig_filename
        if info.is_dir() and name in folders:
            continue
        if name == _LOGS:
            continue
        if name != only and not fits(name):
            raise RefusedArtifactError(f"it has {_shown(name)}, which no job leaves")
        with archive.open(info) as file:
            content = file.read(info.file_size + 1)
        if len(content) != info.file_size:
            raise RefusedArtifactError(f"{_shown(name)}: its size is not what the list says")
        found[name] = content
    return found


def _folders(infos: Sequence[zipfile.ZipInfo]) -> set[str]:
    """Return the folders of records that files lie in."""
    return {f"{one.filename.rpartition('/')[0]}/" for one in infos if not one.is_dir()}


def _check_entries(infos: Sequence[zipfile.ZipInfo], limits: Limits) -> None:
    """Hold the list of files against the limits: all of it, before anything is unpacked."""
    seen: set[str] = set()
    for info in infos:
        # The reader cuts names at a NUL; this is what was there.
        name = info.orig_filename
        _check_name(name.removesuffix("/"))
        if name.casefold() in seen:
            raise RefusedArtifactError(f"it has {_shown(name)} twice")
        seen.add(name.casefold())
        kind = stat.S_IFMT(info.external_attr >> 16)
        if kind not in {0, stat.S_IFDIR if info.is_dir() else stat.S_IFREG}:
            raise RefusedArtifactError(f"{_shown(name)} is a link or a device, and no file")
        if info.flag_bits & _ENCRYPTED:
            raise RefusedArtifactError(f"{_shown(name)} is encrypted")
        if info.compress_type not in _METHODS:
            raise RefusedArtifactError(f"{_shown(name)} is packed in an unusual way")
        _check_size(name, info.file_size, limits)
    if sum(one.file_size for one in infos) > limits.unpacked:
        raise RefusedArtifactError(f"it unpacks to more than {limits.unpacked // MIB} MiB")


def _check_size(name: str, size: int, limits: Limits) -> None:
    if size > limits.file:
        raise RefusedArtifactError(
            f"{_shown(name)}: {size / MIB:,.0f} MiB; at most {limits.file // MIB}"
        )


def _check_name(name: str) -> None:
    """Refuse a name that could mean a place outside, or something that is no file."""
    parts = name.split("/")
    if name.startswith("/") or re.match(r"[A-Za-z]:", name):
        problem = "is an absolute path"
    elif any(part in {"", ".", ".."} for part in parts):
        problem = "leads elsewhere"
    elif "\\" in name or not name.isprintable() or not name.isascii():
        problem = "is no plain name"
    elif any(_DEVICES.match(part) for part in parts):
        problem = "is the name of a device"
    else:
        return
    raise RefusedArtifactError(f"{_shown(name)} {problem}")


def _shown(name: str) -> str:
    """Return a name as its sender wrote it, short, and in quotes that show what is odd."""
    return ascii(name if len(name) <= _SHOWN else f"{name[:_SHOWN]}…")
