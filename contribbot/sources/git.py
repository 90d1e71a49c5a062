"""A tag or commit of any git repository that can be fetched from.

The fetch is shallow and blobless: one commit and its trees come first, and then,
in one request, those blobs that the store does not hold yet. Two releases of an
upstream share most of their blobs, so a second pin costs what differs. When the
ref is written the tree is complete: the store works offline and is no promisor
repository, in which every look-up of a missing object would go to the network.
"""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from contribbot.errors import IntegrityError, SourceError
from contribbot.model.pin import GitSource
from contribbot.sources.base import Job, default_remote
from contribbot.sources.redact import redact
from contribbot.sources.remote import REMOTE, remote_git

log: Final = logging.getLogger(__name__)

#: Where the fetch puts what it got, until it is known to be the right thing.
_INCOMING: Final = "refs/incoming/pin"
_FLAGS: Final = (
    "--quiet",
    "--no-tags",
    "--no-prune",
    "--no-write-fetch-head",
    "--no-auto-maintenance",
    "--no-recurse-submodules",
    "--force",
    "--refmap=",
)
#: Seconds; a large upstream over a slow line.
_LS_TIMEOUT: Final = 120.0
_RECHECK_TIMEOUT: Final = 15.0
_FETCH_TIMEOUT: Final = 3600.0
#: What servers say that know whole histories only.
_NO_SHALLOW: Final = re.compile(r"dumb http|does not support.*shallow", re.IGNORECASE)


@dataclass(frozen=True)
class _Target:
    """What to fetch: a name or id that the server knows, and the commit it must give."""

    want: str
    commit: str


class GitRemote:
    """Fetches one commit of the upstream's history, as it is there."""

    def detail(self, job: Job) -> str:
        """Return the remote, and the commit or, where none is pinned, the tag."""
        # A remote may have a pinned commit and lack the tag: then only the commit was seen.
        what = f"commit {job.pin.commit}" if job.pin.commit else f"tag {job.pin.tag}"
        return f"{redact(remote_url(job))} {what}"

    def bring(self, job: Job) -> bool:
        """Fetch the commit; see `Source.bring`."""
        url = remote_url(job)
        shown = redact(url)
        target = _ask(job, url, shown)
        with job.store.exclusive():
            if job.landed():
                return False
            _remove_stale_locks(job)
            job.progress.start(f"fetching {job.pin.title} from {shown}", None)
            try:
                _fetch(job, url, shown, target)
            finally:
                job.progress.done()
            try:
                got = job.store.resolve(f"{_INCOMING}^{{commit}}")
                if got != target.commit:
                    raise _wrong(job, shown, target.commit, got or "no commit")
                job.store.git("update-ref", job.ref, got)
            finally:
                job.store.git("update-ref", "-d", _INCOMING)
        return True


def remote_url(job: Job) -> str:
    """Return where to fetch from; may hold credentials."""
    return job.spec_as(GitSource).remote or default_remote(job.upstream)


def _wrong(job: Job, shown: str, expected: str, got: str) -> IntegrityError:
    return IntegrityError(
        f"{shown}: tag {job.pin.tag} is not the pinned commit: expected {expected}, got {got}",
        hint="the tag was moved, or this is another repository; find out before you change the pin",
    )


def refuse_moved(job: Job, commit: str) -> None:
    """Refuse a commit that was fetched earlier by a tag alone, if the tag is another one now.

    Where the remote cannot be asked, the commit stands.
    """
    url = remote_url(job)
    shown = redact(url)
    try:
        now = _ask(job, url, shown, timeout=_RECHECK_TIMEOUT).commit
    except SourceError as error:
        log.info("%s: cannot see whether it was moved: %s", job.pin.title, error.message)
        return
    if now != commit:
        raise IntegrityError(
            f"{shown}: tag {job.pin.tag} was moved from {commit}, which the store holds, to {now}",
            hint="find out why; then pin the commit: state `commit` with the tag in queue.toml",
        )


def _ask(job: Job, url: str, shown: str, *, timeout: float = _LS_TIMEOUT) -> _Target:
    """Ask the server which commit the tag is, before anything is downloaded."""
    tag = f"refs/tags/{job.pin.tag}"
    said = _git(job, url, shown, "ls-remote", REMOTE, tag, f"{tag}^{{}}", timeout=timeout)
    ids = {name: object_id for object_id, name in (line.split("\t") for line in said.splitlines())}
    # An annotated tag is an object of its own; `^{}` is the commit behind it.
    commit = ids.get(f"{tag}^{{}}") or ids.get(tag)
    if commit is None:
        if job.pin.commit is None:
            raise SourceError(
                f"{shown}: no tag {job.pin.tag}", hint="see `git ls-remote --tags` of it"
            )
        # A mirror may lack the tag and have the commit.
        return _Target(job.pin.commit, job.pin.commit)
    if job.pin.commit not in {None, commit}:
        raise _wrong(job, shown, str(job.pin.commit), commit)
    return _Target(tag, commit)


def _fetch(job: Job, url: str, shown: str, target: _Target) -> None:
    """Fetch to `_INCOMING`, complete."""
    wanted = f"{target.want}:{_INCOMING}"
    try:
        with _no_promisor(job):
            _git(
                job, url, shown, "fetch", *_FLAGS, "--depth=1", "--filter=blob:none", REMOTE,
                wanted, timeout=_FETCH_TIMEOUT,
            )  # fmt: skip
        with _no_promisor(job):
            _fetch_missing(job, url, shown)
    except SourceError as error:
        if not _NO_SHALLOW.search(error.message):
            raise
        log.warning("%s cannot give one commit alone; fetching its history too", shown)
        _git(job, url, shown, "fetch", *_FLAGS, REMOTE, wanted, timeout=_FETCH_TIMEOUT)


@contextlib.contextmanager
def _no_promisor(job: Job) -> Iterator[None]:
    """Take back what git notes when it fetches with a filter: that the remote has the rest.

    While that stands, a git that meets a missing object starts a fetch of its own.
    """
    try:
        yield
    finally:
        job.store.git("config", "--remove-section", f"remote.{REMOTE}", accept=(0, 1, 128))
        job.store.git("config", "--unset", "extensions.partialclone", accept=(0, 5))


def _fetch_missing(job: Job, url: str, shown: str) -> None:
    """Fetch those blobs of `_INCOMING` that the store lacks, all in one request."""
    listed = job.store.git(
        "rev-list", "--objects", "--no-walk", "--missing=print", _INCOMING, timeout=_LS_TIMEOUT
    ).stdout
    missing = [line[1:] for line in listed.splitlines() if line.startswith(b"?")]
    if not missing:
        return  # also where the server knows no filters and has sent everything
    log.info("%s: fetching %d blobs that the store lacks", shown, len(missing))
    _git(
        job, url, shown, "fetch", *_FLAGS, "--filter=blob:none", "--stdin", REMOTE,
        stdin=b"\n".join(missing) + b"\n", timeout=_FETCH_TIMEOUT,
    )  # fmt: skip


def _git(job: Job, url: str, shown: str, *args: str, timeout: float, stdin: bytes = b"") -> str:
    return remote_git(job.store.path, url, shown, *args, timeout=timeout, stdin=stdin)


def _remove_stale_locks(job: Job) -> None:
    """Remove the lock files of a fetch that was killed; the store is held, so nobody uses them."""
    for pattern in ("*.lock", "refs/**/*.lock"):
        for stale in job.store.path.glob(pattern):
            stale.unlink(missing_ok=True)
