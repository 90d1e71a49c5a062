"""Pins of other releases, and patches carried over to them."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from contribbot.errors import UsageError
from contribbot.files import run_folder
from contribbot.git.merge import Moved
from contribbot.git.releases import pin_from_git, release_tags, releases, resolve
from contribbot.git.source import Progress
from contribbot.model.pin import GitSource, Pin
from contribbot.queue.load import Queue
from contribbot.queue.stack import Landed, carry, land, own_pin, with_dependencies


def pin_at(queue: Queue, upstream: str, tag: str) -> Pin:
    """Return the pin of an upstream at a tag: the queue's own, or one made from its like."""
    known = queue.pin(upstream, tag)
    if known is not None:
        return known
    like = like_of(queue, upstream)
    described, source = queue.upstreams[upstream], git_source(like)
    if described.release is None and source is not None:
        found = pin_from_git(like, described, source, tag)
    else:
        found = resolve(like, described, tag)
    return queue.pin(upstream, found.tag) or found


def tags_of(queue: Queue, upstream: str, *, also: Collection[str] = ()) -> list[str]:
    """Return the tags of an upstream's final releases, oldest first."""
    like = like_of(queue, upstream)
    described, source = queue.upstreams[upstream], git_source(like)
    if described.release is None and source is not None:
        return release_tags(described, source, also=also)
    return [one.tag for one in releases(like, described, also=also)]


def like_of(queue: Queue, upstream: str) -> Pin:
    """Return the pin of an upstream that others are made like: its last one."""
    return [pin for pin in queue.spec.pins if pin.upstream == upstream][-1]


def git_source(pin: Pin) -> GitSource | None:
    """Return the first git repository that a pin can come from."""
    return next((one for one in pin.sources if isinstance(one, GitSource)), None)


def upstream_meant(queue: Queue, names: Sequence[str], wanted: str) -> str:
    """Return the upstream that a command about a tag is about."""
    theirs = dict.fromkeys(queue.specs[name].upstream for name in names)
    if not theirs:
        raise UsageError(
            f"{queue.folder}: the queue has no patches, and nothing to move",
            hint="change the pins in queue.toml by hand, or add a patch",
        )
    if wanted:
        if wanted not in theirs:
            raise UsageError(
                f"--upstream {wanted}: none of these patches is for it",
                hint=f"name one of {', '.join(theirs)}",
            )
        return wanted
    if len(theirs) != 1:
        raise UsageError(
            f"a tag belongs to one upstream, and these patches are for {', '.join(theirs)}",
            hint="name it with --upstream",
        )
    return next(iter(theirs))


def carried_over(
    queue: Queue, names: Sequence[str], new: Landed, *, progress: Progress
) -> dict[str, Moved]:
    """Carry patches, and what they depend on, from their own pin over to another one."""
    old = land(queue, own_pin(queue, names[0]), progress=progress)
    every = with_dependencies(queue, names)
    with run_folder() as scratch:
        return {one.name: one for one in carry(queue, every, old, new, scratch=scratch)}
