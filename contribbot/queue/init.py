"""Beginning a queue: its files, and the releases that its patches stand on."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from contribbot import upstreams
from contribbot.errors import UsageError
from contribbot.files import stores_folder, write_atomically
from contribbot.git.releases import resolve_file
from contribbot.git.repository import open_store
from contribbot.git.source import Progress
from contribbot.git.sources import provide
from contribbot.model.base import Model
from contribbot.model.pin import GitSource, InstalledSource, Pin, SourceSpec, Upstream
from contribbot.queue.load import Queue, did_you_mean, load_queue, read_model
from contribbot.queue.toml_edit import set_pin
from contribbot.queue.transaction import transaction

_QUEUE: Final = """\
# The patches, in the order in which they are applied and shown. docs/queue.md has every key.
# `contribbot pin add sglang VERSION` adds a release that patches can stand on.
order = []
"""
_RUNNERS: Final = """\
# Which machines prove what, for GitHub Actions (docs/runners.md). None is needed to begin with:
# `contribbot verify` proves on the machine that it runs on.
#
# [[runners]]
# name = "workstation"
# target = "gfx942"
# labels = ["self-hosted", "gfx942"]
#
# [[runners.rocm]]
# version = "7.1"
# image = "registry.example/rocm@sha256:…"
"""
#: Local state, which can be deleted at any time, and what a killed run was about to write.
_IGNORED: Final = ("/.contribbot/", ".*.partial")


def init_queue(folder: Path) -> list[str]:
    """Write the files of an empty queue; return their names."""
    folder = folder.resolve()
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder}: not a folder", hint="name an empty folder, or a repository")
    if (folder / "patches" / "queue.toml").exists():
        raise UsageError(
            f"{folder}: there is a queue already", hint="see it with `contribbot queue list`"
        )
    in_repository = any((place / ".git").exists() for place in (folder, *folder.parents))
    if folder.exists() and any(folder.iterdir()) and not in_repository:
        raise UsageError(
            f"{folder}: neither empty nor in a git repository",
            hint="name an empty folder: contribbot init DIR",
        )
    written = []
    ignore = folder / ".gitignore"
    rows = ignore.read_text("utf-8").splitlines() if ignore.is_file() else []
    if lacking := [row for row in _IGNORED if row not in rows]:
        write_atomically(ignore, "\n".join((*rows, *lacking, "")).encode())
        written.append(ignore.name)
    if not (folder / "runners.toml").exists():
        write_atomically(folder / "runners.toml", _RUNNERS.encode())
        written.append("runners.toml")
    # The last one: with it, there is a queue.
    write_atomically(folder / "patches" / "queue.toml", _QUEUE.encode())
    return [*written, "patches/queue.toml"]


class BegunQueue(Model):
    """What `init --json` prints."""

    folder: str
    written: tuple[str, ...]


class AddedPin(Model):
    """What `pin add --json` prints."""

    upstream: str
    tag: str
    #: The file of the release that the pin names; empty where it has none.
    file: str
    place: str
    sha256: str
    #: The kind of source that the tree came from, now.
    kind: str
    commit: str


def add_pin(queue: Queue, name: str, version: str, *, progress: Progress) -> AddedPin:
    """Pin a release: find its file, bring it, and write its digest into `queue.toml`."""
    upstream, like, tag = _meant(queue, name, version)
    _refuse_known(queue, upstream.name, tag)
    pin, file = resolve_file(like, upstream, tag)
    _refuse_known(queue, pin.upstream, pin.tag)
    # What nobody can bring is no use as a pin; and what is brought is checked against the digest.
    store = open_store(stores_folder(), pin.upstream)
    provided = provide(pin, upstream, store, progress=progress)
    with transaction(queue.folder) as change:
        _refuse_known(load_queue(queue.folder), pin.upstream, pin.tag)
        before = change.read("patches/queue.toml") or b""
        change.write("patches/queue.toml", set_pin(before, None, pin))
    digests = [source.sha256 for source in pin.sources if source.kind in {"sdist", "wheel"}]
    return AddedPin(
        upstream=pin.upstream,
        tag=pin.tag,
        file=file.filename if file else "",
        place=file.place if file else "",
        sha256=digests[0] if file and digests else "",
        kind=provided.kind,
        commit=provided.commit,
    )


def _refuse_known(queue: Queue, upstream: str, tag: str) -> None:
    if queue.pin(upstream, tag) is not None:
        raise UsageError(
            f"{upstream} {tag}: pinned already in {queue.folder / 'patches' / 'queue.toml'}",
            hint=f"begin a patch on it: contribbot new NAME --title T --pin {tag}",
        )


def _meant(queue: Queue, name: str, version: str) -> tuple[Upstream, Pin, str]:
    """Return the upstream, the pin (or template) that the new one is like, and its tag."""
    described = {
        path.stem: read_model(path, Upstream) for path in upstreams.files(queue.folder).values()
    }
    by_distribution = {
        upstream.release.distribution: upstream
        for upstream in described.values() if upstream.release
    }  # fmt: skip
    upstream = described.get(name) or by_distribution.get(name)
    if upstream is None:
        names = sorted({*described, *by_distribution})
        raise UsageError(
            f"unknown upstream {name}{did_you_mean(name, names)}",
            hint=f"known are {', '.join(names)}; or describe it in {queue.folder}/upstreams/"
            f"{name}.toml (docs/upstreams.md)",
        )
    release = upstream.release
    tag = version
    if release is not None and version != "newest" and release.version_of(version) is None:
        tag = release.tag_of(version)
    known = [pin for pin in queue.spec.pins if pin.upstream == upstream.name]
    return upstream, known[-1] if known else _template(upstream), tag


def _template(upstream: Upstream) -> Pin:
    """Return what the first pin of an upstream is made like."""
    sources: list[SourceSpec] = [GitSource(kind="git")]
    if upstream.release is not None and upstream.overlay:
        # Checks run over the installed package: where it is this release, nothing is downloaded.
        sources.append(
            InstalledSource(
                kind="installed",
                distribution=upstream.release.distribution,
                version="0",
                packages=upstream.release.packages,
            )
        )
    return Pin(upstream=upstream.name, tag="v0", sources=tuple(sources))
