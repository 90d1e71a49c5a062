"""Opening a pull request, or bringing it up to date: the same command does either.

Before each write that must not happen twice the journal says what is meant, and after it
that it is done. So a run that was cut off anywhere is resumed by the next: it looks at what
GitHub has, and does what is missing.
"""

from __future__ import annotations

import itertools
import logging
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal
from urllib.parse import quote, urlencode

from contribbot.contribute.attest import require, searched
from contribbot.contribute.body import make_body
from contribbot.contribute.branch import (
    Carried,
    Place,
    Target,
    Tip,
    branch_of,
    carry_onto,
    make_commits,
    put_ref,
    refuse_foreign,
    refuses_pulls,
    sync_fork,
)
from contribbot.contribute.markdown import fence
from contribbot.contribute.model import Body, text_digest
from contribbot.contribute.publication import (
    BRANCH,
    COMMENT,
    FORK,
    HANDOFF,
    PULL,
    TEXT,
    Contribution,
    PublicationJournal,
    check_below,
    digests_below,
)
from contribbot.errors import (
    GitHubError,
    NotFoundError,
    OpeningError,
    QueueError,
    RefusedError,
    SourceError,
    UncertainError,
    UsageError,
)
from contribbot.files import lock, write_atomically
from contribbot.git.source import Progress, Silent
from contribbot.github.cache import make_private
from contribbot.github.fields import login_of, name_of, text_of, whole
from contribbot.github.git_data import head_of
from contribbot.github.waits import sleep
from contribbot.model.history import DoneEvent, IntentEvent, PullRequestEvent
from contribbot.model.patch import Patch
from contribbot.queue import history
from contribbot.queue.load import Queue
from contribbot.queue.range_diff import range_diff

if TYPE_CHECKING:
    from github.PullRequest import PullRequest
    from github.Repository import Repository

    from contribbot.github.client import GitHub


log: Final = logging.getLogger(__name__)

#: Seconds between looks at a fork that GitHub is making; its git data may take minutes.
_WAITS: Final = (1.0, 2.0, 3.0, 5.0, 8.0, *itertools.repeat(10.0, 28))
#: How old a fork may be that GitHub may still be copying.
_YOUNG: Final = timedelta(hours=1)

Wait = Callable[[float], None]


def look(github: GitHub, repository: str) -> Repository:
    """Look at an upstream, which must take pull requests."""
    upstream = github.repository(repository).complete()
    why = refuses_pulls(upstream)
    if why:
        raise OpeningError(
            f"{upstream.full_name} {why}",
            hint="look on its page for where the project takes changes; its name is `repository`"
            " in upstreams/NAME.toml",
        )
    return upstream


def fork_of(github: GitHub, upstream: Repository, known: str = "") -> Repository | None:
    """Return the account's fork, or the upstream where that is one's own; None: none is known."""
    login = github.me.lower()
    if upstream.full_name.partition("/")[0].lower() == login:
        return upstream
    mine = known.partition("/")[0].lower() == login
    try:
        found = github.repository(known if mine else fork_name(github, upstream)).complete()
    except NotFoundError:
        return None
    if found.full_name.partition("/")[0].lower() != login:
        return None  # it moved to somebody else, and GitHub follows the old name
    origins = (found.raw_data.get(key) or {} for key in ("parent", "source"))
    if upstream.full_name.lower() not in {str(one.get("full_name")).lower() for one in origins}:
        return None  # GitHub gives the fork another name, or has one of another name
    if found.archived:
        raise OpeningError(
            f"{found.full_name}: your fork is archived",
            hint=f"unarchive it on {found.html_url}/settings",
        )
    return found


def make_fork(
    github: GitHub,
    upstream: Repository,
    book: PublicationJournal,
    patch: str,
    *,
    wait: Wait = sleep,
) -> Repository:
    """Fork an upstream, and wait until GitHub has made it; one of another name is as good."""
    name, key = upstream.full_name, fork_name(github, upstream)
    book.note(
        patch,
        IntentEvent(time=history.now(), summary=f"about to fork {name}", what=FORK, key=key),
    )
    try:
        made: Repository | None = upstream.create_fork(default_branch_only=True)
    except UncertainError:
        made = None
    found = _ready(lambda: made or fork_of(github, upstream), upstream.default_branch, key, wait)
    note_fork(github, book, patch, upstream, found)
    return found


def _ready(find: Callable[[], Repository | None], branch: str, name: str, wait: Wait) -> Repository:
    """Wait until a fork is there, with its git data."""
    for number, pause in enumerate((*_WAITS, 0.0)):
        found = find()
        if found is not None and head_of(found, branch) is not None:
            return found
        if number == 0:
            log.warning("GitHub is making the fork %s: waiting up to %d s", name, sum(_WAITS))
        wait(pause)
    raise GitHubError(
        f"{name}: GitHub is still making the fork", hint="run this again in some minutes"
    )


def note_fork(
    github: GitHub, book: PublicationJournal, patch: str, upstream: Repository, fork: Repository
) -> None:
    """Note that a fork is there, where that was begun and is not noted yet."""
    key = fork_name(github, upstream)
    if not book.contribution(patch).begun(FORK, key):
        return
    book.note(
        patch,
        DoneEvent(
            time=history.now(),
            summary=f"forked {upstream.full_name} to {fork.full_name}",
            what=FORK,
            key=key,
            fork=fork.full_name,
            url=fork.html_url,
        ),
    )


def fork_name(github: GitHub, upstream: Repository) -> str:
    """Return how the account's fork is called, unless it was given another name."""
    return f"{github.me}/{upstream.full_name.partition('/')[2]}"


def place_at(
    github: GitHub, upstream: Repository, fork: Repository | None, server: str,
    *, wait: Wait = sleep,
) -> Place:  # fmt: skip
    """Return where a branch goes, with the upstream's newest commit."""
    name, branch = upstream.full_name, upstream.default_branch
    if fork is not None and fork.full_name != name:
        place = _compared(upstream, fork, server)
        if place is None and datetime.now(UTC) - fork.created_at < _YOUNG:
            fork = _ready(lambda: fork, branch, fork.full_name, wait)
            place = _compared(upstream, fork, server)
        if place is not None:
            return place
    tip = upstream.get_branch(branch).commit
    found = Tip(branch, tip.sha, tip.commit.tree.sha)
    if fork is None:
        return Place(name, fork_name(github, upstream), found, server, missing=True)
    return Place(name, fork.full_name, found, server, fork.node_id)


def _compared(upstream: Repository, fork: Repository, server: str) -> Place | None:
    """Return the place of a branch in a fork, by what the fork's own lacks and has beside."""
    name = upstream.default_branch
    owner = fork.full_name.partition("/")[0]
    try:
        # The commits that it also lists are of no use here: one, and not 250.
        found = upstream.compare(name, f"{owner}:{name}", comparison_commits_per_page=1)
    except (NotFoundError, RefusedError):
        return None  # it is empty yet, has no such branch, or the two are too far apart
    tip = found.base_commit
    return Place(
        upstream.full_name, fork.full_name, Tip(name, tip.sha, tip.commit.tree.sha), server,
        fork.node_id, behind=found.behind_by, own=found.ahead_by,
    )  # fmt: skip


#: Lines and characters of a range-diff that a comment shows; GitHub takes 65,536 characters.
_LINES: Final = 400
_LONGEST: Final = 48_000
#: The line of a pair of commits in a range-diff, whose ids name nothing that readers have.
_PAIR: Final = re.compile(
    r"^(?P<old> *(?:\d+|-)):  ?[0-9a-f-]+ (?P<sign>[=!<>]) (?P<new> *(?:\d+|-)):  ?[0-9a-f-]+ "
)


def judge(
    pulls: Sequence[PullRequest], patch: str, known: Contribution, *, repository: str
) -> PullRequest | None:
    """Return the open pull request of a branch; None where it never had one."""
    for pull in pulls:
        if pull.state == "open":
            return pull
    if not pulls:
        return None
    last = pulls[0]
    reference = f"{repository}#{last.number}"
    another = "name another branch in [contribution] of patch.toml"
    if known.former == reference:
        raise OpeningError(
            f"{patch}: {reference} is of this branch, and of the patch that had the name before"
            " it was retired",
            hint=f"this one is another: {another}",
        )
    if known.state == "reverted" and known.reference == reference:
        raise OpeningError(
            f"{patch}: {reference} was merged and then reverted",
            hint=f"read there why ({last.html_url}); to open it anew, {another}",
        )
    if last.merged_at is not None:
        raise OpeningError(
            f"{patch}: {reference} is merged already",
            hint=f"take the patch out: contribbot retire {patch}",
        )
    raise OpeningError(
        f"{patch}: {reference}, the pull request of this branch, was closed",
        hint=f"read there why ({last.html_url}); reopen it, or {another}",
    )


def update_text(
    book: PublicationJournal, patch: str, pull: PullRequest, text: Body, *, repository: str
) -> Literal["kept", "updated", "edited"]:
    """Give a pull request its text, unless a person has written there."""
    now = text_digest(pull.title, text_of(pull.body))
    known = book.contribution(patch)
    reference = f"{repository}#{pull.number}"
    said = f"the text of {reference}"
    intent = IntentEvent(
        time=history.now(),
        summary=f"about to update {said}",
        what=TEXT,
        key=reference,
        reference=reference,
        text=text.digest,
    )
    if now == text.digest:
        if known.begun(TEXT, reference):
            book.done(patch, intent, f"updated {said}")
        return "kept"
    if now not in known.texts:
        return "edited"
    book.note(patch, intent)
    pull.edit(title=text.title, body=text.text)
    book.done(patch, intent, f"updated {said}")
    return "updated"


def range_text(patch: str, old: int, new: int, range_diff: str) -> str:
    """Return the comment that shows what changed between two versions."""
    rows = [_PAIR.sub(r"\g<old> \g<sign> \g<new> ", row) for row in range_diff.splitlines()]
    count = min(len(rows), _LINES)
    shown = fence("\n".join(rows), language="diff", lines=count)
    while len(shown.encode()) > _LONGEST and count > 1:
        count //= 2
        shown = fence("\n".join(rows), language="diff", lines=count)
    if len(shown.encode()) > _LONGEST:
        shown = fence("(its lines are too long to show)")
    return (
        f"{_marker(patch, old, new)}\nWhat changed from v{old} to v{new} (`git range-diff`):\n\n"
        f"<details><summary>range-diff</summary>\n\n{shown}\n\n</details>\n"
    )


def _marker(patch: str, old: int, new: int) -> str:
    """Return the line by which a comment of ours is known again."""
    return f"<!-- contribbot: range-diff of {patch}, v{old} to v{new} -->"


def post_range(
    github: GitHub,
    book: PublicationJournal,
    patch: str,
    known: Contribution,
    comment: str,
    *,
    repository: str,
    login: str,
) -> str:
    """Comment on what changed since the version that readers know, once."""
    said = f"{known.reference}: what is new in v{known.version}"
    intent = IntentEvent(
        time=history.now(),
        summary=f"about to comment on {said}",
        what=COMMENT,
        key=f"{known.reference} v{known.announced}..v{known.version}",
        reference=known.reference,
        version=known.version,
    )
    marker = comment.partition("\n")[0]
    url = ""
    if known.begun(COMMENT, intent.key):
        # A crash came between: it may be there.
        url = _find(github, known.number, marker, repository=repository, login=login)
    else:
        book.note(patch, intent)
    if not url:
        try:
            url = github.pull(repository, known.number).create_issue_comment(comment).html_url
        except UncertainError:
            url = _find(github, known.number, marker, repository=repository, login=login)
            if not url:
                raise
    book.done(patch, intent, f"commented on {said}", url=url)
    return url


def _find(github: GitHub, number: int, marker: str, *, repository: str, login: str) -> str:
    """Return the page of our comment, or nothing."""
    for one in whole(github.issue(repository, number).get_comments()):
        first = text_of(one.body).replace("\r\n", "\n").partition("\n")[0]
        if first == marker and (login_of(one.user) or "").lower() == login.lower():
            return one.html_url
    return ""


#: GitHub's server refuses longer addresses.
_LONGEST_ADDRESS: Final = 8000


@dataclass(frozen=True)
class Page:
    """A prefilled compare page."""

    url: str
    #: The file with the body, where that is too long for an address; else None.
    body_file: Path | None = None


def compare_page(place: Place, branch: str, title: str, body: str, body_file: Path) -> Page:
    """Return the page on which a person opens the pull request."""
    ends = f"{quote(place.tip.name)}...{quote(place.owner)}:{quote(branch)}"
    start = f"{place.server.rstrip('/')}/{place.upstream}/compare/{ends}"
    query = {"expand": "1", "title": title, "body": body}
    url = f"{start}?{urlencode(query, quote_via=quote)}"
    if len(url) <= _LONGEST_ADDRESS:
        return Page(url)
    del query["body"]
    return Page(f"{start}?{urlencode(query, quote_via=quote)}", body_file)


def write_body(page: Page, body: str) -> None:
    """Write the body to its file, where the page does not have it."""
    if page.body_file is not None:
        make_private(page.body_file.parent)
        write_atomically(page.body_file, body.encode("utf-8"))


@dataclass(frozen=True)
class Wanted:
    """What a user asks for."""

    #: Whether a new pull request is to be reviewed at once, and no draft.
    ready: bool = False
    #: Whether only to push the branch, for a person to open the pull request.
    handoff: bool = False
    #: Whether to carry the branch onto the upstream's newest commit even when the patch is what
    #: it was.
    up_to_date: bool = False
    #: Whether nothing is written anywhere: `github` then sends reads alone.
    dry_run: bool = False


@dataclass(frozen=True)
class Tools:
    """What opening needs from elsewhere."""

    #: GitHub, in a dry run one that sends nothing but reads.
    github: GitHub
    text: Callable[[Patch], Body]
    #: Raises unless a person stands for a patch with that text.
    attested: Callable[[Body], None]
    #: The page of the server, such as `https://github.com`.
    server: str
    progress: Progress = field(default_factory=Silent)
    wait: Callable[[float], None] = sleep


@dataclass(frozen=True)
class NewCommit:
    """A commit that was made."""

    id: str
    subject: str


@dataclass(frozen=True)
class Opened:
    """What was done for a patch."""

    patch: str
    upstream: str
    fork: str
    branch: str
    base_branch: str
    base: str
    head: str
    #: What was made; none where the branch was kept.
    commits: tuple[NewCommit, ...] = ()
    branch_was: Literal["made", "moved", "kept"] = "kept"
    #: The pull request, as `owner/name#number`, or empty.
    pull_request: str = ""
    url: str = ""
    #: `draft` or `open`; `to be opened` by a person.
    state: Literal["draft", "open", "to be opened"] = "to be opened"
    #: What was done to the pull request; `edited`: a person changed its text, and it was left
    #: alone.
    pull_request_was: Literal["opened", "updated", "kept", "edited", "handed off"] = "kept"
    #: The page of the comment that tells what changed, or empty.
    comment: str = ""
    #: Where the body lies that was too long for the page's address.
    body_file: str = ""
    waits_for: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Job:
    """A patch on its way to GitHub."""

    queue: Queue
    tools: Tools
    wanted: Wanted
    book: PublicationJournal
    patch: Patch
    text: Body
    place: Place
    login: str
    branch: str

    @property
    def key(self) -> str:
        """What tells its branch from others."""
        return f"{self.place.fork}:{self.branch}"


def tools_for(queue: Queue, github: GitHub, *, web: str, progress: Progress) -> Tools:
    """Return what opening the pull requests of a queue uses."""

    def text(patch: Patch) -> Body:
        return make_body(queue, patch.name, searched=searched(queue, patch.name))

    def attested(body: Body) -> None:
        require(queue, body)

    return Tools(
        github=github,
        text=text,
        attested=attested,
        server=os.environ.get("GITHUB_SERVER_URL") or web,
        progress=progress,
    )


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
            body=job.text.text,
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
        return replace(opened, url=pull.html_url, state=_state(pull), pull_request_was="opened")
    note_pull(job, pull)
    return replace(shown(job, opened, pull), pull_request_was="opened")


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
    done = replace(shown(job, opened, pull), pull_request_was=did)
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
    page = compare_page(job.place, job.branch, text.title, text.text, file)
    known = job.book.contribution(name)
    if not job.wanted.dry_run:
        write_body(page, text.text)
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
    return replace(
        opened, url=page.url, pull_request_was="handed off", body_file=str(page.body_file or "")
    )


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
    return replace(opened, pull_request=reference, url=pull.html_url, state=_state(pull))


_SHORT: Final = 12


def open_all(
    queue: Queue,
    names: Sequence[str],
    tools: Tools,
    wanted: Wanted,
    *,
    told: Callable[[Opened], None],
) -> None:
    """Open or update the pull requests of patches, each after what it depends on."""
    if wanted.dry_run:
        opening = _Opening(queue, tools, wanted)
        for name in names:
            told(opening.open(name))
        return
    with lock(queue.local / "open-pr.lock", "opening pull requests"):
        opening = _Opening(queue, tools, wanted)
        for name in names:
            told(opening.open(name))


class _Opening:
    """One run: what it has learned of upstreams and forks serves all its patches."""

    def __init__(self, queue: Queue, tools: Tools, wanted: Wanted) -> None:
        self._queue, self._tools, self._wanted = queue, tools, wanted
        self._github = tools.github
        self._book = PublicationJournal(queue, dry=wanted.dry_run)
        self._places: dict[str, tuple[Place, Repository]] = {}
        self._rehearsed: set[str] = set()

    def open(self, name: str) -> Opened:
        """Open or update the pull request of a patch."""
        patch = self._queue.patch(name)
        if not patch.files:
            raise UsageError(f"{name}: it has no commits yet", hint=f"contribbot edit {name}")
        waits = check_below(self._queue, self._book, name, rehearsed=self._rehearsed)
        text = self._tools.text(patch)
        self._tools.attested(text)
        place = self._place(patch)
        job = Job(
            self._queue, self._tools, self._wanted, self._book, patch, text, place,
            self._github.me, branch_of(patch),
        )  # fmt: skip
        known = self._book.contribution(name)
        renamed = _refuse_other_place(job)
        fork = self._github.repository(place.fork)
        was = None if place.missing else head_of(fork, job.branch)
        pull = pull_of(job) if was is not None or known.fork or known.open else None
        lost = "" if known.heads else f"history/{name}"
        refuse_foreign(self._github, place, job.branch, was, known.heads, lost=lost)
        if pull is not None:
            # Before the branch moves: its readers know what it carries until then.
            note_pull(job, pull)
            _refuse_other_base(job, pull)
        opened = self._branch(job, was)
        job = replace(job, place=self._place(patch))
        opened = replace(opened, waits_for=tuple(waits.values()), notes=(*renamed, *opened.notes))
        if self._wanted.dry_run:
            self._rehearsed.add(name)
        if self._wanted.handoff:
            return hand_off(job, opened, pull)
        return create(job, opened) if pull is None else update(job, opened, pull)

    def _place(self, patch: Patch) -> Place:
        """Find the fork, and the upstream's newest commit; once an upstream."""
        repository, github, tools = patch.upstream.repository, self._github, self._tools
        if repository not in self._places:
            upstream = look(github, repository)
            known = self._book.contribution(patch.name).fork
            fork = fork_of(github, upstream, known)
            if fork is not None:
                note_fork(github, self._book, patch.name, upstream, fork)
            place = place_at(github, upstream, fork, tools.server, wait=tools.wait)
            self._places[repository] = place, upstream
        return self._places[repository][0]

    def _ready_place(self, patch: Patch) -> tuple[Place, tuple[str, ...]]:
        """Make the fork where there is none, and bring one that lags behind up to date.

        As late as there is something to put into it.
        """
        repository, tools = patch.upstream.repository, self._tools
        place, upstream = self._places[repository]
        if place.missing:
            fork = make_fork(self._github, upstream, self._book, patch.name, wait=tools.wait)
            other = fork.full_name.lower() != place.fork.lower()
            place = replace(place, fork=fork.full_name, fork_id=fork.node_id, missing=False)
            if other:
                # It was there before, under another name.
                found = place_at(self._github, upstream, fork, tools.server, wait=tools.wait)
                place = replace(place, behind=found.behind, own=found.own)
        notes = sync_fork(self._github, place)
        place = replace(place, behind=0) if notes else place
        self._places[repository] = place, upstream
        return place, notes

    def _branch(self, job: Job, was: str | None) -> Opened:
        """See that the branch has the patch."""
        patch, place = job.patch, job.place
        known = self._book.contribution(patch.name)
        done = Opened(
            patch.name, place.upstream, place.fork, job.branch, place.tip.name, known.base,
            known.head,
        )  # fmt: skip
        below = digests_below(self._queue, patch.name)
        same = (known.digest, dict(known.below)) == (patch.digest, below)
        if was is not None and was == known.head and same:
            if known.base == place.tip.sha:
                return done
            if not self._wanted.up_to_date:
                note = (
                    f"it stands on {known.base[:_SHORT]}, and {place.tip.name} has moved on to"
                    f" {place.tip.sha[:_SHORT]}; --up-to-date carries it there"
                )
                return replace(done, notes=(note,))
        target = Target(self._github, place.upstream, place.tip)
        carried = carry_onto(self._queue, patch.name, target, progress=self._tools.progress)
        return self._push(job, replace(done, notes=carried.notes), was, carried)

    def _push(self, job: Job, done: Opened, was: str | None, carried: Carried) -> Opened:
        """Make the commits, and give them to the branch."""
        patch = job.patch
        place, notes = self._ready_place(patch)
        job, done = replace(job, place=place), replace(done, fork=place.fork)
        commits = make_commits(self._github, place, carried)
        head, version = commits[-1], self._book.version(patch)
        said = f"{job.key} the commit {head[:_SHORT]} (v{version})"
        intent = IntentEvent(
            time=history.now(),
            summary=f"about to give {said}",
            what=BRANCH,
            key=job.key,
            fork=place.fork,
            branch=job.branch,
            head=head,
            base=place.tip.sha,
            digest=patch.digest,
            below=digests_below(self._queue, patch.name),
            version=version,
        )
        ours = self._book.contribution(patch.name).heads
        self._book.note(patch.name, intent)
        put_ref(self._github, place, job.branch, head, was=was, ours=ours)
        self._book.done(patch.name, intent, f"gave {said}")
        made = zip(commits, carried.commits, strict=True)
        return replace(
            done,
            base=place.tip.sha,
            head=head,
            commits=tuple(NewCommit(commit, one.subject) for commit, one in made),
            branch_was="made" if was is None else "kept" if was == head else "moved",
            notes=(*done.notes, *notes),
        )


def _refuse_other_place(job: Job) -> tuple[str, ...]:
    """Refuse to open a second pull request from another branch or fork."""
    known, upstream = job.book.contribution(job.patch.name), job.place.upstream
    owner, _, _ = known.fork.partition("/")
    before = f"{known.fork}:{known.branch}"
    # A fork that is renamed keeps its branches, and they their pull requests.
    if not owner or (owner.lower(), known.branch) == (job.place.owner.lower(), job.branch):
        return ()
    there = known.reference if known.reference and not known.ended else ""
    if not there:
        # One that nobody noted: a person opened it, or a run was cut off just then.
        pulls = job.tools.github.pulls_from(upstream, owner, known.branch)
        there = next((f"{upstream}#{one.number}" for one in pulls if one.state == "open"), "")
    if not there:
        return ()
    # GitHub names the fork as it is called today.
    head = job.tools.github.pull(upstream, int(there.rpartition("#")[2])).complete().head
    name = name_of(head.repo)
    if f"{name}:{head.ref}".lower() == job.key.lower():
        return (f"{known.fork} is called {job.place.fork} now: your account was renamed",)
    other = name and name.lower() != known.fork.lower()
    now = f" (which is called {name} now)" if other else ""
    raise OpeningError(
        f"{job.patch.name}: its pull request {there} is open from {before}{now}, and"
        f" this would open a second one from {job.key}",
        hint="use the same branch and account, or close that one and run contribbot follow",
    )


def _refuse_other_base(job: Job, pull: PullRequest) -> None:
    """Refuse to carry a branch to where its pull request does not go."""
    reference, tip = f"{job.place.upstream}#{pull.number}", job.place.tip
    if pull.base.ref != tip.name:
        raise OpeningError(
            f"{job.patch.name}: {reference} goes to {pull.base.ref}, and contribbot carries"
            f" patches to {tip.name}: there it would show the commits of both",
            hint=f"change its base on its page, {pull.html_url}, or carry on with it by hand;"
            " nothing was changed there",
        )
