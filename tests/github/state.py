"""The local GitHub's state besides git: users, repositories, pull requests, talk, and who acts.

Facts about commits are never kept here but read from git. Handlers hold `State.lock`, and so does
whoever changes something while a request may run.
"""

from __future__ import annotations

import datetime as dt
import itertools
import secrets
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from pydantic import JsonValue

from tests.github.gitdata import BareRepository, Person, git_time

if TYPE_CHECKING:
    from tests.github.state_actions import Run

Json = dict[str, JsonValue]
Permission = Literal["read", "write", "admin"]
Kind = Literal["User", "Bot", "Organization"]
Verdict = Literal["APPROVED", "CHANGES_REQUESTED", "COMMENTED", "DISMISSED", "PENDING"]
How = Literal["merge", "squash", "bot"]
#: The URL of GitHub's pages.
WEB: Final = "https://github.com"
PUSHERS: Final[frozenset[Permission]] = frozenset({"write", "admin"})


@dataclass(eq=False)
class Token:
    """A token: a classic token has scopes, a fine-grained token repositories and permissions."""

    text: str
    scopes: tuple[str, ...] = ("repo",)
    fine_grained: bool = False
    repositories: frozenset[str] = frozenset()
    permissions: frozenset[str] = frozenset()


@dataclass(eq=False)
class User:
    id: int
    login: str
    name: str
    email: str
    kind: Kind = "User"
    tokens: list[Token] = field(default_factory=list)


@dataclass(eq=False)
class Comment:
    """A comment, a review (`state`), or a remark in a thread (`path` and `line`)."""

    id: int
    user: User
    body: str
    created_at: str
    updated_at: str
    state: Verdict | Literal[""] = ""
    path: str = ""
    line: int = 0
    reply_to: Comment | None = None


@dataclass(eq=False)
class Event:
    """Something that happened to an issue: closed, reopened, merged, referenced."""

    event: str
    created_at: str
    commit_id: str | None = None
    reason: str | None = None


@dataclass(eq=False)
class Job:
    """A check run or a status of a commit; no word: the job has not ended."""

    sha: str
    name: str
    word: str | None
    started_at: str
    is_status: bool = False


@dataclass(eq=False)
class CheckSuite:
    """A check suite without check runs: GitHub waits, or it could not start; of an app."""

    head_sha: str
    app: str
    conclusion: str | None


@dataclass(eq=False)
class Issue:
    """An issue, or the conversation of a pull request."""

    id: int
    number: int
    repository: Repository
    user: User
    title: str
    body: str | None
    created_at: str
    state: Literal["open", "closed"] = "open"
    closed_at: str | None = None
    labels: list[str] = field(default_factory=list)
    comments: list[Comment] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    pull: Pull | None = None

    @property
    def page(self) -> str:
        """The URL of the page of the issue or the pull request."""
        kind = "pull" if self.pull else "issues"
        return f"{WEB}/{self.repository.full_name}/{kind}/{self.number}"


@dataclass(eq=False)
class Pull:
    """The fields of a pull request beyond its issue; a bot's landing sets no `merge_commit`."""

    id: int
    issue: Issue
    base: Repository
    base_ref: str
    head: Repository
    head_ref: str
    draft: bool
    ended_at: tuple[str, str] | None = None  # the commits of head and base when it was closed
    merged_at: str | None = None
    merge_commit: str | None = None
    judged: tuple[str, str] | None = None  # the (head, base) for which mergeability is known
    reviews: list[Comment] = field(default_factory=list)
    review_comments: list[Comment] = field(default_factory=list)
    resolved: set[int] = field(default_factory=set)  # id of the first comment of a thread
    merge_state: str = ""  # in place of what follows from the rest

    @property
    def number(self) -> int:
        return self.issue.number

    @property
    def tips(self) -> tuple[str, str]:
        """The commits of head and base: of the branches now, or as they were at the end."""
        return self.ended_at or (self.head.git.tip(self.head_ref), self.base.git.tip(self.base_ref))

    @property
    def head_sha(self) -> str:
        return self.tips[0]

    @property
    def base_sha(self) -> str:
        return self.tips[1]

    @property
    def part(self) -> str:
        return self.base.git.merge_base(self.base_sha, self.head_sha) or self.base_sha


@dataclass(eq=False)
class Repository:
    """A repository; `git` holds its refs, and its objects are those of its fork network."""

    id: int
    owner: User
    name: str
    git: BareRepository
    default_branch: str
    created_at: str
    base: str  # the URL of the server
    parent: Repository | None = None
    archived: bool = False
    has_pull_requests: bool = True
    pull_request_creation_policy: str = "all"  # or "collaborators_only"
    polls_until_ready: int = 0  # a fork that GitHub still copies answers 404 so many times
    members: dict[str, Permission] = field(default_factory=dict)
    issues: dict[int, Issue] = field(default_factory=dict)
    jobs: list[Job] = field(default_factory=list)
    check_suites: list[CheckSuite] = field(default_factory=list)
    #: The jobs that a rule of the branch requires.
    required: list[str] = field(default_factory=list)
    requires_review: bool = False
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    #: The runs of Actions; whether a dispatch tells no number, as it did once.
    runs: dict[int, Run] = field(default_factory=dict)
    silent: bool = False

    @property
    def full_name(self) -> str:
        return f"{self.owner.login}/{self.name}"

    @property
    def api(self) -> str:
        return f"{self.base}/repos/{self.full_name}"

    @property
    def root(self) -> Repository:
        return self.parent.root if self.parent else self

    def permission(self, user: User | None) -> Permission:
        known = self.members.get(user.login, "read") if user else "read"
        return "admin" if user is self.owner else known

    def pulls(self) -> list[Pull]:
        return [issue.pull for issue in self.issues.values() if issue.pull is not None]


class Clock:
    """Time that only moves when something happens, one second each time."""

    def __init__(self) -> None:
        self.time = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)

    def now(self) -> str:
        """Let a second pass and return the time as GitHub writes it."""
        self.time += dt.timedelta(seconds=1)
        return self.time.strftime("%Y-%m-%dT%H:%M:%SZ")


class State:
    """The whole state of the local GitHub, and what people and machines do there."""

    base: str  # the URL of the server

    def __init__(self, root: Path) -> None:
        self.root = root
        self.lock = threading.RLock()
        self.clock = Clock()
        self.ids = itertools.count(1001)
        self.users: dict[str, User] = {}
        self.repositories: dict[str, Repository] = {}
        # Options that tests set.
        self.forks_ready_after = 0  # polls of a new fork that answer 404
        self.mergeable_at_once = True  # else null at the first GET after a change, as on GitHub

    def next_id(self) -> int:
        """Return a new id."""
        return next(self.ids)

    def user(self, login: str) -> User | None:
        return self.users.get(login.lower())

    def repository(self, full_name: str) -> Repository | None:
        return self.repositories.get(full_name.lower())

    def network(self, repository: Repository) -> list[Repository]:
        """Return the repositories that share the objects of a repository."""
        return [other for other in [*self.repositories.values()] if other.root is repository.root]

    def bearer(self, text: str) -> tuple[User, Token] | None:
        owned = ((user, token) for user in [*self.users.values()] for token in user.tokens)
        return next((pair for pair in owned if pair[1].text == text), None)

    # Accounts, repositories, commits:

    def add_user(self, login: str, *, kind: Kind = "User") -> User:
        """Add a user with a classic token, `user.tokens[0].text`."""
        user = User(self.next_id(), login, login.title(), f"{login}@example.org", kind)
        self.users[login.lower()] = user
        user.tokens.append(Token(f"ghp_{secrets.token_hex(18)}", ("repo", "workflow")))
        return user

    def add_token(
        self, user: User, *, repositories: Sequence[str],
        permissions: Sequence[str] = ("contents", "pull_requests", "issues"),
    ) -> str:  # fmt: skip
        """Add a fine-grained token that writes to these repositories alone, and return it."""
        token = Token(
            f"github_pat_{secrets.token_hex(30)}", (), fine_grained=True,
            repositories=frozenset(repositories), permissions=frozenset(permissions),
        )  # fmt: skip
        user.tokens.append(token)
        return token.text

    def add_repository(
        self, full_name: str, source: Path | None = None, *,
        members: dict[str, Permission] | None = None, parent: Repository | None = None,
    ) -> Repository:  # fmt: skip
        """Add a repository with the branches of a real one, or an empty fork of its parent.

        An owner that is not there yet is added as an organization.
        """
        login, _, name = full_name.partition("/")
        owner = self.user(login) or self.add_user(login, kind="Organization")
        objects = (parent.root.git.path / "objects").resolve() if parent else None
        git = BareRepository.create(self.root / owner.login / f"{name}.git", objects, "main")
        made = Repository(
            self.next_id(), owner, name, git, "main", self.clock.now(), self.base, parent,
            members=members or {},
        )  # fmt: skip
        if source is not None:
            git.import_from(source)
        self.repositories[made.full_name.lower()] = made
        return made

    def fork(
        self, upstream: Repository, owner: User, name: str = "", *, branch: str = "*"
    ) -> Repository:
        """Fork all branches or one; return the user's fork if there is a fork already."""
        with self.lock:
            for known in self.network(upstream):
                if known.owner is owner and known is not upstream.root:
                    return known
            wanted = f"{owner.login}/{name or upstream.name}"
            names = (wanted, *(f"{wanted}-{number}" for number in range(1, 10)))
            free = next(each for each in names if self.repository(each) is None)
            made = self.add_repository(free, parent=upstream)
            made.git.fetch(upstream.git.path, f"+refs/heads/{branch}:refs/heads/{branch}")
            made.polls_until_ready = self.forks_ready_after
            return made

    def commit(
        self, repository: Repository, branch: str, files: Mapping[str, bytes | None],
        message: str = "A change\n", *, who: User | None = None,
    ) -> str:  # fmt: skip
        """Push one commit to a branch (made from the default branch if new); None deletes."""
        git, who, heads = repository.git, who or repository.owner, "refs/heads/"
        with self.lock:
            tip = git.ref(heads + branch) or git.ref(heads + repository.default_branch)
            rows = [(path, "100644", None if content is None else git.add_blob(content))
                    for path, content in files.items()]  # fmt: skip
            tree = git.add_tree(git.commit(tip).tree if tip else None, rows)
            person = Person(who.name, who.email, git_time(self.clock.now()))
            sha = git.add_commit(tree, [tip] if tip else [], person, person, message)
            git.set_ref(heads + branch, sha)
            return sha

    # Pull requests:

    def pull(
        self, base: Repository, head: Repository, branch: str, *, title: str = "A change",
        body: str | None = None, user: User | None = None, base_branch: str | None = None,
        draft: bool = False,
    ) -> Pull:  # fmt: skip
        with self.lock:
            issue = self.add_issue(base, user or head.owner, title, body)
            onto = base_branch or base.default_branch
            issue.pull = Pull(self.next_id(), issue, base, onto, head, branch, draft)
            assert issue.pull.tips
            return issue.pull

    def mergeable(self, pull: Pull) -> bool | None:
        """Return whether a pull request merges; None: GitHub has not computed the answer yet."""
        if pull.issue.state == "closed":
            return None
        if pull.judged != pull.tips:
            pull.judged = pull.tips
            if not self.mergeable_at_once:
                return None
        return pull.base.git.merge_tree(pull.base_sha, pull.head_sha) is not None

    def merge(self, pull: Pull, how: How = "merge") -> str:
        """Merge it as GitHub does, or land it as a bot does; return the commit on its base.

        A bot pushes one commit and closes: it is then closed and not merged, and the commit and
        the `closed` event name each other (pytorchmergebot).
        """
        git, issue, who = pull.base.git, pull.issue, pull.base.owner
        with self.lock:
            head, base = pull.ended_at = pull.tips
            person = Person(who.name, who.email, git_time(self.clock.now()))
            tree = git.merge_tree(base, head)
            assert tree is not None, "it conflicts with its base"
            if how == "merge":
                words = f"Merge pull request #{issue.number} from {pull.head.owner.login}"
                message = f"{words}/{pull.head_ref}\n\n{issue.title}"
                sha = git.add_commit(tree, [base, head], person, person, message)
            else:
                first = git.commit(git.between(base, head)[0])
                body = first.message.rstrip("\n").partition("\n\n")[2]
                if how == "bot":
                    body = f"{issue.body or ''}\n\nPull Request resolved: {issue.page}".strip()
                text = f"{issue.title} (#{issue.number})\n\n{body}".strip()
                sha = git.add_commit(tree, [base], first.author, person, text)
            git.set_ref(f"refs/heads/{pull.base_ref}", sha)
            if how == "bot":
                self.add_event(issue, "referenced", commit=sha)
                self.add_event(issue, "closed", commit=sha)
            else:
                pull.merge_commit = sha
                self.add_event(issue, "merged", commit=sha)
                pull.merged_at = self.add_event(issue, "closed").created_at
            return sha

    # What is said:

    def add_issue(self, where: Repository, author: User, title: str, body: str | None) -> Issue:
        number, now = next(where.numbers), self.clock.now()
        where.issues[number] = Issue(self.next_id(), number, where, author, title, body, now)
        return where.issues[number]

    def _said(self, author: User, body: str, state: Verdict | Literal[""] = "") -> Comment:
        now = self.clock.now()
        return Comment(self.next_id(), author, body, now, now, state)

    def add_comment(self, issue: Issue, author: User, body: str) -> Comment:
        issue.comments.append(self._said(author, body))
        return issue.comments[-1]

    def add_review(self, pull: Pull, author: User, verdict: Verdict, *, body: str = "") -> Comment:
        """Add a review with a verdict to a pull request."""
        pull.reviews.append(self._said(author, body, verdict))
        return pull.reviews[-1]

    def add_review_comment(
        self, pull: Pull, author: User, body: str, *, path: str = "", line: int = 0,
        root: Comment | None = None,
    ) -> Comment:  # fmt: skip
        """Begin a thread on a line of the diff, or answer in the thread that `root` began."""
        self.add_review(pull, author, "COMMENTED")
        said = self._said(author, body)
        said.path, said.line = (root.path, root.line) if root else (path, line)
        said.reply_to = root
        pull.review_comments.append(said)
        return said

    def add_event(self, issue: Issue, event: str, *, commit: str | None = None) -> Event:
        """Add an event, perhaps with a commit; `closed` and `reopened` change the state."""
        now = self.clock.now()
        if event == "closed":
            issue.state, issue.closed_at = "closed", now
            if issue.pull:
                issue.pull.ended_at = issue.pull.tips
        elif event == "reopened":
            issue.state, issue.closed_at = "open", None
            if issue.pull:
                issue.pull.ended_at = None
        issue.events.append(Event(event, now, commit))
        return issue.events[-1]

    def add_check(
        self, pull: Pull, name: str, word: str | None, *, is_status: bool = False
    ) -> None:
        """Add a check run or a status of the head commit; no word: the job has not ended."""
        now = self.clock.now()
        pull.base.jobs.append(Job(pull.head_sha, name, word, now, is_status=is_status))
