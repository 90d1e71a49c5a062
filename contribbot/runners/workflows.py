"""Write the workflow files of a queue from templates; `git diff` shows the changes."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import contribbot
from contribbot.errors import QueueError, UsageError
from contribbot.git.repository import ask_git
from contribbot.model.base import Model
from contribbot.queue.load import Queue
from contribbot.queue.transaction import transaction
from contribbot.runners.plan import load_fleet


class Workflow(Model):
    """One workflow, and whether the installation changed the file."""

    path: str
    changed: bool


class Workflows(Model):
    """The JSON of `contribbot runners workflows install`."""

    workflows: tuple[Workflow, ...]


#: The runner of a job for which `runners.toml` names no hosted runners.
GITHUBS_OWN: Final = "ubuntu-24.04"
#: The packages that pip installs on a runner, each with version and digests.
REQUIREMENTS: Final = ".github/contribbot-requirements.txt"
FOLDER: Final = ".github/workflows"
NAMES: Final = ("verify.yml", "rebase.yml", "open-pr.yml", "emulate.yml")
#: A line of a template whose value contribbot fills in.
_MARKED: Final = re.compile(r"^( *[a-z-]+: )(\S.*?)( # filled in: ([a-z]+))$", re.MULTILINE)


def install(queue: Queue) -> Workflows:
    """Write all workflows of a queue in one transaction; keep the branch that they name."""
    folder = queue.folder
    top = next(
        (each for each in (folder, *folder.absolute().parents) if (each / ".git").exists()), folder
    )
    if top.resolve() != folder.resolve():
        raise UsageError(
            f"{folder}: not the top of its repository, which is {top}",
            hint="GitHub reads workflows only there: give the queue a repository of its own",
        )
    if not (folder / REQUIREMENTS).is_file():
        raise QueueError(
            f"{folder / REQUIREMENTS}: no such file, and runners install what it pins",
            hint="write it with `uv pip compile --generate-hashes`, as docs/runners.md shows",
        )
    if ask_git(folder, "status", "--porcelain", "--", *(f"{FOLDER}/{name}" for name in NAMES)):
        raise UsageError(
            f"{FOLDER}: changes there are not committed, and would be lost",
            hint="commit them; afterwards, `git diff` shows what the installation changed",
        )
    hosted = load_fleet(folder).runners.hosted
    labels = json.dumps(hosted.labels if hosted else (GITHUBS_OWN,))
    workflows = []
    with transaction(folder) as changes:
        for name in NAMES:
            path = f"{FOLDER}/{name}"
            before = changes.read(path)
            known = re.search(rb'\["(.+)"\] # filled in: branch$', before or b"", re.MULTILINE)
            branch = json.dumps([known[1].decode("utf-8", "replace") if known else "main"])
            values = {"hosted": labels, "branch": branch}
            template = (templates_folder() / name).read_text(encoding="utf-8")
            content = _MARKED.sub(functools.partial(_filled, values), template).encode()
            changes.write(path, content)
            workflows.append(Workflow(path=path, changed=content != before))
    return Workflows(workflows=tuple(workflows))


def _filled(values: Mapping[str, str], mark: re.Match[str]) -> str:
    return f"{mark[1]}{values[mark[4]]}{mark[3]}"


def templates_folder() -> Path:
    """Return the folder of templates: in the installed package, or in a work tree's top folder."""
    package = Path(contribbot.__file__).parent
    packed = package / "workflows"
    return packed if packed.is_dir() else package.parent / "workflows"
