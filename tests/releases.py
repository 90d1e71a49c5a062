"""Later releases of the toy upstream, and what the patches' checks say of them."""

from __future__ import annotations

from dataclasses import dataclass, field

from contribbot.git.pins import Silent
from contribbot.model.evidence import StageResult
from contribbot.model.lifecycle import Behaviour
from contribbot.model.patch import GitSource, Pin
from contribbot.queue.load import load_queue
from contribbot.verify.one_tree import Ask, behaviours
from contribbot.verify.pipeline import Options
from tests.toy import Toy, git


@dataclass
class Seen:
    started: list[str] = field(default_factory=list)
    ended: list[StageResult] = field(default_factory=list)

    def watch(self) -> Watch:
        return Watch(self)


@dataclass
class Watch:
    seen: Seen

    def started(self, patch: str, stage: str, target: str, label: str) -> None:
        del patch, stage, target
        self.seen.started.append(label)

    def step(self, *_args: object, **_named: object) -> None:
        """Say nothing."""

    repeated = finished = step

    def ended(self, patch: str, result: StageResult) -> None:
        del patch
        self.seen.ended.append(result)

    def download(self) -> Silent:
        return Silent()


def release(toy: Toy, changes: dict[str, str | None], tag: str = "v2.0") -> Pin:
    """Make a later release of the upstream; None deletes a file."""
    commit = toy.change(changes, f"Toy {tag}")
    git(toy.upstream, "tag", tag)
    git(toy.upstream, "reset", "-q", "--hard", toy.commit)
    source = GitSource(kind="git", remote=toy.upstream.as_uri())
    return Pin(upstream="toy", tag=tag, commit=commit, sources=(source,))


def told(
    toy: Toy, pin: Pin, *below: str,
    name: str = "area", seen: Seen | None = None, force: bool = False,
) -> Behaviour:  # fmt: skip
    queue = load_queue(toy.queue)
    watch = (seen or Seen()).watch()
    asks = [Ask(name, pin, below)]
    return behaviours(queue, asks, options=Options(jobs=2, force=force), watcher=watch)[0]


def says(answer: Behaviour) -> dict[str, str]:
    return {entry.label: entry.says.value for entry in answer.entries}
