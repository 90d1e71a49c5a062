"""Compiler caches: used where they are installed, never needed."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from contribbot.workspace import cache_folder

#: Programs that are put before a compiler, the preferred first.
_KNOWN: Final = ("ccache", "sccache")
#: Bytes that a cache's folder must still take.
_PROBE: Final = 2**20
#: Languages for which CMake (3.17 or newer) reads `CMAKE_<LANG>_COMPILER_LAUNCHER`
#: from the environment.
_CMAKE_LANGUAGES: Final = ("C", "CXX", "CUDA", "HIP")


@dataclass(frozen=True)
class Launcher:
    """A compiler cache.

    Attributes:
        name: `ccache` or `sccache`.
        program: Where it is.
        env: What it is told.
    """

    name: str
    program: Path
    env: Mapping[str, str]

    @property
    def cmake_environment(self) -> dict[str, str]:
        """The variables that make CMake put it before each compiler."""
        return {
            f"CMAKE_{language}_COMPILER_LAUNCHER": str(self.program)
            for language in _CMAKE_LANGUAGES
        }


def find_launcher() -> Launcher | None:
    """Return the compiler cache of this machine, or None.

    A build has an empty HOME, so the cache's folder is named: the user's where a
    variable says it, else one in contribbot's cache folder. Where nothing can be written
    there, a build goes without: a compiler cache that complains would fail it.
    """
    for name in _KNOWN:
        program = shutil.which(name)
        if program is None:
            continue
        variable = f"{name.upper()}_DIR"
        folder = Path(os.environ.get(variable) or cache_folder() / name)
        if not _takes(folder):
            continue
        env = {variable: str(folder)}
        if name == "ccache":
            # Builds name their files relative to a folder that is another one each time.
            env["CCACHE_NOHASHDIR"] = "1"
        else:
            # It starts a server, which need not stay for long.
            env["SCCACHE_IDLE_TIMEOUT"] = "60"
        return Launcher(name, Path(program), env)
    return None


def _takes(folder: Path) -> bool:
    """Say whether files can be written into a folder, which need not be there yet."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(_PROBE))
    except OSError:
        return False
    return True
