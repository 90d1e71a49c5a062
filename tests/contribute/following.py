"""A queue whose patches have pull requests on the local GitHub, and people who talk there."""

from __future__ import annotations

from dataclasses import dataclass, field

from contribbot.contribute.follow import Following, follow
from contribbot.contribute.model import Followed
from contribbot.queue import history
from contribbot.queue.history import IntentEvent, PullRequestEvent
from tests.contribute import bodytoy
from tests.contribute.place import Place
from tests.github.handle import GitHub
from tests.github.state import Comment, Pull, User, Verdict
from tests.github.wire import Request
from tests.toy import FIXED, Toy

#: The rules of the toy upstream, with CI on two targets.
RULES = (
    bodytoy.RULES.replace('["gfx942"]', '["gfx942", "gfx950"]')
    + """
[ci]
start = "Someone entitled comments `/amd-ci run`."
current = true

[ci.targets]
gfx942 = '(?i)mi300'
gfx950 = '(?i)mi355'
"""
)
AREA = "src/toy/area.py"
#: The number of the line that the fix changes.
LINE = FIXED.splitlines().index("    area = width * height") + 1


@dataclass(kw_only=True)
class Post(Place):
    """A person with pull requests, and who reviews them."""

    reviewer: User
    opened: dict[str, Pull] = field(default_factory=dict)

    @property
    def pull(self) -> Pull:
        return self.opened["area"]

    def look(self, *, remember: bool = True) -> Following:
        found = follow(self.queue, self.connect)
        if remember:
            found.remember(self.queue)
        return found

    def followed(self, name: str = "area") -> Followed:
        found = self.look()
        return next(each for each in found.report.contributions if each.patch == name)

    def asked(self) -> tuple[Following, list[Request]]:
        before = len(self.github.requests)
        found = self.look()
        return found, list(self.github.requests[before:])

    def branch(self, name: str) -> str:
        return self.github.commit(
            self.fork, f"contribbot/{name}", {AREA: FIXED.encode()}, f"Fix {name}\n"
        )

    def open(
        self, name: str = "area", *, draft: bool = False, title: str = "A fix", base: str = "main"
    ) -> Pull:
        """Open the pull request of a patch, and note it as open-pr does."""
        head = self.branch(name)
        pull = self.github.pull(
            self.upstream, self.fork, f"contribbot/{name}", title=title, body="Text", draft=draft,
            base_branch=base,
        )  # fmt: skip
        self.opened[name] = pull
        branch = {"fork": self.fork.full_name, "branch": f"contribbot/{name}", "head": head}
        self.note("draft" if draft else "open", name, number=pull.number, **branch)
        return pull

    def hand_off(self, name: str = "area") -> None:
        """Push the branch alone, and note that a person is to open the pull request."""
        head = self.branch(name)
        for what in ("branch", "handoff"):
            self.note_write(what, name, head=head)

    def intend(self, name: str = "area") -> None:
        """Note that a pull request was about to be opened, as a crash leaves the journal."""
        self.branch(name)
        self.note_write("branch", name)
        intent = IntentEvent(time=history.now(), summary="about to", what="pull-request", key="k")
        history.append(self.toy.queue, name, intent)

    def reference(self, name: str = "area") -> str:
        return f"{self.upstream.full_name}#{self.opened[name].number}"

    def run(self, name: str, conclusion: str | None, patch: str = "area") -> None:
        self.github.add_check(self.opened[patch], name, conclusion)

    def pass_ci(self, patch: str = "area") -> None:
        for name in ("MI300: kernels", "MI355: kernels", "lint"):
            self.run(name, "success", patch)

    def comment(self, text: str, who: User | None = None, patch: str = "area") -> Comment:
        issue = self.opened[patch].issue
        return self.github.add_comment(issue, who or self.reviewer, text)

    def thread(self, text: str = "Why?", line: int = LINE, *, patch: str = "area") -> Comment:
        pull = self.opened[patch]
        return self.github.add_review_comment(pull, self.reviewer, text, path=AREA, line=line)

    def answer(self, root: Comment, text: str, who: User | None = None) -> Comment:
        return self.github.add_review_comment(self.pull, who or self.me, text, root=root)

    def review(
        self, verdict: Verdict, body: str = "", *, who: User | None = None, patch: str = "area"
    ) -> None:
        pull = self.opened[patch]
        self.github.add_review(pull, who or self.reviewer, verdict, body=body)

    def event(self, kind: str, *, commit: str | None = None, patch: str = "area") -> None:
        issue = self.opened[patch].issue
        self.github.add_event(issue, kind, commit=commit)

    def states(self, name: str = "area") -> list[str]:
        return [each.state for each in self.events(name) if isinstance(each, PullRequestEvent)]


def make_post(toy: Toy, github: GitHub, *names: str, opened: bool = False) -> Post:
    """Return a person with patches of these names, and perhaps with their pull requests."""
    content = toy.format_patch({AREA: FIXED})
    for name in names or ("area",):
        toy.put_patch(name, patch=content)
    toy.put_queue(list(names or ("area",)))
    toy.put("upstreams/contributing/toy.toml", RULES)
    post = make_github(toy, github)
    for name in names if opened else ():
        post.open(name)
    return post


def make_github(toy: Toy, github: GitHub) -> Post:
    """Put the upstream of a queue on the local GitHub, and people beside it."""
    upstream = github.add_repository("example/toy", toy.upstream, members={"rev": "write"})
    me, reviewer = github.add_user("ada"), github.add_user("rev")
    github.fork(upstream, me)
    return Post(toy, github, upstream, me, reviewer=reviewer)
