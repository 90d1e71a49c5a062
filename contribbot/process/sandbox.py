"""A view of the file system, processes and a network of a run's own, by bubblewrap."""

from __future__ import annotations

import functools
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from contribbot.errors import ContribbotError
from contribbot.process.run import run

#: Everything can be read and nothing written; devices (GPUs among them) are there. Folders that
#: processes share are empty: what one run leaves, or a daemon offers, no other finds.
_SHARED: Final = ("/tmp", "/var/tmp", "/run", "/dev/shm")  # noqa: S108  they are hidden, not used
_VIEW: Final = (
    "--unshare-all", "--cap-drop", "ALL", "--cap-add", "CAP_DAC_OVERRIDE",
    "--ro-bind", "/", "/", "--dev-bind", "/dev", "/dev", "--proc", "/proc",
    *(part for folder in _SHARED if Path(folder).is_dir() for part in ("--tmpfs", folder)),
)  # fmt: skip


@functools.cache
def no_sandbox() -> str:
    """Say why nothing runs in a sandbox here; empty: all checks do."""
    if os.environ.get("CONTRIBBOT_SANDBOX") == "off":
        return "CONTRIBBOT_SANDBOX=off"
    program = shutil.which("bwrap")
    if program is None:
        return "bubblewrap is not installed"
    try:
        run([program, *_VIEW, "true"], timeout=10)
    except ContribbotError as error:
        return f"bubblewrap does not work here: {error.message.rpartition(': ')[2]}"
    return ""


def sandboxed(
    argv: Sequence[str | Path], *, folder: Path, env: Mapping[str, str]
) -> list[str | Path]:
    """Return the command that runs a program with `folder` as all that it can write.

    The folders beside it, other runs', are not there; but for what the environment names.
    """
    hidden = [folder.parent, *map(Path, _SHARED)]
    named = [part for value in env.values() for part in value.split(os.pathsep)]
    needed = {
        Path(part)
        for part in (*named, *sys.path, sys.prefix, sys.base_prefix)
        if part.startswith("/") and not folder.is_relative_to(part)
    }
    shown = sorted(
        path
        for path in needed
        if path.exists() and any(path.is_relative_to(place) for place in hidden)
    )
    return [
        "bwrap", *_VIEW, "--tmpfs", str(folder.parent),
        *(part for path in shown for part in ("--ro-bind", str(path), str(path))),
        "--bind", str(folder), str(folder), *argv,
    ]  # fmt: skip
