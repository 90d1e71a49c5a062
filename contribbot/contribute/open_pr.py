"""Preview, open or update a pull request; a journal notes each write first, so a run can resume."""

from __future__ import annotations

import contextlib
import itertools
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Literal
from urllib.parse import quote, urlencode

from contribbot.contribute.attest import require
from contribbot.contribute.body import make_body
from contribbot.contribute.branch import (
    Place,
    Tip,
    branch_of,
    carry_onto,
    head_of,
    make_commits,
    put_ref,
    refuse_foreign,
    refuses_pulls,
    sync_fork,
)
from contribbot.contribute.gate import judge
from contribbot.contribute.model import Body, Gate, RowState, text_digest
from contribbot.contribute.publication import (
    BRANCH,
    HANDOFF,
    PULL,
    TEXT,
    Publication,
    PublicationJournal,
    check_below,
)
from contribbot.errors import (
    AttestationError,
    ContribbotError,
    GitHubError,
    NotFoundError,
    OpeningError,
    RefusedError,
    TokenError,
    UncertainError,
    UsageError,
)
from contribbot.files import lock, make_private, write_atomically
from contribbot.git.patch_format import read_mail, touched_files
from contribbot.git.pins import Progress, Silent
from contribbot.github.auth import find_server, find_token
from contribbot.model.base import Model
from contribbot.model.patch import Patch
from contribbot.queue import history
from contribbot.queue.history import DoneEvent, PullRequestEvent, superseded
from contribbot.queue.load import Queue

if TYPE_CHECKING:
    from github.PullRequest import PullRequest
    from github.Repository import Repository

    from contribbot.github.client import GitHub

log: Final = logging.getLogger(__name__)

#: Seconds between checks whether GitHub has made a fork; a fork's git data may take minutes.
_WAITS: Final = (1.0, 2.0, 3.0, 5.0, 8.0, *itertools.repeat(10.0, 28))
#: GitHub's status code when the branch has a pull request already.
_UNPROCESSABLE: Final = 422
_SHORT: Final = 12
_LONGEST_ADDRESS: Final = 8000


@dataclass(frozen=True)
class OpenOptions:
    """The options that a user gave to `open-pr`."""

    #: Whether a new pull request is ready for review instead of a draft; whether only the branch
    #: is pushed, and a person opens the pull request.
    ready: bool = False
    handoff: bool = False
    #: Whether to move even an unchanged branch onto the upstream's newest commit.
    up_to_date: bool = False


@dataclass(frozen=True)
class PushedCommit:
    """A commit that was made on GitHub."""

    id: str
    subject: str


@dataclass
class Opened:
    """A record of what a run did for one patch, filled in step by step."""

    patch: str
    upstream: str
    fork: str
    branch: str
    base_branch: str
    base: str = ""
    head: str = ""
    commits: list[PushedCommit] = field(default_factory=list)
    branch_was: Literal["made", "moved", "kept"] = "kept"
    #: The pull request, as `owner/name#number`, or empty; `to be opened`: a person opens it.
    pull_request: str = ""
    url: str = ""
    state: Literal["draft", "open", "to be opened"] = "to be opened"
    #: The action on the pull request; `edited`: a person changed its text, which was left alone.
    pull_request_was: Literal["opened", "updated", "kept", "edited", "handed off"] = "kept"
    #: The file with the body, if the body is too long for the address of GitHub's page.
    body_file: str = ""
    waits_for: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def attested_text(queue: Queue, name: str) -> Body:
    """Return a patch's pull request text; raise AttestationError if nobody attested the text."""
    body = make_body(queue, name)
    require(queue, body)
    return body


def open_all(
    queue: Queue,
    names: Sequence[str],
    github: GitHub,
    options: OpenOptions,
    progress: Progress | None = None,
) -> Iterator[Opened]:
    """Open or update the pull requests of patches in order; dependencies must come first."""
    with lock(queue.local / "open-pr.lock", "opening pull requests"):
        run = _Run(queue, github, options, progress or Silent())
        for name in names:
            yield _Opening(run, queue.patch(name)).perform()


class _Run:
    """A run of `open-pr` for several patches, which looks up each upstream and fork once."""

    def __init__(
        self, queue: Queue, github: GitHub, options: OpenOptions, progress: Progress
    ) -> None:
        self.queue, self.github, self.options, self.progress = queue, github, options, progress
        self.journal = PublicationJournal(queue)
        self._places: dict[str, tuple[Place, Repository]] = {}

    def place(self, patch: Patch) -> Place:
        """Return the place of a patch's branch, looked up once for each upstream."""
        name = patch.upstream.repository
        if name not in self._places:
            upstream = self.github.repository(name).complete()
            if why := refuses_pulls(upstream):
                hint = "look on its page for where the project takes changes; its name is"
                hint += " `repository` in upstreams/NAME.toml"
                raise OpeningError(f"{upstream.full_name} {why}", hint=hint)
            fork = self._fork_of(upstream, self.journal.publication(patch.name).fork)
            self._places[name] = self._place_at(upstream, fork), upstream
        return self._places[name][0]

    def ready_place(self, patch: Patch) -> tuple[Place, tuple[str, ...]]:
        """Make a missing fork, or sync the fork; return the place of the branch, and notes."""
        place, upstream = self._places[patch.upstream.repository]
        if place.missing:
            place = replace(self._place_at(upstream, self._make_fork(upstream)), tip=place.tip)
        notes = sync_fork(self.github, place)
        place = replace(place, behind=0) if notes else place
        self._places[patch.upstream.repository] = place, upstream
        return place, notes

    def _fork_of(self, upstream: Repository, known: str) -> Repository | None:
        """Return the account's fork of an upstream, or the upstream if the account owns it."""
        login = self.github.me.lower()
        if upstream.full_name.partition("/")[0].lower() == login:
            return upstream
        mine = known.partition("/")[0].lower() == login
        try:
            fork = self.github.repository(known if mine else self._usual(upstream)).complete()
        except NotFoundError:
            return None
        origins = (fork.raw_data.get(key) or {} for key in ("parent", "source"))
        names = {str(origin.get("full_name")).lower() for origin in origins}
        # GitHub redirects an old name to a new owner; another repository may have the usual name.
        mine = fork.full_name.partition("/")[0].lower() == login
        if not mine or upstream.full_name.lower() not in names:
            return None
        if fork.archived:
            hint = f"unarchive it on {fork.html_url}/settings"
            raise OpeningError(f"{fork.full_name}: your fork is archived", hint=hint)
        return fork

    def _usual(self, upstream: Repository) -> str:
        return f"{self.github.me}/{upstream.full_name.partition('/')[2]}"

    def _make_fork(self, upstream: Repository) -> Repository:
        """Fork an upstream and wait for the fork's git data; GitHub returns an existing fork."""
        new: Repository | None = None
        with contextlib.suppress(UncertainError):
            new = upstream.create_fork(default_branch_only=True)
        for pause in (0.0, *_WAITS):
            self.github.requester.waits.sleep(pause)
            fork = new or self._fork_of(upstream, "")
            if fork is not None and head_of(fork, upstream.default_branch) is not None:
                return fork
            if not pause:
                name, most = self._usual(upstream), sum(_WAITS)
                log.warning("GitHub is making the fork %s: waiting up to %d s", name, most)
        hint = "run this again in some minutes"
        raise GitHubError(f"{upstream.full_name}: GitHub is still making the fork", hint=hint)

    def _place_at(self, upstream: Repository, fork: Repository | None) -> Place:
        """Return the place of a branch: the fork to push to, and the upstream's newest commit."""
        name, branch = upstream.full_name, upstream.default_branch
        if fork is not None and fork.full_name != name:
            theirs = f"{fork.full_name.partition('/')[0]}:{branch}"
            # Without the branch, or with too different a history, a fork cannot be compared.
            with contextlib.suppress(NotFoundError, RefusedError):
                them = self.github.compare(name, branch, theirs)
                tip, behind, own = Tip.of(branch, them.base_commit), them.behind_by, them.ahead_by
                place = Place(name, fork.full_name, tip, fork.node_id)
                return replace(place, behind=behind, own=own)
        tip = Tip.of(branch, upstream.get_branch(branch).commit)
        if fork is None:
            return Place(name, self._usual(upstream), tip, missing=True)
        return Place(name, fork.full_name, tip, fork.node_id)


class _Opening:
    """Opens or updates one patch's pull request; steps that are done on GitHub are left out."""

    def __init__(self, run: _Run, patch: Patch) -> None:
        self.run, self.patch, self.name = run, patch, patch.name
        self.github, self.options = run.github, run.options
        self.branch = branch_of(patch)
        #: The branch's commit and open pull request, as they are before the first write.
        self.was: str | None = None
        self.pull: PullRequest | None = None

    @property
    def known(self) -> Publication:
        """The patch's published state, as its journal tells now."""
        return self.run.journal.publication(self.name)

    @property
    def key(self) -> str:
        """The key of the patch's branch in the journal."""
        return f"{self.place.fork}:{self.branch}"

    @property
    def where(self) -> dict[str, object]:
        """The fork and the branch, as fields of a journal event."""
        return {"fork": self.place.fork, "branch": self.branch}

    def perform(self) -> Opened:
        """Publish the patch's branch and pull request on GitHub; return the finished steps."""
        self._prepare()
        self._look()
        self._push()
        if self.options.handoff:
            self._hand_off()
        elif self.pull is None:
            self._create()
        else:
            self._update(self.pull)
        return self.done

    def _prepare(self) -> None:
        """Set the text and the branch's place; raise if the patch cannot be opened now."""
        run = self.run
        if not self.patch.files:
            hint = f"contribbot edit {self.name}"
            raise UsageError(f"{self.name}: it has no commits yet", hint=hint)
        if pull := self.patch.spec.pull:
            hint = f"say there what was run: contribbot body {self.name} --comment"
            raise OpeningError(f"{self.name}: it is {pull}, somebody else's", hint=hint)
        if found := superseded(run.queue, self.name):
            hint = "propose only what is missing there, as a patch of its own;"
            hint += f" take this one out: contribbot queue retire {self.name}"
            raise OpeningError(f"{self.name}: {found.words}", hint=hint)
        waits = check_below(run.queue, run.journal, self.name)
        self.text = attested_text(run.queue, self.name)
        self.place = run.place(self.patch)
        place, known = self.place, self.known
        self.done = Opened(self.name, place.upstream, place.fork, self.branch, place.tip.name)
        self.done.base, self.done.head = known.base, known.head
        self.done.waits_for += waits.values()
        self._refuse_other_place(known)

    def _refuse_other_place(self, known: Publication) -> None:
        """Raise OpeningError if a pull request is open from another branch or account."""
        upstream, owner = self.place.upstream, known.fork.partition("/")[0]
        # A renamed fork keeps its branches, and the branches keep their pull requests.
        same = owner.lower() == self.place.owner.lower()
        if not owner or (known.branch == self.branch and (same or self._renamed(known.fork))):
            return
        number = known.number if not known.ended else 0
        if not number:
            # The journal may lack a pull request: a person opened it, or a run was cut off.
            pulls = self.github.pulls_from(upstream, owner, known.branch)
            number = next((pull.number for pull in pulls if pull.state == "open"), 0)
        if number:
            raise OpeningError(
                f"{self.name}: its pull request {upstream}#{number} is open from"
                f" {known.fork}:{known.branch}, and this would open a second one from {self.key}",
                hint="use the same branch and account, or close that one and run contribbot follow",
            )

    def _renamed(self, fork: str) -> bool:
        """Return whether an old fork name leads on GitHub to the fork of this run."""
        try:
            return self.github.repository(fork).complete().node_id == self.place.fork_id
        except NotFoundError:
            return False

    def _look(self) -> None:
        """Read the branch and its pull request; raise for a foreign commit or another base."""
        known, place = self.known, self.place
        if not place.missing:
            self.was = head_of(self.github.repository(place.fork), self.branch)
        if self.was is not None or known.fork or known.open:
            self.pull = self._pull()
        refuse_foreign(self.github, place, self.branch, self.was, known.heads)
        if self.was is not None and self.was not in known.heads:
            what = f"{self.was[:_SHORT]} on {self.branch}, a merge of {place.tip.name}"
            lost = "the next push loses what that merge resolved"
            self.done.notes.append(f"somebody made {what}; the patch is the same, and {lost}")
        pull, tip = self.pull, place.tip
        if pull is None:
            return
        if pull.base.ref != tip.name:
            why = f"{self._reference(pull)} goes to {pull.base.ref}, and contribbot carries patches"
            why += f" to {tip.name}: there it would show the commits of both"
            hint = f"change its base on its page, {pull.html_url}, or carry on with it by hand;"
            raise OpeningError(f"{self.name}: {why}", hint=f"{hint} nothing was changed there")
        # Note the pull request before the branch moves, while readers see the old commits.
        self._note_pull(pull)

    def _pull(self) -> PullRequest | None:
        """Return the patch's open pull request, or None; raise OpeningError if closed or merged."""
        place = self.place
        known = self.run.journal.publication(self.name, digest=self.patch.digest)
        every = self.github.pulls_from(place.upstream, place.owner, self.branch)
        # A pull request to another base branch is a backport, unless the journal has it.
        pulls = [it for it in every if it.number == known.number or it.base.ref == place.tip.name]
        pulls = sorted(pulls or every, key=lambda pull: pull.number == known.number, reverse=True)
        is_open = next((pull for pull in pulls if pull.state == "open"), None)
        if is_open or not pulls:
            return is_open
        last, reference = pulls[0], self._reference(pulls[0])
        end = "closed" if last.merged_at is None else "merged"
        end = known.state if known.ended and known.reference == reference else end
        hint = f"read there why ({last.html_url}); reopen it, or name another branch in"
        hint += " [contribution] of patch.toml"
        if end == "merged" and known.former != reference:
            hint = f"take it out: contribbot queue retire {self.name}"
        why = f"{reference}, the pull request of this branch, was {end}"
        raise OpeningError(f"{self.name}: {why}", hint=hint)

    def _push(self) -> None:
        """Push the commits on the upstream's tip; an unchanged patch only with --up-to-date."""
        run, known, tip, done = self.run, self.known, self.place.tip, self.done
        below = history.digests_below(run.queue, self.name)
        same = (known.digest, dict(known.below)) == (self.patch.digest, below)
        # A merge of the upstream's branch on top of our commit does not change the patch.
        stands = self.was is not None and (self.was == known.head or self.was not in known.heads)
        if stands and same:
            if known.base == tip.sha:
                return
            if not self.options.up_to_date:
                moved = f"{tip.name} has moved on to {tip.sha[:_SHORT]}"
                stand = f"it stands on {known.base[:_SHORT]}, and {moved}"
                done.notes.append(f"{stand}; --up-to-date carries it there")
                return
        series = carry_onto(run.queue, self.name, self.github, self.place, progress=run.progress)
        self.place, notes = run.ready_place(self.patch)
        commits = make_commits(self.github, self.place, series)
        head, version = commits[-1], run.journal.version(self.patch)
        what = f"{self.key} the commit {head[:_SHORT]} (v{version})"
        content = {"digest": self.patch.digest, "below": below, "version": version}
        facts = {**self.where, **content, "head": head, "base": tip.sha}
        intent = run.journal.begin(self.name, BRANCH, self.key, f"about to give {what}", **facts)
        put_ref(self.github, self.place, self.branch, head, was=self.was, ours=known.heads)
        run.journal.done(self.name, intent, f"gave {what}")
        done.fork, done.base, done.head = self.place.fork, tip.sha, head
        pushed = zip(commits, series.commits, strict=True)
        done.commits = [PushedCommit(sha, commit.subject) for sha, commit in pushed]
        if self.was != head:
            done.branch_was = "made" if self.was is None else "moved"
        done.notes += [*series.notes, *notes]

    def _hand_off(self) -> None:
        """Set the URL of the open pull request, or of GitHub's page that opens the pull request."""
        if self.pull is not None:
            self._show(self.pull)
            self.done.notes.append("its title, body and comments were left to you (--handoff)")
            return
        text, place, known, done = self.text, self.place, self.known, self.done
        ends = f"{quote(place.tip.name)}...{quote(place.owner)}:{quote(self.branch)}"
        page = f"{self.github.server.web}/{place.upstream}/compare/{ends}"
        asked = {"expand": "1", "title": text.title, "body": text.text}
        done.url = f"{page}?{urlencode(asked, quote_via=quote)}"
        done.pull_request_was = "handed off"
        if len(done.url) > _LONGEST_ADDRESS:
            del asked["body"]
            done.url = f"{page}?{urlencode(asked, quote_via=quote)}"
            file = self.run.queue.local / "handoff" / f"{self.name}.md"
            done.body_file = str(file)
            make_private(file.parent)
            write_atomically(file, text.text.encode("utf-8"))
        if not known.handed_off or text.digest not in known.texts:
            summary = f"{self.key} waits for a person to open its pull request"
            event = {"time": history.now(), "summary": summary, "what": HANDOFF, "key": self.key}
            done_event = DoneEvent.model_validate({**event, **self.where, "text": text.digest})
            self.run.journal.note(self.name, done_event)

    def _create(self) -> None:
        """Open the pull request, or find a pull request that an earlier request has opened."""
        place, text = self.place, self.text
        summary = f"about to open a pull request at {place.upstream} from {self.branch}"
        facts = {**self.where, "text": text.digest}
        self.run.journal.begin(self.name, PULL, self.key, summary, **facts)
        pull: PullRequest | None
        upstream, head = self.github.repository(place.upstream), f"{place.owner}:{self.branch}"
        draft = not self.options.ready
        try:
            pull = upstream.create_pull(
                place.tip.name, head, title=text.title, body=text.text, draft=draft
            )
        except (UncertainError, RefusedError) as error:
            if isinstance(error, RefusedError) and error.status != _UNPROCESSABLE:
                raise
            pull = self._pull()
            if pull is None:
                raise
        self._show(pull)
        self.done.pull_request_was = "opened"
        self._note_pull(pull)

    def _update(self, pull: PullRequest) -> None:
        """Update the pull request's text, and mark a draft ready if asked."""
        draft, done = pull.draft, self.done
        self._update_text(pull)
        self._show(pull)
        if not (self.options.ready and draft):
            return
        pull = self.github.mark_ready(pull)
        if pull.draft:
            done.notes.append(
                f"GitHub leaves it a draft: mark it ready on its page, {pull.html_url}"
            )
            return
        self._note_pull(pull)
        self._show(pull)
        done.notes.append("it was a draft: marked it ready for review")

    def _update_text(self, pull: PullRequest) -> None:
        """Update title and body, unless a person has changed the title or body on GitHub."""
        known, journal, reference = self.known, self.run.journal, self._reference(pull)
        now, what = text_digest(pull.title, pull.body or ""), f"the text of {reference}"
        added = ""
        if now == self.text.digest:
            if begun := known.begun(TEXT, reference):
                journal.done(self.name, begun, f"updated {what}")
        elif now not in known.texts and not (added := _added(pull, known.texts)):
            self.done.pull_request_was = "edited"
            note = "a person changed its title or body on GitHub: that was left as it is"
            self.done.notes.append(note)
        else:
            facts = {"reference": reference, "text": self.text.digest}
            intent = journal.begin(self.name, TEXT, reference, f"about to update {what}", **facts)
            # Lines that a bot added below the text stay.
            pull.edit(title=self.text.title, body=self.text.text + added)
            journal.done(self.name, intent, f"updated {what}")
            self.done.pull_request_was = "updated"

    def _reference(self, pull: PullRequest) -> str:
        return f"{self.place.upstream}#{pull.number}"

    def _show(self, pull: PullRequest) -> None:
        self.done.pull_request, self.done.url = self._reference(pull), pull.html_url
        self.done.state = "draft" if pull.draft else "open"

    def _note_pull(self, pull: PullRequest) -> None:
        """Note a pull request's state in the journal, if the journal has another state."""
        known, reference = self.known, self._reference(pull)
        now, new = "draft" if pull.draft else "open", known.reference != reference
        if not new and known.state == now:
            return
        words = {"draft": "a draft", "open": "open"}[now]
        opened = "was opened as a draft" if pull.draft else "was opened"
        summary = f"{reference} {opened if new else f'is {words} now'}"
        event = {"time": history.now(), "summary": summary, "reference": reference, "state": now}
        self.run.journal.note(self.name, PullRequestEvent.model_validate({**event, **self.where}))


def _added(pull: PullRequest, texts: frozenset[str]) -> str:
    """Return the lines below our text in the body; empty: no lines, or our text was changed."""
    rows = (pull.body or "").split("\n")
    counts = range(len(rows) - 1, 0, -1)
    ours = (n for n in counts if text_digest(pull.title, "\n".join(rows[:n])) in texts)
    return "".join(f"\n{row}" for row in rows[next(ours, len(rows)) :])


_UPSTREAM: Final = frozenset({"merged", "landed"})


class PreviewCommit(Model):
    """A commit that the branch would get, on top of the upstream's newest commit."""

    patch: str
    subject: str
    files: tuple[str, ...]


class Missing(Model):
    """A part that a pull request lacks, and the command that provides the part."""

    what: str
    why: str
    next: str


class Preview(Model):
    """A pull request that `open-pr` would open or update."""

    patch: str
    #: The upstream's repository; only GitHub knows the repository's default branch.
    upstream: str
    pin: str
    #: The fork, empty if no fork is known yet, and the branch in the fork.
    fork: str
    branch: str
    #: The pull request that the journal knows, as `owner/name#number`; empty: a new one.
    pull_request: str
    state: Literal["draft", "open", "to be opened"]
    title: str
    commits: tuple[PreviewCommit, ...]
    #: None where the text cannot be made yet; `missing` says why.
    body: Body | None
    gate: Gate
    missing: tuple[Missing, ...]


def preview_all(queue: Queue, names: Sequence[str], options: OpenOptions) -> tuple[Preview, ...]:
    """Return a preview of each patch's pull request."""
    token: tuple[Missing, ...] = ()
    try:
        find_token(find_server())
    except TokenError as error:
        token = (Missing(what="token", why=error.message, next=error.hint),)
    return tuple(_preview(queue, name, options, token) for name in names)


def _preview(queue: Queue, name: str, options: OpenOptions, token: tuple[Missing, ...]) -> Preview:
    patch, journal = queue.patch(name), PublicationJournal(queue)
    known = journal.publication(name, digest=patch.digest)
    pull_request = "" if known.ended else known.reference
    body: Body | None = None
    attestation: tuple[Missing, ...] = ()
    try:
        body = make_body(queue, name)
        require(queue, body)
    except ContribbotError as error:
        then = f"{error.hint}, in a terminal" if isinstance(error, AttestationError) else error.hint
        attestation = (Missing(what="attestation", why=error.message, next=then),)
    gate = judge(queue, name, None, body=body)
    state: Literal["draft", "open", "to be opened"] = "draft"
    if options.ready or (pull_request and known.state == "open"):
        state = "open"
    elif options.handoff and not pull_request:
        state = "to be opened"
    below = (low for low in queue.below(name) if journal.publication(low).state not in _UPSTREAM)
    commits = (
        PreviewCommit(
            patch=part,
            subject=read_mail(file).subject,
            files=tuple(dict.fromkeys(touched.path for touched in touched_files([file]))),
        )
        for part in (*below, name)
        for file in queue.patch(part).files
    )
    return Preview(
        patch=name,
        upstream=gate.repository,
        pin=patch.pin.tag,
        fork=known.fork,
        branch=branch_of(patch),
        pull_request=pull_request,
        state=state,
        title=body.title if body else patch.spec.title,
        body=body,
        gate=gate,
        commits=tuple(commits),
        missing=(*_failing(gate), *token, *_unasked(gate, fork=known.fork), *attestation),
    )


def _failing(gate: Gate) -> Iterator[Missing]:
    """Yield the rules that block attesting, and the targets on which nothing ran."""
    rows = {row.rule: row for row in gate.blocking if row.state is not RowState.NOT_LOOKED_AT}
    if gate.body is not None and gate.body.not_run:
        rows |= {row.rule: row for row in gate.rows if row.rule == "not-run"}
    for row in rows.values():
        yield Missing(what=row.rule, why=row.seen, next=row.next)


def _unasked(gate: Gate, *, fork: str) -> Iterator[Missing]:
    """Yield the rules, the fork and the base, on which only GitHub can answer, as missing."""
    rules = ", ".join(row.rule for row in gate.of(RowState.NOT_LOOKED_AT))
    again = f"contribbot gate {gate.patch}"
    yield Missing(what="GitHub", why=f"not looked up: {rules}", next=again)
    if not fork:
        why = f"whether you have one of {gate.repository} is not known"
        yield Missing(what="fork", why=why, next="open-pr makes one where there is none")
    why = f"whether it applies to the newest commit of {gate.repository} is not known"
    way = "contribbot status --against newest tries the newest release"
    yield Missing(what="base", why=why, next=way)
