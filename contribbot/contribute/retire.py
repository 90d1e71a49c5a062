"""Take a patch out of the queue for a reason, which is checked; the patch's history is kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from contribbot.contribute.follow import Connect, note_state
from contribbot.contribute.publication import Publication, PublicationJournal
from contribbot.errors import ContribbotError, ExitCode, QueueError, UsageError
from contribbot.github.pull_state import ending_of
from contribbot.markdown import line_of
from contribbot.model.base import Model
from contribbot.model.lifecycle import Need, PatchStatus, Text
from contribbot.model.patch import Patch
from contribbot.queue import history
from contribbot.queue.arrange import take_out
from contribbot.queue.history import RetiredEvent
from contribbot.queue.load import Queue, load_queue
from contribbot.queue.transaction import transaction
from contribbot.queue.worktree import find_tree

ReleaseStatus = Callable[[Queue, str], PatchStatus]
_LONGEST: Final = 1000


class RetiringError(ContribbotError):
    """Raised for a patch that seems to be still needed, and stays in the queue."""

    exit_code = ExitCode.NO


class Retired(Model):
    """The document of `queue retire --json`."""

    patch: str
    why: str
    notes: tuple[str, ...] = ()


def retire(
    queue: Queue, name: str, connect: Connect, status: ReleaseStatus, *, why: str = ""
) -> Retired:
    """Take a patch out of the queue. Nothing is closed on GitHub."""
    if why and (not why.strip() or not why.isprintable() or len(why) > _LONGEST):
        hint = "say in a sentence why it goes"
        raise UsageError("--why: not a reason in one line of text", hint=hint)
    if name not in queue.specs:
        events = history.read(queue.folder, name)
        if not events:
            queue.require(name)
        reasons = [f": {line_of(it.why)}" for it in events if isinstance(it, RetiredEvent)]
        raise UsageError(f"{name} has left the queue already{(reasons or [''])[-1]}")
    _refuse_dependents(queue, name)
    patch = queue.patch(name)
    known = PublicationJournal(queue).publication(name, digest=patch.digest)
    notes = []
    if not why:
        why = _of_pull(queue, known, name, connect) or _of_release(queue, name, known, status)
    elif known.reference and not known.ended:
        # GitHub is not asked: a reason that the person gives needs no proof.
        was_open = f"{known.reference} was open when it was last looked at"
        notes = [f"{was_open}; nothing was closed there, and nobody follows it here"]
    _take_out(queue, patch, why.strip())
    if tree := find_tree(queue, name):
        notes.append(f"its work tree {tree.path} stays open: contribbot edit --abort {name}")
    if patch.folder.exists():
        notes.append(f"{patch.folder} holds files that are not contribbot's, and stays")
    return Retired(patch=name, why=why.strip(), notes=tuple(notes))


def _refuse_dependents(queue: Queue, name: str) -> None:
    above = [patch for patch, spec in queue.specs.items() if name in spec.depends_on]
    if above:
        why = f"{', '.join(above)} {'depends' if len(above) == 1 else 'depend'} on it"
        hint = f"retire {above[-1]} first; or move the pin to a release that has {name}"
        hint += " (contribbot rebase), and take it out of depends_on"
        raise UsageError(f"{name}: {why}", hint=hint)


def _of_pull(queue: Queue, known: Publication, name: str, connect: Connect) -> str:
    """Return words on the patch's merged pull request; empty: none, or closed without a merge."""
    if known.awaited:
        why = f"a pull request from {known.branch} may be open, and is not known yet"
        hint = "run contribbot follow; or give a reason with --why"
        raise RetiringError(f"{name}: {why}", hint=hint)
    if not known.reference:
        return ""
    with connect() as github:
        pull, landing = ending_of(github, known.reference)
    if landing is None:
        hint = "wait until it is merged, or give a reason with --why; it is then left open"
        raise RetiringError(f"{name}: its pull request {known.reference} is open", hint=hint)
    if landing.fate == "reverted" or landing.elsewhere:
        hint = "it is still needed; if it is not, give a reason with --why"
        raise RetiringError(f"{name}: {known.reference} was {landing.words}", hint=hint)
    if not landing.upstream:
        return ""
    # `follow` leaves out retired patches, so the journal notes the last state now.
    reference, why = known.reference, landing.words
    note_state(queue, name, reference, "merged", why=why, head=pull.head)
    return f"{reference} {why}"


def _of_release(queue: Queue, name: str, known: Publication, status: ReleaseStatus) -> str:
    """Return why the newest release needs no patch; raise RetiringError if the patch is needed."""
    there = status(queue, name)
    release, behaviour = f"{there.upstream} {there.against}", there.behaviour
    if there.text is Text.UPSTREAM:
        reason = line_of(there.text_why or "it has all of its text", _LONGEST)
        return f"superseded by {release}: {reason}"
    if behaviour is not None and behaviour.verdict is Need.SUPERSEDED:
        return f"superseded by {release}: {line_of(behaviour.why, _LONGEST)}"
    reasons = [there.text_why, behaviour.why if behaviour is not None else ""]
    seen = "; ".join(line_of(reason) for reason in reasons if reason)
    closed = f"{known.reference} was closed, and " if known.reference else ""
    needed = f"still needs it, as far as can be seen{f' ({seen})' if seen else ''}"
    raise RetiringError(f"{name}: {closed}{release} {needed}", hint="give a reason with --why")


def _take_out(queue: Queue, patch: Patch, why: str) -> None:
    """Take a patch out of the queue in one transaction; its history gets copies of its files."""
    with transaction(queue.folder, f"retire {patch.name}") as change:
        now = load_queue(queue.folder)
        if patch.name not in now.specs or now.patch(patch.name) != patch:
            raise QueueError(f"{patch.name} was changed meanwhile", hint="run the same again")
        _refuse_dependents(now, patch.name)
        take_out(change, now, patch, why)
