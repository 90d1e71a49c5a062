"""Taking a patch out of the queue for a reason that is checked, its history kept."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from contribbot.contribute.follow import Sight, note
from contribbot.contribute.landing import Fate, Landing, landing
from contribbot.contribute.publication import PULL, Contribution, state
from contribbot.contribute.reviews import line_of
from contribbot.errors import ContribbotError, ExitCode, QueueError, UsageError
from contribbot.lifecycle import rebase
from contribbot.lifecycle.status import status_against
from contribbot.model.history import RetiredEvent
from contribbot.model.lifecycle import Need, PatchStatus, Text
from contribbot.model.patch import Patch
from contribbot.queue import history, toml_edit
from contribbot.queue.load import Queue, load_queue, no_such_patch
from contribbot.queue.transaction import transaction
from contribbot.queue.worktree import find_tree
from contribbot.verify.pipeline import Options, Watcher

if TYPE_CHECKING:
    from github.PullRequest import PullRequest

    from contribbot.github.client import GitHub


#: Opens GitHub, when there is something to ask.
Connect = Callable[[], "AbstractContextManager[GitHub]"]
#: Says what the upstream's newest release makes of a patch.
Status = Callable[[Queue, str], PatchStatus]

_LONGEST: Final = 1000


class RetiringError(ContribbotError):
    """A patch that is still needed, as far as can be seen, is not taken out."""

    exit_code = ExitCode.NO


@dataclass(frozen=True)
class Retired:
    """What was done."""

    patch: str
    why: str
    notes: tuple[str, ...] = ()


def retire(queue: Queue, name: str, connect: Connect, status: Status, *, why: str = "") -> Retired:
    """Take a patch out of the queue. Nothing is closed on GitHub."""
    given = _given(why)
    if name not in queue.specs:
        raise _left(queue, name)
    _refuse_dependents(queue, name)
    patch = queue.patch(name)
    known = state(history.read(queue.folder, name), digest=patch.digest)
    if given:
        # GitHub is not asked: a reason of the person's needs none.
        open_then = "was open when it was last looked at, and nothing was closed there"
        notes = (f"{_open(known)} {open_then}",) if _open(known) else ()
        return _carry_out(queue, patch, given, notes)
    reason = _of_pull(queue, known, name, connect) if known is not None else ""
    return _carry_out(queue, patch, reason or _of_release(queue, name, known, status))


def _given(why: str) -> str:
    """Return a person's reason, as a line."""
    if not why:
        return ""
    if not why.strip() or not why.isprintable() or len(why) > _LONGEST:
        raise UsageError(
            "--why: not a reason in one line of text", hint="say in a sentence why it goes"
        )
    return why.strip()


def _open(known: Contribution | None) -> str:
    """Return the pull request that is open as far as is known, or nothing."""
    return known.reference if known is not None and known.reference and not known.ended else ""


def _refuse_dependents(queue: Queue, name: str) -> None:
    above = [one for one, spec in queue.specs.items() if name in spec.depends_on]
    if above:
        raise UsageError(
            f"{name}: {', '.join(above)} {'depends' if len(above) == 1 else 'depend'} on it",
            hint=f"retire {above[-1]} first; or move the pin to a release that has {name}"
            " (contribbot rebase), and take it out of depends_on",
        )


def _of_pull(queue: Queue, known: Contribution, name: str, connect: Connect) -> str:
    """Return the reason that the pull request gives; nothing where it gives none."""
    if not known.reference:
        if known.handed_off or any(one.what == PULL for one in known.open):
            raise RetiringError(
                f"{name}: a pull request from {known.branch} may be open, and is not known yet",
                hint="run contribbot follow; or give a reason with --why",
            )
        return ""
    pull, found = _landing(known, connect)
    if found is None:
        raise RetiringError(
            f"{name}: its pull request {known.reference} is open",
            hint="wait until it is merged, or give a reason with --why; it is then left open",
        )
    if found.fate is Fate.REVERTED:
        raise RetiringError(
            f"{name}: {known.reference} was {found.words}",
            hint="it is still needed; if it is not, give a reason with --why",
        )
    if found.fate is Fate.CLOSED:
        return ""
    # Nobody follows what has left: this is the last that the journal hears of it.
    note(queue, name, Sight(known.reference, "merged", found.words, pull.head.sha))
    return f"{known.reference} {found.words}"


def _landing(known: Contribution, connect: Connect) -> tuple[PullRequest, Landing | None]:
    """Find out what became of a pull request, and return it too; None: it is open."""
    repository = known.reference.partition("#")[0]
    with connect() as github:
        pull = github.pull(repository, known.number).complete()
        if pull.state == "open":
            return pull, None
        branch = github.repository(repository).complete().default_branch
        return pull, landing(github, repository, pull, branch)


def _of_release(queue: Queue, name: str, known: Contribution | None, status: Status) -> str:
    """Return the reason that the upstream's newest release gives."""
    says = status(queue, name)
    reason = _superseded(says)
    if reason:
        return f"superseded by {says.upstream} {says.against}: {line_of(reason, _LONGEST)}"
    closed = f"{known.reference} was closed, and " if known and known.reference else ""
    raise RetiringError(
        f"{name}: {closed}{says.upstream} {says.against} still needs it, as far as can be seen"
        f"{_reason(says)}",
        hint="give a reason with --why",
    )


def _reason(says: PatchStatus) -> str:
    """Return what was seen of it in a release, in brackets; nothing where that is all in order."""
    told = [line_of(says.text_why)] if says.text_why else []
    if says.behaviour is not None and says.behaviour.why:
        told.append(line_of(says.behaviour.why))
    return f" ({'; '.join(told)})" if told else ""


def _superseded(says: PatchStatus) -> str:
    """Return why a release needs a patch no more; nothing where it may still need it."""
    if says.text is Text.UPSTREAM:
        return says.text_why or "it has all of its text"
    behaviour = says.behaviour
    if behaviour is None or behaviour.verdict is not Need.SUPERSEDED:
        return ""
    return behaviour.why


def of_newest(options: Options, watcher: Watcher) -> Status:
    """Return what asks the upstream's newest release, and runs the patch's checks there."""

    def ask(queue: Queue, name: str) -> PatchStatus:
        upstream = queue.specs[name].upstream
        report = status_against(
            queue, [name], upstream=upstream, tag="newest", run=True, options=options,
            watcher=watcher,
        )  # fmt: skip
        return report.patches[0]

    return ask


def _carry_out(queue: Queue, patch: Patch, why: str, notes: tuple[str, ...] = ()) -> Retired:
    """Take it out: the files in one step, and what they were is kept before."""
    with transaction(queue.folder) as change:
        now = load_queue(queue.folder)
        if patch.name not in now.specs or now.patch(patch.name) != patch:
            raise QueueError(f"{patch.name} was changed meanwhile", hint="run the same again")
        _refuse_dependents(now, patch.name)
        rebase.take_out(change, now, patch, why)
        stated = change.read("patches/queue.toml") or b""
        change.write("patches/queue.toml", toml_edit.remove_from_order(stated, patch.name))
    tree = find_tree(queue, patch.name)
    if tree is not None:
        here = f"its work tree {tree.path} stays open: contribbot edit --abort {patch.name}"
        notes = (*notes, here)
    left = patch.folder
    if left.exists():
        notes = (*notes, f"{left} holds files that are not contribbot's, and stays")
    return Retired(patch.name, why, notes)


def _left(queue: Queue, name: str) -> UsageError:
    """Return the error for a patch that is not in the queue."""
    events = history.read(queue.folder, name)
    if not events:
        return no_such_patch(name, queue.specs)
    last = next((one for one in reversed(events) if isinstance(one, RetiredEvent)), None)
    return UsageError(
        f"{name} has left the queue already{f': {line_of(last.why)}' if last else ''}"
    )
