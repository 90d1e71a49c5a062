"""Starting a run of the queue, and ending those that it makes pointless."""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from contribbot.errors import NotFoundError, RefusedError, UsageError
from contribbot.model.actions import Run
from contribbot.model.runners import RUNNERS_FILE
from contribbot.queue.load import Queue
from contribbot.runners import actions
from contribbot.runners.cells import demands
from contribbot.runners.config import load_fleet
from contribbot.runners.where import WORKFLOW

if TYPE_CHECKING:
    from contribbot.github.client import GitHub

_UNPROCESSABLE: Final = 422
#: Seconds between looks for a run that was just started.
_PAUSES: Final = (1.0, 1.0, 2.0, 2.0, 4.0, 5.0, 10.0, 15.0, 20.0, 30.0)
#: How a request stands in the name of a run: `run-name` of the workflow.
_REQUEST: Final = re.compile(r"\b([0-9a-f]{12})-([0-9a-f]{12})\b")


@dataclass(frozen=True)
class Selection:
    """What a run is to prove."""

    ref: str
    #: Names; none: all.
    patches: tuple[str, ...] = ()
    #: Targets; none: all.
    targets: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """Twelve characters that are the same for the same selection."""
        text = json.dumps([self.ref, sorted(self.patches), sorted(self.targets)])
        return hashlib.sha256(text.encode()).hexdigest()[:12]


def check_targets(queue: Queue, names: Sequence[str], targets: Sequence[str]) -> None:
    """Refuse targets that no patch asks for, or no runner has: the run would do nothing."""
    if not targets:
        return
    asked = {target for name in names for _, target in demands(queue.specs[name])}
    for target in targets:
        if target not in asked:
            known = ", ".join(sorted(asked)) or "no AMD target"
            raise UsageError(
                f"--target {target}: no patch that is meant asks for it",
                hint=f"they ask for {known}",
            )
    there = {one.target for one in load_fleet(queue.folder).runners.runners}
    for target in targets:
        if target not in there:
            raise UsageError(
                f"--target {target}: no set of {RUNNERS_FILE} has it",
                hint=f"it has {', '.join(sorted(there)) or 'none with a GPU'}",
            )


def request_for(selection: Selection) -> str:
    """Return a name for a request that no other has, and that tells the selection."""
    return f"{selection.digest}-{secrets.token_hex(6)}"


def ask(github: GitHub, repository: str, selection: Selection, request: str) -> int:
    """Ask for a run, and return its number; 0: this GitHub does not say it."""
    inputs = {
        "patches": " ".join(selection.patches), "targets": " ".join(selection.targets),
        "request": request,
    }  # fmt: skip
    try:
        run = github.workflow(repository, WORKFLOW).create_dispatch(
            selection.ref, inputs, throw=True, return_run_details=True
        )
    except NotFoundError as error:
        raise UsageError(
            f"{repository}: {error.message}",
            hint=f"{WORKFLOW} must be on its default branch (contribbot workflows install), and "
            "the token must be allowed to write actions",
        ) from error
    except RefusedError as error:
        if error.status != _UNPROCESSABLE:
            raise
        raise UsageError(
            f"{repository} {selection.ref}: {error.message}",
            hint="name a branch that is there; if the inputs are refused, bring the workflows up "
            "to date with `contribbot workflows install` and push them; if the workflow is "
            "disabled, enable it on the page of the repository's actions",
        ) from error
    # PyGithub gives True for an answer without a body, of which its types know nothing.
    return int(getattr(run, "id", 0))


def find(
    github: GitHub, repository: str, ref: str, request: str, *, sleep: Callable[[float], None]
) -> Run | None:
    """Return the run that a request started: nothing else has its name. None: not seen."""
    for pause in (*_PAUSES, 0.0):
        for run in _listed(github, repository, ref):
            if request in run.display_title:
                return run
        if pause:
            sleep(pause)
    return None


def _listed(github: GitHub, repository: str, ref: str) -> tuple[Run, ...]:
    try:
        return actions.runs(github, repository, WORKFLOW, branch=ref)
    except NotFoundError:
        return ()  # GitHub knows a workflow only when it has seen a run of it


def cancel_superseded(
    github: GitHub, repository: str, selection: Selection, run: Run
) -> tuple[Run, ...]:
    """End older runs of the same selection that the same account started with this tool."""
    ended = []
    for one in _listed(github, repository, selection.ref):
        named = _REQUEST.search(one.display_title)
        mine = named is not None and named[1] == selection.digest and one.actor == run.actor
        if mine and one.id < run.id and not one.over and actions.cancel(github, repository, one.id):
            ended.append(one)
    return tuple(ended)
