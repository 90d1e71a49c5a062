"""Bring a pin's tree into the store, from the first of the pin's sources that works."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from contribbot.errors import IntegrityError, SourceError
from contribbot.files import stores_folder
from contribbot.git.pins.archive import (
    bring_installed,
    bring_release,
    installed_detail,
    release_detail,
)
from contribbot.git.pins.remote import bring_commit, commit_detail, refuse_moved, tagged_commit
from contribbot.git.pins.source import (
    PinSource,
    Progress,
    Provided,
    Silent,
    SourceRequest,
    one_line,
)
from contribbot.git.repository import Store
from contribbot.model.pin import Pin, Upstream

log: Final = logging.getLogger(__name__)

SOURCES: Final[Mapping[str, PinSource]] = {
    "sdist": PinSource(release_detail, bring_release),
    "wheel": PinSource(release_detail, bring_release),
    "git": PinSource(commit_detail, bring_commit),
    "installed": PinSource(installed_detail, bring_installed),
}


def stored_tree(pin: Pin, upstream: Upstream, store: Store) -> Provided | None:
    """Return the pin's tree if the store has the tree, else None; fetch nothing."""
    stored = _find_stored(pin, upstream, store)
    return None if stored is None else stored[1]


def _find_stored(
    pin: Pin, upstream: Upstream, store: Store
) -> tuple[SourceRequest, Provided] | None:
    # git fails at a ref whose commit was lost; then the tree counts as missing.
    listed = store.git(
        "for-each-ref",
        "--format=%(refname) %(objectname) %(tree)",
        f"refs/pins/{pin.tag}/",
        accept=(0, 1, 128),
    )
    rows = listed.stdout.decode().splitlines() if listed.returncode == 0 else []
    ids = {ref: (commit, tree) for ref, commit, tree in (row.split(" ") for row in rows)}
    for spec in pin.sources:
        job = SourceRequest(pin, spec, upstream, store, Silent())
        if job.ref in ids:
            detail = SOURCES[spec.kind].detail(job)
            return job, Provided(spec.kind, *ids[job.ref], detail, fresh=False)
    return None


def remote_commit(pin: Pin, upstream: Upstream) -> str | None:
    """Return the commit that a pin's tag names on the remote now, or else the known commit.

    The remote is asked only for a git source without a pinned commit: other sources cannot move.
    """
    spec = next((spec for spec in pin.sources if spec.kind == "git"), None)
    store = Store(stores_folder() / f"{upstream.name}.git")
    if spec is None or pin.commit or not store.path.is_dir():
        return pin.commit
    request = SourceRequest(pin, spec, upstream, store, Silent())
    stored = store.resolve(f"{request.ref}^{{commit}}")
    return tagged_commit(request) or stored


def provide(pin: Pin, upstream: Upstream, store: Store, *, progress: Progress) -> Provided:
    """Return the pin's tree from the store, or else from the first source that works."""
    stored = _find_stored(pin, upstream, store)
    if stored is not None:
        job, provided = stored
        if provided.kind == "git" and pin.commit is None:
            refuse_moved(job, provided.commit)
        return provided
    failures: list[str] = []
    hints: list[str] = []
    for spec in pin.sources:
        try:
            provided = _bring(SourceRequest(pin, spec, upstream, store, progress))
        except IntegrityError:
            raise
        except SourceError as error:
            failures.append(f"{spec.kind}: {one_line(error.message)}")
            hints.append(error.hint)
            log.info("%s: %s", pin.title, failures[-1])
            continue
        return replace(provided, failures=tuple(failures))
    raise SourceError(
        f"{pin.title}: no source can provide it: {'; '.join(failures)}",
        hint="; or ".join(dict.fromkeys(hint for hint in hints if hint)),
    )


def _bring(job: SourceRequest) -> Provided:
    source = SOURCES[job.spec.kind]
    fresh = source.bring(job)
    commit = job.store.resolve(f"{job.ref}^{{commit}}")
    if commit is None:
        raise SourceError(f"{job.pin.title}: {job.ref} is missing after the import")
    return Provided(
        job.spec.kind, commit, job.store.tree_of(commit), source.detail(job), fresh=fresh
    )
