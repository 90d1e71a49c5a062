"""The workflows of a queue, from templates, sealed: a file that a person changed stays."""

from __future__ import annotations

import difflib
import enum
import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pydantic import Field

import contribbot
from contribbot.errors import QueueError, UsageError
from contribbot.model.base import Model
from contribbot.queue.load import Queue
from contribbot.queue.transaction import transaction
from contribbot.runners.fleet import load_fleet


class Standing(enum.StrEnum):
    """How a workflow of a queue compares with its template."""

    CURRENT = "current"
    MISSING = "missing"
    OUTDATED = "outdated"
    EDITED = "changed by hand"


class Workflow(Model):
    """One workflow."""

    path: str
    standing: Standing
    diff: tuple[str, ...] = ()
    wanted: str = Field(exclude=True, repr=False)


class Workflows(Model):
    """The JSON of `contribbot runners workflows install`."""

    written: bool
    workflows: tuple[Workflow, ...]


#: Runners of the jobs that no set of the queue runs.
GITHUBS_OWN: Final = "ubuntu-24.04"
#: The packages that pip installs on a runner, each with version and digests.
REQUIREMENTS: Final = ".github/contribbot-requirements.txt"
FOLDER: Final = ".github/workflows"
NAMES: Final = ("verify.yml", "rebase.yml", "open-pr.yml", "emulate.yml")
#: A line of a template whose value contribbot fills in.
_MARKED: Final = re.compile(r"^( *[a-z-]+: )(\S.*?)( # filled in: ([a-z]+))$", re.MULTILINE)
#: Branch names that GitHub's filter takes literally; other names are patterns to GitHub.
_BRANCH: Final = re.compile(r"(?!refs/)[A-Za-z0-9_][A-Za-z0-9_./-]*")


def look(queue: Queue, *, branch: str = "") -> tuple[Workflow, ...]:
    """Compare the workflows of a queue with their templates."""
    folder = queue.folder
    top = next(
        (each for each in (folder, *folder.absolute().parents) if (each / ".git").exists()), folder
    )
    if top.resolve() != folder.resolve():
        raise UsageError(
            f"{folder}: not the top of its repository, which is {top}",
            hint="GitHub reads workflows only there: give the queue a repository of its own",
        )
    if branch and not _BRANCH.fullmatch(branch):
        raise UsageError(
            f"--branch {branch}: GitHub's filter takes no such name",
            hint="name it as in release/2.1: letters, digits and - _ . / and no refs/heads/",
        )
    hosted = load_fleet(folder).runners.hosted
    if not (folder / REQUIREMENTS).is_file():
        raise QueueError(
            f"{folder / REQUIREMENTS}: no such file, and runners install what it pins",
            hint="write it with `uv pip compile --generate-hashes`, as docs/runners.md shows",
        )
    labels = json.dumps(hosted.labels if hosted else (GITHUBS_OWN,))
    return tuple(_compare(folder, name, {"hosted": labels}, branch) for name in NAMES)


def install(queue: Queue, *, branch: str = "", force: bool = False) -> tuple[Workflow, ...]:
    """Write all workflows of a queue in one transaction."""
    with transaction(queue.folder) as changes:
        workflows = look(queue, branch=branch)
        edited = [each.path for each in workflows if each.standing is Standing.EDITED]
        if edited and not force:
            raise UsageError(
                f"{', '.join(edited)}: changed by hand, and nothing was written",
                hint="see what differs with `contribbot runners workflows install --check`; "
                "give the changes up with --force",
            )
        for workflow in workflows:
            changes.write(workflow.path, workflow.wanted.encode())
    return workflows


def templates_folder() -> Path:
    """Return the folder of the templates: in the package, or beside it in a work tree."""
    package = Path(contribbot.__file__).parent
    packed = package / "workflows"
    return packed if packed.is_dir() else package.parent / "workflows"


def sealed(text: str) -> str:
    """Return a workflow with a first line by which an edit is noticed."""
    return f"# Written by `contribbot runners workflows install`; {_seal(text)}\n{text}"


def _seal(text: str) -> str:
    return f"seal {hashlib.sha256(text.encode()).hexdigest()}"


def _compare(folder: Path, name: str, values: Mapping[str, str], branch: str) -> Workflow:
    path = f"{FOLDER}/{name}"
    file = folder / path
    current = file.read_bytes().decode("utf-8", "replace") if file.is_file() else None
    # An installed workflow keeps its branch.
    known = re.search(r'\["(.+)"\] # filled in: branch$', current or "", re.MULTILINE)
    values = {**values, "branch": json.dumps([branch or (known[1] if known else "main")])}
    template = (templates_folder() / name).read_text(encoding="utf-8")
    wanted = sealed(_MARKED.sub(lambda match: f"{match[1]}{values[match[4]]}{match[3]}", template))
    diff = difflib.unified_diff(
        (current or "").splitlines(), wanted.splitlines(), f"a/{path}", f"b/{path}", lineterm=""
    )
    if current is None:
        standing = Standing.MISSING
    elif current == wanted:
        standing = Standing.CURRENT
    else:
        first, _, text = current.partition("\n")
        untouched = first.startswith("# Written by ") and first.endswith(f"; {_seal(text)}")
        standing = Standing.OUTDATED if untouched else Standing.EDITED
    return Workflow(path=path, standing=standing, wanted=wanted, diff=tuple(diff))
