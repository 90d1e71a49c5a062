"""Starting a run of the queue, and ending those that it makes pointless."""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from contribbot.errors import GitHubError, NotFoundError, RefusedError, UncertainError, UsageError
from contribbot.github.actions import Actions
from contribbot.model.actions import Run
from contribbot.queue.load import Queue
from contribbot.runners.cells import demands
from contribbot.runners.where import WORKFLOW

_UNPROCESSABLE: Final = 422
#: Seconds between looks for a run that was just started.
_PAUSES: Final = (1.0, 1.0, 2.0, 2.0, 4.0, 5.0, 10.0, 15.0, 20.0, 30.0)
#: How a request stands in the name of a run: `run-name` of the workflow.
_REQUEST: Final = re.compile(r"\b([0-9a-f]{12})-([0-9a-f]{12})\b")


@dataclass(frozen=True)
class Selection:
    """What a run is to prove.

    Attributes:
        ref: The branch or tag of the queue.
        patches: Names; none: all.
        targets: Targets; none: all.
    """

    ref: str
    patches: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """Twelve characters that are the same for the same selection."""
        text = json.dumps([self.ref, sorted(self.patches), sorted(self.targets)])
        return hashlib.sha256(text.encode()).hexdigest()[:12]


def check_targets(queue: Queue, names: Sequence[str], targets: Sequence[str]) -> None:
    """Refuse targets that no patch asks for: the run would do nothing.

    Args:
        queue: The queue.
        names: Which patches.
        targets: The targets.

    Raises:
        UsageError: One is asked for by none.
    """
    asked = {target for name in names for _, target in demands(queue.specs[name])}
    for target in targets:
        if target not in asked:
            known = ", ".join(sorted(asked)) or "no AMD target"
            raise UsageError(
                f"--target {target}: no patch that is meant asks for it",
                hint=f"they ask for {known}",
            )


def request_for(selection: Selection) -> str:
    """Return a name for a request that no other has, and that tells the selection."""
    return f"{selection.digest}-{secrets.token_hex(6)}"


def start(
    actions: Actions, repository: str, selection: Selection, request: str,
    *, sleep: Callable[[float], None],
) -> Run:  # fmt: skip
    """Start a run, and find it.

    Args:
        actions: GitHub.
        repository: The queue's repository.
        selection: What it is to prove.
        request: The request's name, see `request_for`.
        sleep: Waits so many seconds.

    Raises:
        UsageError: There is no such branch, or the workflow there takes no such request.
        GitHubError: GitHub gives no answer, or the run does not show up.
    """
    inputs = {
        "patches": " ".join(selection.patches), "targets": " ".join(selection.targets),
        "request": request,
    }  # fmt: skip
    try:
        actions.dispatch(repository, WORKFLOW, ref=selection.ref, inputs=inputs)
    except UncertainError:
        # It may have come: what it would have started has this name, and nothing else has.
        found = _find(actions, repository, selection.ref, request, sleep)
        if found is None:
            raise
        return found
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
            "to date with `contribbot workflows install` and push them",
        ) from error
    found = _find(actions, repository, selection.ref, request, sleep)
    if found is None:
        raise GitHubError(
            f"{repository}: the run {request} was started, and does not show up",
            hint="look for it on the page of the repository's actions, and then "
            "`contribbot dispatch --resume RUN`",
        )
    return found


def _find(
    actions: Actions, repository: str, ref: str, request: str, sleep: Callable[[float], None]
) -> Run | None:
    for pause in (*_PAUSES, 0.0):
        for run in _listed(actions, repository, ref):
            if request in run.display_title:
                return run
        if pause:
            sleep(pause)
    return None


def _listed(actions: Actions, repository: str, ref: str) -> tuple[Run, ...]:
    try:
        return actions.runs(repository, WORKFLOW, branch=ref)
    except NotFoundError:
        return ()  # GitHub knows a workflow only when it has seen a run of it


def cancel_superseded(
    actions: Actions, repository: str, selection: Selection, run: Run
) -> tuple[Run, ...]:
    """End older runs of the same selection that the same account started with this tool.

    Args:
        actions: GitHub.
        repository: The queue's repository.
        selection: What the new run proves.
        run: The new run.

    Returns:
        Those that were asked to end.
    """
    ended = []
    for one in _listed(actions, repository, selection.ref):
        named = _REQUEST.search(one.display_title)
        mine = named is not None and named[1] == selection.digest and one.actor == run.actor
        if mine and one.id < run.id and not one.over and actions.cancel(repository, one.id):
            ended.append(one)
    return tuple(ended)
