"""`contribbot demo`: run each step of a toy patch, from an empty queue to its pull request."""

from __future__ import annotations

import contextlib
import shlex
import shutil
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from contribbot import process
from contribbot.compile.toolchain import Lack, hip_toolchain
from contribbot.compile.triton import triton_missing
from contribbot.errors import MachineError, UsageError
from contribbot.files import run_folder
from contribbot.machine.doctor import missing_emulator
from contribbot.model.base import Model
from contribbot.verify.pipeline import terminated_as_interrupted

_TOY: Final = Path(__file__).parent / "toy"
_NAME: Final = "waves"
#: The author and committer of all commits of the demo, and no git configuration of the system.
_WHO: Final = {
    "GIT_CONFIG_NOSYSTEM": "1",
    **{f"GIT_{role}_NAME": "Ada Example" for role in ("AUTHOR", "COMMITTER")},
    **{f"GIT_{role}_EMAIL": "ada@example.com" for role in ("AUTHOR", "COMMITTER")},
}
_LONG: Final = 600.0


class DemoStep(Model):
    """One command of the demo, with its output, exit code and seconds."""

    about: str
    command: str
    output: str = ""
    exit_code: int = 0
    seconds: float = 0.0


class Demo(Model):
    """The document of `demo --json`."""

    steps: tuple[DemoStep, ...]
    #: The folder that was kept; empty: the demo's folder was removed.
    kept: str
    next: str


@contextlib.contextmanager
def demo_folder(keep: Path | None) -> Iterator[Path]:
    """Yield a folder for the demo: `keep`, or a temporary folder that is removed afterwards."""
    with terminated_as_interrupted(), contextlib.ExitStack() as stack:
        if keep is None:
            yield stack.enter_context(run_folder())
            return
        if keep.exists() and (not keep.is_dir() or any(keep.iterdir())):
            raise UsageError(f"{keep}: not an empty folder", hint="name a new one")
        keep.mkdir(parents=True, exist_ok=True)
        yield keep.absolute()


def walk(folder: Path, *, columns: int, begin: Callable[[str, str], None]) -> Iterator[DemoStep]:
    """Run the demo's commands; call `begin` before each command, and yield a step after it."""
    _publish(folder)
    workspace = _Workspace(folder, columns, begin)
    yield workspace.run("A queue.", "contribbot init my-queue")
    yield workspace.run("", "cd my-queue")
    shutil.copytree(_TOY / "queue", workspace.cwd, dirs_exist_ok=True)
    yield workspace.run("The release that the fix is for.", "contribbot pin add toy 1.0")
    yield workspace.run("The fix, as git format-patch wrote it.", "tail -n 6 ../fix.patch")
    yield workspace.run("", f"contribbot new {_NAME} ../fix.patch")
    shutil.copytree(_TOY / "patch", workspace.cwd / "patches" / _NAME, dirs_exist_ok=True)
    about = "The check, and what it is to show, are yours to write; here they are."
    yield workspace.run(about, f"tail -n 2 patches/{_NAME}/checks/test_red.py")
    yield workspace.run("", f"tail -n 6 patches/{_NAME}/patch.toml")
    about = "Red on the release, for the stated reason; green with the fix."
    yield workspace.run(about, f"contribbot check {_NAME} -- -q")
    yield workspace.run("The same, as a proof that is recorded.", f"contribbot verify {_NAME}")
    yield workspace.run("The pull request's text, made from it.", f"contribbot body {_NAME}")
    about = "The upstream's rules; one of them is that a person reads it and signs (`attest`)."
    yield workspace.run(about, f"contribbot gate {_NAME} --offline", code=1)
    about = "The pull request that `open-pr` opens after that; here, GitHub is not asked."
    yield workspace.run(about, f"contribbot open-pr {_NAME} --dry-run")
    if missing_emulator() or isinstance(hip_toolchain("gfx942"), Lack) or triton_missing():
        return
    about = "A Triton kernel. A processor executes the code that Triton makes for gfx942."
    yield workspace.run(about, "contribbot new sums ../kernel.patch")
    shutil.copytree(_TOY / "kernel", workspace.cwd / "patches/sums", dirs_exist_ok=True)
    yield workspace.run("", "tail -n 6 patches/sums/patch.toml")
    yield workspace.run("Red and green, emulated: no GPU is here.", "contribbot verify sums")


def _publish(folder: Path) -> None:
    """Make the toy upstream's release in `releases/`, and copy the patches of its two fixes."""
    (folder / "releases").mkdir()
    with tarfile.open(folder / "releases/toy-1.0.tar.gz", "w:gz") as archive:
        archive.add(_TOY / "upstream", "toy-1.0")
    for name in ("fix.patch", "kernel.patch"):
        shutil.copy(_TOY / name, folder)


@dataclass
class _Workspace:
    """The working folder and environment in which the demo runs commands, with a separate home."""

    cwd: Path
    columns: int
    begin: Callable[[str, str], None]

    def __post_init__(self) -> None:
        self.env = process.clean_environment(
            {
                **_WHO,
                "HOME": str(self.cwd),
                "CONTRIBBOT_CACHE": str(self.cwd / "cache"),
                "PIP_CONFIG_FILE": "/dev/null",
                "PIP_NO_INDEX": "1",
                "PIP_FIND_LINKS": str(self.cwd / "releases"),
                "PYTHONPATH": process.own_path(),
                "COLUMNS": str(self.columns),
            }
        )

    def run(self, about: str, line: str, *, code: int = 0) -> DemoStep:
        """Run a command line; raise if it does not end with the exit code `code`."""
        self.begin(about, line)
        words, start = shlex.split(line), time.monotonic()
        if words[0] == "cd":
            self.cwd /= words[1]
            return DemoStep(about=about, command=line)
        program = [sys.executable, "-m", "contribbot"] if words[0] == "contribbot" else words[:1]
        done = process.run(
            [*program, *words[1:]],
            cwd=self.cwd,
            env=self.env,
            timeout=_LONG,
            accept=range(256),
            tethered=True,
        )
        output = (done.stdout + done.stderr).decode("utf-8", "replace").strip("\n")
        if done.returncode != code:
            raise MachineError(
                f"demo: `{line}` ended with exit code {done.returncode}, not {code}:"
                f" {output.rpartition(chr(10))[2]}",
                hint="see all of it: contribbot demo DIR, then run that command there",
            )
        seconds = round(time.monotonic() - start, 1)
        return DemoStep(about=about, command=line, output=output, exit_code=code, seconds=seconds)
