"""Apply patches to their pin, or merge them onto another pin, as commits in the store only."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from contribbot.errors import QueueError, UsageError
from contribbot.files import stores_folder
from contribbot.git.apply import Series, apply_series
from contribbot.git.merge import Moving, RebaseResult, move
from contribbot.git.pins import Progress
from contribbot.git.pins.index import releases, resolve
from contribbot.git.pins.remote import pin_from_git, release_tags
from contribbot.git.pins.sources import provide
from contribbot.git.repository import Store, open_store
from contribbot.model.patch import GitSource, PatchFile, Pin, digest_of
from contribbot.queue.load import Queue


@dataclass(frozen=True)
class FetchedPin:
    """A pin whose commit and tree the store has."""

    pin: Pin
    commit: str
    store: Store


def fetch_pin(queue: Queue, pin: Pin, *, progress: Progress) -> FetchedPin:
    """Bring a pin's tree into its upstream's store."""
    store = open_store(stores_folder(), pin.upstream)
    provided = provide(pin, queue.upstreams[pin.upstream], store, progress=progress)
    return FetchedPin(pin, provided.commit, store)


@dataclass(frozen=True)
class PatchStack:
    """Applies patches of one pin; call its methods in `store.exclusive()`, as they write."""

    queue: Queue
    fetched: FetchedPin
    #: Patch files, by patch, that replace the files on the disk.
    files: Mapping[str, Sequence[PatchFile]] = field(default_factory=dict)
    #: The results of `series`, by the base and by the digest of the files.
    done: dict[tuple[str, str], Series] = field(default_factory=dict)

    def with_files(self, files: Mapping[str, Sequence[PatchFile]]) -> PatchStack:
        """Return a stack that uses these patch files instead of the files on the disk."""
        return replace(self, files={**self.files, **files})

    def apply(self, name: str) -> Series:
        """Apply a patch on top of its dependencies."""
        below = self.chain(self.fetched.commit, self.queue.below(name))
        return below if below.why else self.on(below.commit, name)

    def chain(self, base: str, names: Sequence[str]) -> Series:
        """Apply patches in order; return a Series without files, based on the last commit."""
        for name in names:
            applied = self.on(base, name)
            if applied.why:
                return Series(base, fault=f"the dependency {name}: {applied.why}")
            base = applied.commit
        return Series(base)

    def on(self, base: str, name: str) -> Series:
        """Apply a patch to the commit `base`."""
        try:
            return self.series(base, self.files_of(name))
        except QueueError as error:
            return Series(base, fault=error.message)

    def files_of(self, name: str) -> tuple[PatchFile, ...]:
        """Return a patch's files: the files given to this stack, or else the files on the disk."""
        return tuple(self.files[name]) if name in self.files else self.queue.patch(name).files

    def series(self, base: str, files: Sequence[PatchFile]) -> Series:
        """Apply patch files to a commit, or return the result of an equal earlier call."""
        key = (base, digest_of(tuple(files)))
        if key not in self.done:
            pin = self.fetched.pin.title
            self.done[key] = apply_series(self.fetched.store, base, files, pin=pin)
        return self.done[key]


def series_of(queue: Queue, names: Sequence[str], fetched: FetchedPin) -> dict[str, Series]:
    """Return the commits of each patch, applied to its pin and dependencies."""
    stack = PatchStack(queue, fetched)
    with fetched.store.exclusive():
        return {name: stack.apply(name) for name in names}


def carry(
    queue: Queue,
    names: Sequence[str],
    old: FetchedPin,
    new: FetchedPin,
    *,
    resolved: Mapping[str, tuple[PatchFile, ...]] | None = None,
    gone: Collection[str] = (),
) -> dict[str, RebaseResult]:
    """Merge the patches of one pin onto another pin, as commits in the store only."""
    series = series_of(queue, names, old)
    for name in names:
        if why := series[name].why:
            raise UsageError(
                f"{name} does not apply to its own pin: {why}",
                hint=f"mend it first: contribbot verify {name}",
            )
    files = resolved or {}
    moving = [
        Moving(name, tuple(queue.below(name)), series[name], files.get(name, ()), name in gone)
        for name in names
    ]
    with new.store.exclusive():
        moved = move(new.store, moving, old=old.commit, new=new.commit, pin=new.pin.title)
    return {result.name: result for result in moved}


def pin_at(queue: Queue, upstream: str, tag: str) -> Pin:
    """Return an upstream's pin at a tag: the queue's pin, or a new pin like the last pin."""
    if known := queue.pin(upstream, tag):
        return known
    like = like_of(queue, upstream)
    described, source = queue.upstreams[upstream], git_source(like)
    if described.release is None and source is not None:
        pin = pin_from_git(like, described, source, tag)
    else:
        pin = resolve(like, described, tag)
    return queue.pin(upstream, pin.tag) or pin


def tags_of(queue: Queue, upstream: str, *, also: Collection[str] = ()) -> list[str]:
    """Return the tags of an upstream's final releases, the oldest first."""
    like = like_of(queue, upstream)
    described, source = queue.upstreams[upstream], git_source(like)
    if described.release is None and source is not None:
        return release_tags(described, source, also=also)
    return [release.tag for release in releases(like, described, also=also)]


def like_of(queue: Queue, upstream: str) -> Pin:
    """Return the upstream's last pin in queue.toml, the model for new pins."""
    return [pin for pin in queue.spec.pins if pin.upstream == upstream][-1]


def git_source(pin: Pin) -> GitSource | None:
    """Return a pin's first source of kind `git`; None: the pin has no such source."""
    return next((source for source in pin.sources if isinstance(source, GitSource)), None)


def carried_over(
    queue: Queue, names: Sequence[str], new: FetchedPin, *, progress: Progress
) -> dict[str, RebaseResult]:
    """Merge patches and their dependencies from their pin onto the pin `new`."""
    old = fetch_pin(queue, queue.pin_of(names[0]), progress=progress)
    return carry(queue, queue.with_dependencies(names), old, new)
