"""A queue whose patches have pull requests on the local GitHub, and people who talk there."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from contribbot.contribute.follow import Following, follow
from contribbot.contribute.model import Followed
from contribbot.github.client import GitHub as Client
from contribbot.model.history import DoneEvent, Event, IntentEvent, PullRequestEvent
from contribbot.queue import history
from contribbot.queue.load import Queue, load_queue
from tests.conftest import Program
from tests.github.faults import Faults
from tests.github.handle import GitHub
from tests.github.ours import Patience, client
from tests.github.server import Logged
from tests.github.state import Pull, Repository, User
from tests.github.state_social import add_check_run
from tests.toy import FIXED, Toy

RULES = """
upstream = "toy"
source = "made up"
targets = ["gfx942", "gfx950"]

[body]
template = "1"
live = ".github/pull_request_template.md"

[ci]
start = "Someone entitled comments `/amd-ci run`."
current = true

[ci.targets]
gfx942 = '(?i)mi300'
gfx950 = '(?i)mi355'

[[questions]]
name = "read"
text = "Have you read it?"
"""
AREA = "src/toy/area.py"
#: The line of the fix in the file as the patch makes it.
LINE = FIXED.splitlines().index("    area = width * height") + 1


@dataclass
class Post:
    """A person with a queue and pull requests, and the GitHub where they are."""

    toy: Toy
    github: GitHub
    upstream: Repository
    fork: Repository
    me: User
    reviewer: User
    pulls: dict[str, Pull] = field(default_factory=dict)
    faults: Faults = field(default_factory=Faults)
    patience: Patience = field(default_factory=Patience)

    @property
    def queue(self) -> Queue:
        """The queue, as it is now."""
        return load_queue(self.toy.queue)

    @property
    def token(self) -> str:
        """The person's token."""
        return self.me.tokens[0].text

    @contextlib.contextmanager
    def connect(self) -> Iterator[Client]:
        """Open contribbot's own client, as the person."""
        cache = self.toy.queue / ".contribbot" / "github"
        waits = self.patience.waits()
        with client(self.github, self.token, cache=cache, waits=waits) as made:
            yield made

    @property
    def program(self) -> Program:
        """Return the program, as the person has it."""
        env = {"GITHUB_API_URL": self.github.base, "GITHUB_TOKEN": self.token}
        return Program(self.toy.queue, env)

    def kill(self, *args: str) -> None:
        """Start the program, and let an armed fault kill it."""
        with self.program.start(*args) as child:
            self.faults.victim(child.pid)
            try:
                child.communicate(timeout=60)
            finally:
                child.kill()
        assert self.faults.struck
        assert child.returncode == -signal.SIGKILL

    def look(self, *, remember: bool = True) -> Following:
        """Run `follow`."""
        found = follow(self.queue, self.connect)
        if remember:
            found.remember(self.queue)
        return found

    def one(self, name: str = "area") -> Followed:
        """Run `follow`, and return what it says of a patch."""
        found = self.look()
        return next(one for one in found.report.contributions if one.patch == name)

    def asked(self) -> tuple[Following, list[Logged]]:
        """Run `follow`, and return it with the requests that it made."""
        before = len(self.github.requests)
        found = self.look()
        return found, list(self.github.requests[before:])

    def branch(self, name: str) -> str:
        """Push the branch of a patch, and return its commit."""
        return self.github.commit(
            self.fork, f"contribbot/{name}", {AREA: FIXED.encode()}, f"Fix {name}\n"
        )

    def open(self, name: str = "area", *, draft: bool = False, title: str = "A fix") -> Pull:
        """Open the pull request of a patch, and note it as open-pr does."""
        head = self.branch(name)
        pull = self.github.pull(
            self.upstream, self.fork, f"contribbot/{name}", title=title, body="Text", draft=draft
        )
        self.pulls[name] = pull
        event = PullRequestEvent(
            time=history.now(),
            summary="opened",
            reference=self.reference(name),
            state="draft" if draft else "open",
            fork=self.fork.full_name,
            branch=f"contribbot/{name}",
            head=head,
        )
        history.append(self.toy.queue, name, event)
        return pull

    def hand_off(self, name: str = "area") -> None:
        """Push the branch alone, and note that a person is to open the pull request."""
        branch, key = f"contribbot/{name}", f"{self.fork.full_name}:contribbot/{name}"
        head = self.branch(name)
        for what in ("branch", "handoff"):
            event = DoneEvent(
                time=history.now(), summary=what, what=what, key=key,
                fork=self.fork.full_name, branch=branch, head=head,
            )  # fmt: skip
            history.append(self.toy.queue, name, event)

    def intend(self, name: str = "area") -> None:
        """Note that a pull request was about to be opened, as a crash leaves it."""
        self.branch(name)
        branch = f"contribbot/{name}"
        done = DoneEvent(
            time=history.now(), summary="branch", what="branch", key="k",
            fork=self.fork.full_name, branch=branch,
        )  # fmt: skip
        intent = IntentEvent(time=history.now(), summary="about to", what="pull-request", key="k")
        history.append(self.toy.queue, name, done)
        history.append(self.toy.queue, name, intent)

    def reference(self, name: str = "area") -> str:
        """The pull request of a patch, as the journal names it."""
        return f"{self.upstream.full_name}#{self.pulls[name].number}"

    def run(self, name: str, conclusion: str | None, patch: str = "area") -> None:
        """Let CI say something about a patch's pull request."""
        pull = self.pulls[patch]
        add_check_run(self.github.state, self.upstream, pull.head_sha, name, conclusion)

    def pass_ci(self, patch: str = "area") -> None:
        """Let CI end well on every target."""
        for name in ("MI300: kernels", "MI355: kernels", "lint"):
            self.run(name, "success", patch)

    def events(self, name: str = "area") -> list[Event]:
        """The journal of a patch."""
        return history.read(self.toy.queue, name)

    def states(self, name: str = "area") -> list[str]:
        """The states of a pull request that the journal has, oldest first."""
        return [one.state for one in self.events(name) if isinstance(one, PullRequestEvent)]


def make_post(toy: Toy, github: GitHub, *names: str) -> Post:
    """Make it, with patches of these names."""
    content = toy.format_patch({AREA: FIXED})
    for name in names or ("area",):
        toy.put_patch(name, patch=content)
    toy.put_queue(list(names or ("area",)))
    toy.put("upstreams/contributing/toy.toml", RULES)
    return make_github(toy, github)


def make_github(toy: Toy, github: GitHub) -> Post:
    """Put the upstream of a queue on the local GitHub, and people beside it."""
    upstream = github.add_repository("example/toy", toy.upstream, members={"rev": "write"})
    me, reviewer = github.add_user("ada"), github.add_user("rev")
    fork = github.fork(upstream, me)
    post = Post(toy, github, upstream, fork, me, reviewer)
    github.hooks.append(post.faults)
    return post


def tree_of(folder: Path) -> dict[str, bytes]:
    """Return every file of a queue, but for local state."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and ".contribbot" not in path.relative_to(folder).parts
    }
