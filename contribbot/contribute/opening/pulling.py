"""The pull request of a branch that is there: opened, brought up to date, or left to a person."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, Literal

from contribbot.contribute.opening.handoff import compare_page, write_body
from contribbot.contribute.opening.opened import Job, Opened
from contribbot.contribute.opening.updating import judge, post_range, range_text, update_text
from contribbot.contribute.state import HANDOFF, PULL
from contribbot.errors import QueueError, RefusedError, SourceError, UncertainError
from contribbot.model.history import DoneEvent, IntentEvent, PullRequestEvent
from contribbot.queue import history
from contribbot.queue.range_diff import range_diff

if TYPE_CHECKING:
    from github.PullRequest import PullRequest

#: GitHub's answer when there is a pull request from the branch already.
_UNPROCESSABLE: Final = 422


def create(job: Job, opened: Opened) -> Opened:
    """Open the pull request; one whose answer is lost is looked for, never sent again."""
    place = job.place
    job.book.note(
        job.patch.name,
        IntentEvent(
            time=history.now(),
            summary=f"about to open a pull request at {place.upstream} from {job.branch}",
            what=PULL,
            key=job.key,
            fork=place.fork,
            branch=job.branch,
            text=job.text.digest,
        ),
    )
    try:
        pull = job.tools.github.repository(place.upstream).create_pull(
            place.tip.name,
            f"{place.owner}:{job.branch}",
            title=job.text.title,
            body=job.text.body,
            draft=not job.wanted.ready,
        )
    except (UncertainError, RefusedError) as error:
        if isinstance(error, RefusedError) and error.status != _UNPROCESSABLE:
            raise
        there = pull_of(job)
        if there is None:
            raise
        pull = there
    if job.wanted.dry_run:
        # It has no number, and only a list that it would be in.
        return replace(opened, url=pull.html_url, state=_state(pull), pull_was="opened")
    note_pull(job, pull)
    return replace(shown(job, opened, pull), pull_was="opened")


def pull_of(job: Job) -> PullRequest | None:
    """Return the open pull request of the branch; None where it never had one."""
    place = job.place
    found = job.tools.github.pulls_from(place.upstream, place.owner, job.branch)
    name = job.patch.name
    known = job.book.contribution(name, digest=job.patch.digest)
    return judge(found, name, known, repository=place.upstream)


def update(job: Job, opened: Opened, pull: PullRequest) -> Opened:
    """Bring the text of a pull request up to date, and tell what changed."""
    draft = pull.draft
    did = update_text(job.book, job.patch.name, pull, job.text, repository=job.place.upstream)
    done = replace(shown(job, opened, pull), pull_was=did)
    if did == "edited":
        note = "a person changed its title or body on GitHub: that was left as it is"
        done = replace(done, notes=(*done.notes, note))
    done = _announce(job, done)
    return _make_ready(job, done, pull) if job.wanted.ready and draft else done


def _make_ready(job: Job, done: Opened, draft: PullRequest) -> Opened:
    """Mark a draft ready for review: to do it again is no harm."""
    ready = job.tools.github.mark_ready(draft)
    if not ready:
        note = f"GitHub leaves it a draft: mark it ready on its page, {draft.html_url}"
    elif job.wanted.dry_run:
        note = "it is a draft, and would be marked ready for review"
    else:
        note = "it was a draft: marked it ready for review"
    if ready:
        note_pull(job, draft)
        done = shown(job, done, draft)
    return replace(done, notes=(*done.notes, note))


def _announce(job: Job, done: Opened) -> Opened:
    """Post what changed since the version that readers know, where that is owed."""
    name = job.patch.name
    known = job.book.contribution(name)
    if not 0 < known.announced < known.version:
        return done
    try:
        said = range_diff(job.queue, name, known.announced, progress=job.tools.progress)
    except (QueueError, SourceError) as error:
        note = f"no range-diff was posted: {error.message}"
        return replace(done, notes=(*done.notes, note))
    comment = range_text(name, known.announced, known.version, said.range_diff)
    url = post_range(
        job.tools.github, job.book, name, known, comment,
        repository=job.place.upstream, login=job.login,
    )  # fmt: skip
    return replace(done, comment=url)


def hand_off(job: Job, opened: Opened, pull: PullRequest | None) -> Opened:
    """Leave the pull request to a person."""
    if pull is not None:
        note = "its title, body and comments were left to you (--handoff)"
        return replace(shown(job, opened, pull), notes=(*opened.notes, note))
    name, text = job.patch.name, job.text
    file = job.queue.local / "handoff" / f"{name}.md"
    page = compare_page(job.place, job.branch, text.title, text.body, file)
    known = job.book.contribution(name)
    if not job.wanted.dry_run:
        write_body(page, text.body)
    if not known.handed_off or text.digest not in known.texts:
        job.book.note(
            name,
            DoneEvent(
                time=history.now(),
                summary=f"{job.key} waits for a person to open its pull request",
                what=HANDOFF,
                key=job.key,
                fork=job.place.fork,
                branch=job.branch,
                text=text.digest,
            ),
        )
    return replace(opened, url=page.url, pull_was="handed off", body_file=page.body_file)


def note_pull(job: Job, pull: PullRequest) -> None:
    """Note a pull request, unless the journal knows it as it is."""
    known = job.book.contribution(job.patch.name)
    reference, now = f"{job.place.upstream}#{pull.number}", _state(pull)
    renamed = known.fork not in {"", job.place.fork}
    if (known.reference, known.state) == (reference, now) and not renamed:
        return
    if known.reference != reference:
        what = "was opened as a draft" if now == "draft" else "was opened"
    else:
        what = "is a draft now" if now == "draft" else "is open now"
    where = f", from {job.key}" if renamed else ""
    job.book.note(
        job.patch.name,
        PullRequestEvent(
            time=history.now(),
            summary=f"{reference} {what}{where}",
            reference=reference,
            state=now,
            fork=job.place.fork,
            branch=job.branch,
            head=known.head or None,
            base=known.base or None,
            digest=known.digest or None,
            below=dict(known.below),
            version=known.version or None,
        ),
    )


def _state(pull: PullRequest) -> Literal["draft", "open"]:
    return "draft" if pull.draft else "open"


def shown(job: Job, opened: Opened, pull: PullRequest) -> Opened:
    """Return what was done, with the pull request."""
    reference = f"{job.place.upstream}#{pull.number}"
    return replace(opened, reference=reference, url=pull.html_url, state=_state(pull))
