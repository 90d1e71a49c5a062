"""Running the workflows of a queue with act, on this machine, with stand-ins for actions."""

from __future__ import annotations

import functools
import hashlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from contribbot.runners.actions import templates_folder
from tests.toy import GIT_ENV, Toy, git

ROOT: Final = Path(__file__).parent.parent.parent
BIN: Final = Path(sys.executable).parent
_STAND_INS: Final = Path(__file__).with_name("actions")
#: A block of a job that says which container it runs in.
_CONTAINER: Final = re.compile(r"^ {4}container:\n(?: {6}.*\n)+", re.MULTILINE)
#: How many jobs of a workflow have one.
_CONTAINERS: Final = {"verify.yml": 2, "rebase.yml": 0, "open-pr.yml": 0, "emulate.yml": 0}
_PINNED: Final = re.compile(r"uses: (actions/([a-z-]+)@[0-9a-f]{40})")

RUNNERS: Final = f"""\
[[runners]]
name = "mi300"
target = "gfx942"
labels = ["self-hosted", "linux", "mi300"]
minutes_limit = 30
rocm = [{{ version = "7.1", image = "registry.example/rocm@sha256:{"1" * 64}" }}]

[[runners]]
name = "radeon"
target = "gfx1100"
labels = ["self-hosted", "linux", "radeon"]
minutes_limit = 30
rocm = [{{ version = "7.1", image = "registry.example/rocm@sha256:{"2" * 64}" }}]

[hosted]
labels = ["ubuntu-24.04"]
rocm = [
    {{ version = "7.1", image = "registry.example/dev@sha256:{"3" * 64}", targets = ["gfx942"] }},
]
"""


@dataclass
class Act:
    """act, in a queue that is a git repository; `home` is where it keeps things."""

    queue: Path
    #: Whose HOME the steps have.
    home: Path

    @property
    def artifacts(self) -> Path:
        """Where artifacts end up, as `NAME.zip`."""
        return self.home / "artifacts"

    def __call__(
        self, event: str, workflow: str, *args: str, timeout: float = 400, **env: str
    ) -> tuple[int, str]:
        """Run a workflow for an event, to its end: labels are this machine, actions stand-ins.

        Return act's exit status, and what act and the steps wrote.
        """
        path = self.queue / ".github/workflows" / workflow
        given = {"ARTIFACTS": str(self.artifacts), **env}
        command = [
            str(BIN / "act"), event, "--workflows", str(path), "--no-cache-server",
            "--pull=false", "--concurrent-jobs", "2", "--defaultbranch", "main",
            "--platform", "self-hosted=-self-hosted", "--platform", "ubuntu-24.04=-self-hosted",
            *(f"--local-repository={each}" for each in _local(path.read_text(encoding="utf-8"))),
            *(f"--env={name}={value}" for name, value in given.items()),
            *args,
        ]  # fmt: skip
        # Nobody's configuration; and a virtual environment of one is made from its base.
        programs = f"{sysconfig.get_config_var('BINDIR')}:{os.environ['PATH']}"
        done = subprocess.run(
            command, cwd=self.queue, env={**GIT_ENV, "HOME": str(self.home), "PATH": programs},
            text=True, timeout=timeout, check=False,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        return done.returncode, done.stdout


def _local(workflow: str) -> list[str]:
    """Return which folder stands in for each action; checkout is act's own."""
    pins = dict(_PINNED.findall(workflow))
    return [
        f"{pin}={_STAND_INS / name}" for pin, name in pins.items() if (_STAND_INS / name).is_dir()
    ]


def put_under_act(toy: Toy, home: Path) -> Act:
    """Commit a queue whose workflows are installed, and take their containers out.

    There is no container engine here: what a container says is checked, and left out.
    """
    home.mkdir()
    git(toy.queue, "init", "-q", "-b", "main")
    for path in (toy.queue / ".github/workflows").iterdir():
        text, count = _CONTAINER.subn("", path.read_text(encoding="utf-8"))
        assert count == _CONTAINERS[path.name], path
        path.write_text(text, encoding="utf-8")
    toy.put(".gitignore", ".contribbot/\n")
    git(toy.queue, "add", "-A")
    git(toy.queue, "commit", "-q", "-m", "Queue")
    git(toy.queue, "remote", "add", "origin", "https://github.com/example/queue")
    return Act(toy.queue, home)


@functools.cache
def build_wheel(folder: Path) -> Path:
    """Build contribbot's own wheel, which finds all that it needs where this Python has it."""
    source = folder / "source"
    shutil.copytree(
        ROOT / "contribbot", source / "contribbot", ignore=shutil.ignore_patterns("__pycache__")
    )
    shutil.copytree(templates_folder(), source / "workflows")
    for name in ("pyproject.toml", "README.md", "LICENSE", ".gitignore"):
        shutil.copy(ROOT / name, source)
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder],
        cwd=source, check=True, capture_output=True, timeout=120,
    )  # fmt: skip
    (wheel,) = folder.glob("contribbot-*.whl")
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr("contribbot_needs.pth", f"{sysconfig.get_paths()['purelib']}\n")
    return wheel


def requirements(folder: Path) -> str:
    """Return a pinned requirement with which pip installs this contribbot, and fetches nothing."""
    folder.mkdir(parents=True, exist_ok=True)
    wheel = build_wheel(folder)
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    return f"contribbot @ {wheel.as_uri()} \\\n    --hash=sha256:{digest}\n"
