"""The workflows of a queue: made from templates, put into `.github/workflows/`, and compared.

A file that is written begins with a seal over the rest of it. A file whose seal holds is
contribbot's, and is replaced when its template or `runners.toml` has changed. Any other was
changed by a person, and stays until that person says otherwise.
"""

from __future__ import annotations

import difflib
import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import contribbot
from contribbot.errors import QueueError, UsageError
from contribbot.model.workflows import Standing, Workflow
from contribbot.queue.load import Queue
from contribbot.queue.transaction import transaction
from contribbot.runners.config import GITHUBS_OWN, load_fleet
from contribbot.runners.requirements import check_requirements

#: Where GitHub looks for workflows, in a repository.
FOLDER: Final = ".github/workflows"
_NAMES: Final = ("verify.yml", "rebase.yml", "open-pr.yml")
_SEAL: Final = re.compile(r"# Written by `contribbot workflows install`; seal ([0-9a-f]{64})\n")
#: What ends a line of a template that is filled in, and the part that is.
_MARKED: Final = re.compile(r"^( *[a-z-]+: )(\S.*?)( # filled in: ([a-z]+))$", re.MULTILINE)
#: Branches that GitHub's filter takes as they stand; in others it sees a pattern.
_BRANCH: Final = re.compile(r"(?!refs/)[A-Za-z0-9_][A-Za-z0-9_-]*(?:[./][A-Za-z0-9_-]+)*")
#: What YAML leaves a word, without quotes: nothing that begins as a number or a date does.
_PLAIN: Final = re.compile(r"[A-Za-z][A-Za-z0-9._/-]*")
#: What it does not, in one of its versions.
_NO_WORDS: Final = frozenset({"true", "false", "yes", "no", "on", "off", "y", "n", "null"})


def look(queue: Queue, *, branch: str = "") -> tuple[Workflow, ...]:
    """Compare the workflows of a queue with what they shall be."""
    _check_place(queue.folder)
    _check_way(queue.folder)
    labels = _hosted_labels(queue.folder)
    check_requirements(queue.folder)
    return tuple(_compare(queue.folder, name, labels, branch) for name in _NAMES)


def install(queue: Queue, *, branch: str = "", force: bool = False) -> tuple[Workflow, ...]:
    """Write the workflows of a queue, all of them or none."""
    with transaction(queue.folder) as changes:
        found = look(queue, branch=branch)
        edited = [one.path for one in found if one.standing is Standing.EDITED]
        if edited and not force:
            raise UsageError(
                f"{', '.join(edited)}: changed by hand, and nothing was written",
                hint="see what differs with `contribbot workflows install --check`; "
                "give the changes up with --force",
            )
        for one in found:
            changes.write(one.path, one.wanted.encode())
    return found


def templates_folder() -> Path:
    """Return the folder of the templates: in the package, or beside it in a work tree."""
    package = Path(contribbot.__file__).parent
    packed = package / "workflows"
    return packed if packed.is_dir() else package.parent / "workflows"


def fill(template: str, filled: dict[str, str]) -> str:
    """Return a template with each marked value replaced."""
    return _MARKED.sub(lambda one: f"{one[1]}{filled[one[4]]}{one[3]}", template)


def sealed(text: str) -> str:
    """Return a workflow with its seal before it."""
    digest = hashlib.sha256(text.encode()).hexdigest()
    return f"# Written by `contribbot workflows install`; seal {digest}\n{text}"


def is_untouched(text: str) -> bool:
    """Say whether a file is as contribbot wrote it."""
    seal = _SEAL.match(text)
    if seal is None:
        return False
    return hashlib.sha256(text[seal.end() :].encode()).hexdigest() == seal[1]


def _compare(folder: Path, name: str, labels: Sequence[str], branch: str) -> Workflow:
    path = f"{FOLDER}/{name}"
    place = folder / path
    # What cannot be read as text is not ours, and a difference can be shown all the same.
    there = place.read_bytes().decode("utf-8", "replace") if place.is_file() else None
    template = (templates_folder() / name).read_text(encoding="utf-8")
    hosted = [_word(label) for label in labels]
    values = {
        "hosted": hosted[0] if len(hosted) == 1 else f"[{', '.join(hosted)}]",
        "branch": f"[{_word(_checked_branch(branch) or _branch_in(there or '') or 'main')}]",
    }
    wanted = sealed(fill(template, values))
    if there is None:
        standing = Standing.MISSING
    elif there == wanted:
        standing = Standing.CURRENT
    else:
        standing = Standing.OUTDATED if is_untouched(there) else Standing.EDITED
    return Workflow(
        path=path, standing=standing, wanted=wanted, diff=_difference(path, there, wanted)
    )


def _difference(path: str, there: str | None, wanted: str) -> tuple[str, ...]:
    """Return what installing would change, as a unified diff."""
    before = [] if there is None else there.splitlines()
    rows = difflib.unified_diff(
        before,
        wanted.splitlines(),
        "/dev/null" if there is None else f"a/{path}",
        f"b/{path}",
        lineterm="",
    )
    found = tuple(rows)
    if not found and there not in {None, wanted}:
        return (f"{path}: the same words, with other line ends",)
    return found


def _branch_in(text: str) -> str:
    """Return the branch that an installed workflow names; empty where it names not just one."""
    for one in _MARKED.finditer(text):
        branch = one[2].strip('[]"')
        if one[4] == "branch" and _BRANCH.fullmatch(branch):
            return branch
    return ""


def _checked_branch(branch: str) -> str:
    if branch and not _BRANCH.fullmatch(branch):
        raise UsageError(
            f"--branch {branch}: no push to it would start verify.yml, as GitHub reads it",
            hint="name it as in release/2.1: letters, digits and - _ . / and no refs/heads/",
        )
    return branch


def _word(text: str) -> str:
    """Return a label or a branch as YAML, in which it stays a word."""
    plain = _PLAIN.fullmatch(text) and text.casefold() not in _NO_WORDS
    return text if plain else f'"{text}"'


def _check_place(folder: Path) -> None:
    """Refuse a queue that is not the top of its repository: GitHub looks only there."""
    top = next(
        (one for one in (folder, *folder.absolute().parents) if (one / ".git").exists()), None
    )
    if top is not None and top.resolve() != folder.resolve():
        raise UsageError(
            f"{folder}: not the top of its repository, which is {top}",
            hint="GitHub reads workflows only there: give the queue a repository of its own",
        )


def _check_way(folder: Path) -> None:
    """Refuse what is in the way: through a link git, and so GitHub, sees no workflow."""
    folders = [folder / ".github", folder / FOLDER]
    for place in (*folders, *(folder / FOLDER / name for name in _NAMES)):
        if place.is_symlink():
            raise QueueError(
                f"{place}: a link, of which git keeps where it leads and no workflow",
                hint="put a real one in its place",
            )
    for place in folders:
        if place.exists() and not place.is_dir():
            raise QueueError(f"{place}: a file, where a folder belongs", hint="move it away")


def _hosted_labels(folder: Path) -> Sequence[str]:
    """Return the labels of the runners that compile."""
    hosted = load_fleet(folder).runners.hosted
    return hosted.labels if hosted else (GITHUBS_OWN,)
