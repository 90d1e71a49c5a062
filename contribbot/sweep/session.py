"""What a sweep's process and the processes of its tests tell each other, by files."""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from contribbot.emulate.outcomes import Text
from contribbot.errors import UsageError
from contribbot.model.base import Many, Model
from contribbot.sweep.findings import Capture, KernelCode, SweepRow

#: Names the file of the session, for the plug-in of pytest.
SESSION: Final = "CONTRIBBOT_SWEEP"
#: With which pytest ends where its results cannot be kept (sysexits.h: EX_IOERR).
UNWRITABLE: Final = 74


class SweepSession(Model):
    """What one run of pytest is to do: `done` does not run again."""

    folder: str
    target: str
    shard: tuple[int, int]
    done: Many[Text] = ()
    done_files: Many[Text] = ()

    @classmethod
    def current(cls) -> SweepSession | None:
        """Return that of this process, or None."""
        path = os.environ.get(SESSION)
        return cls.model_validate_json(Path(path).read_bytes()) if path else None


class SweepEvent(Model):
    """A line of `TARGET.jsonl`: one of its fields."""

    begun: Text = ""  # a test
    row: SweepRow | None = None
    code: KernelCode | None = None
    file: Text = ""  # that is collected, with so many tests
    count: int = 0
    versions: dict[str, str] | None = None
    finished: bool = False


def events_file(folder: Path, target: str) -> Path:
    """Return the file of a target."""
    return folder / f"{target}.jsonl"


def write_event(path: Path, event: SweepEvent) -> None:
    """Append a line: all of it or nothing."""
    line = event.model_dump_json(exclude_defaults=True).encode() + b"\n"
    number = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    size = os.fstat(number).st_size
    try:
        if os.write(number, line) < len(line):
            os.write(number, line)  # tells why
    except OSError as error:
        os.ftruncate(number, size)
        error.filename = str(path)
        raise
    finally:
        os.close(number)


def read_events(path: Path) -> Iterator[SweepEvent]:
    """Yield the lines of a file; one that a kill cut short is left out."""
    if not path.is_file():
        return
    for line in path.read_bytes().split(b"\n"):
        try:
            yield SweepEvent.model_validate_json(line)
        except ValidationError:
            continue


def read_launch(path: Path) -> tuple[Capture, tuple[bytes, ...]]:
    """Return a captured launch, and the bytes beside it, from its file."""
    try:
        with zipfile.ZipFile(path) as archive:
            told = Capture.model_validate_json(archive.read("launch.json"))
            count = 2 * len(told.storages) + (told.expected is not None)
            return told, tuple(archive.read(f"{number}.bin") for number in range(count))
    except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
        raise UsageError(f"{path}: no captured launch: {error}",
                         hint="sweep again into a new folder") from error  # fmt: skip


def packed_launch(told: Capture, blobs: Sequence[bytes]) -> bytes:
    """Return a captured launch as a file: the same bytes for the same launch."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        archive.writestr(zipfile.ZipInfo("launch.json"), told.model_dump_json(indent=1))
        for number, blob in enumerate(blobs):
            entry = zipfile.ZipInfo(f"{number}.bin")
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, blob)
    return made.getvalue()
