"""`contribbot demo`: run every step of a toy patch, from an empty queue to a pull request."""

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
from contribbot.contribute import attest
from contribbot.contribute.gate import judge
from contribbot.contribute.model import Attester
from contribbot.demo.local_github import serving
from contribbot.errors import MachineError, UsageError
from contribbot.github.auth import Secret, Server, Token
from contribbot.github.client import connect
from contribbot.machine.needs import missing_emulator
from contribbot.model.base import Model
from contribbot.queue.load import load_queue
from contribbot.run_folder import run_folder
from contribbot.verify.run import terminated_as_interrupted

_TOY: Final = Path(__file__).parent / "toy"
_REPOSITORY, _NAME, _TOKEN = "example/toy", "waves", "demo"
#: The author and committer of all commits of the demo, and no git configuration of the system.
_WHO: Final = {
    "GIT_CONFIG_NOSYSTEM": "1",
    **{f"GIT_{role}_NAME": "Ada Example" for role in ("AUTHOR", "COMMITTER")},
    **{f"GIT_{role}_EMAIL": "ada@example.com" for role in ("AUTHOR", "COMMITTER")},
}
_SIGNER: Final = Attester(name="Ada Example", email="ada@example.com")
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
    with serving(_publish(folder), _REPOSITORY) as server:
        desk = _Desk(folder, server, columns, begin)
        yield desk.run("A queue.", "contribbot init my-queue")
        yield desk.run("", "cd my-queue")
        shutil.copytree(_TOY / "queue", desk.cwd, dirs_exist_ok=True)
        yield desk.run("The release that the fix is for.", "contribbot pin add toy 1.0")
        yield desk.run("The fix, as git format-patch wrote it.", "tail -n 6 ../fix.patch")
        yield desk.run("", f"contribbot new {_NAME} ../fix.patch")
        shutil.copytree(_TOY / "patch", desk.cwd / "patches" / _NAME, dirs_exist_ok=True)
        about = "The check, and what it is to show, are yours to write; here they are."
        yield desk.run(about, f"tail -n 2 patches/{_NAME}/checks/test_red.py")
        yield desk.run("", f"tail -n 6 patches/{_NAME}/patch.toml")
        about = "Red on the release, for the stated reason; green with the fix."
        yield desk.run(about, f"contribbot check {_NAME} -- -q")
        yield desk.run("The same, as a proof that is recorded.", f"contribbot verify {_NAME}")
        yield desk.run("The pull request's text, made from it.", f"contribbot body {_NAME}")
        about = "The upstream's rules; one of them is that a person stands for it."
        yield desk.run(about, f"contribbot gate {_NAME}", code=1)
        about = "Nothing is opened before a person has read it and signed."
        yield desk.run(about, f"contribbot open-pr {_NAME}", code=1)
        desk.sign()
        about = "`contribbot attest waves` asks a person. Ada Example is nobody: the demo signs."
        yield desk.run(about, f"contribbot attest {_NAME} --show")
        about = "To a GitHub on this machine, which only has this toy."
        yield desk.run(about, f"contribbot open-pr {_NAME}")
        yield desk.run("What became of it, whenever you ask.", "contribbot follow")
        if missing_emulator() or isinstance(hip_toolchain("gfx942"), Lack) or triton_missing():
            return
        about = "A Triton kernel. A processor executes the code that Triton makes for gfx942."
        yield desk.run(about, "contribbot new sums ../kernel.patch")
        shutil.copytree(_TOY / "kernel", desk.cwd / "patches/sums", dirs_exist_ok=True)
        yield desk.run("", "tail -n 6 patches/sums/patch.toml")
        yield desk.run("Red and green, emulated: no GPU is here.", "contribbot verify sums")


def _publish(folder: Path) -> Path:
    """Make the toy upstream's release in `releases/` and repository; return the repository."""
    tree, bare, release = (folder / name for name in ("upstream", "github.git", "releases"))
    shutil.copytree(_TOY / "upstream", tree)
    shutil.copy(_TOY / "fix.patch", folder)
    shutil.copy(_TOY / "kernel.patch", folder)
    release.mkdir()
    with tarfile.open(release / "toy-1.0.tar.gz", "w:gz") as archive:
        archive.add(tree, "toy-1.0")
    env = process.clean_environment({**_WHO, "HOME": str(folder)})
    for words in ("init -q -b main", "add -A", "commit -q -m Toy", f"clone -q --bare . {bare}"):
        process.run(["git", *words.split()], cwd=tree, env=env)
    return bare


@dataclass
class _Desk:
    """The working folder and environment in which the demo runs commands, with a separate home."""

    cwd: Path
    server: str
    columns: int
    begin: Callable[[str, str], None]

    def __post_init__(self) -> None:
        self.env = process.clean_environment(
            {
                **_WHO,
                "HOME": str(self.cwd),
                "CONTRIBBOT_CACHE": str(self.cwd / "cache"),
                "GITHUB_API_URL": self.server,
                "GITHUB_TOKEN": _TOKEN,
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
        return DemoStep(
            about=about,
            command=line,
            output=output,
            exit_code=code,
            seconds=round(time.monotonic() - start, 1),
        )

    def sign(self) -> None:
        """Attest the patch as Ada Example; the contribution goes only to the demo's GitHub."""
        ran = {"ran": f"contribbot verify {_NAME}", "record": "R1"}
        queue = attest.introduce(
            load_queue(self.cwd), _NAME, _SIGNER, lambda question: ran[question.name]
        )
        server = Server(self.server, self.server)
        token = Token(Secret(_TOKEN), "the demo")
        with connect(server=server, token=token) as github:
            gate = judge(queue, _NAME, github)
        shown = attest.prepare(queue, _NAME, gate)
        answers = attest.ask_all(shown.questions, lambda _: "nobody: this is contribbot demo")
        attest.conclude(queue, shown, answers, _SIGNER)
