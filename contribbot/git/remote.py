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
import os
import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter, ValidationError

from contribbot import process
from contribbot.errors import (
    CommandError,
    CommandTimeoutError,
    IntegrityError,
    SourceError,
    UsageError,
)
from contribbot.git.source import Job, default_remote, one_line, redact
from contribbot.model.base import Tag
from contribbot.model.pin import GitSource, Upstream

#: How a remote is called in arguments.
REMOTE: Final = "contribbot"
#: How git reaches the network: the user's own programs, keys, proxies and certificates.
_NETWORK: Final = re.compile(
    r"HOME|USER|LOGNAME|XDG_CONFIG_HOME|XDG_RUNTIME_DIR|SSH_AUTH_SOCK|CURL_CA_BUNDLE"
    r"|GIT_CONFIG_(?:GLOBAL|SYSTEM|NOSYSTEM)|GIT_SSH(?:_COMMAND|_VARIANT)?|GIT_ASKPASS"
    r"|GIT_SSL_\w+|GIT_PROXY_\w+|GIT_ALLOW_PROTOCOL|(?i:https?|all|no)_proxy"
)
#: What a server says that lacks what it should have.
_INCOMPLETE: Final = "possible repository corruption on the remote side"
#: What the user's configuration may not change about this one fetch.
_SETTINGS: Final = {
    # A window that asks a person; `GIT_ASKPASS`, which scripts set, and helpers still answer.
    "core.askPass": "",
    "core.hooksPath": "/dev/null",
    "core.fsmonitor": "false",
    "core.logAllRefUpdates": "false",
    "fetch.prune": "false",
    "fetch.pruneTags": "false",
    "fetch.recurseSubmodules": "no",
    "fetch.writeCommitGraph": "false",
    # Blobs are asked for by their ids: there is no history to compare.
    "fetch.negotiationAlgorithm": "noop",
    "fetch.unpackLimit": "1",
    "transfer.unpackLimit": "1",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "protocol.version": "2",
}


def remote_git(
    folder: Path, url: str, shown: str, *args: str, timeout: float, stdin: bytes = b""
) -> str:
    """Run git with the user's network settings, and no others.

    The URL goes in by the environment: arguments can be seen by other users of
    the machine, and are logged.
    """
    settings = {**_SETTINGS, f"remote.{REMOTE}.url": url}
    env = {name: value for name, value in os.environ.items() if _NETWORK.fullmatch(name)}
    env |= {"GIT_TERMINAL_PROMPT": "0", "GCM_INTERACTIVE": "never"}
    env["GIT_CONFIG_COUNT"] = str(len(settings))
    for number, (key, value) in enumerate(settings.items()):
        env |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    try:
        done = process.run(
            ["git", f"--git-dir={folder}", *args],
            cwd=folder,
            env=process.clean_environment(env),
            stdin=stdin,
            timeout=timeout,
            tethered=True,
        )
    except CommandError as error:
        reason = _reason(error.stderr)
        hint = f"try `git ls-remote {shown}`; check the network and your access"
        if _INCOMPLETE in reason:
            hint = "is it a partial clone? Name the repository that it was cloned from"
        # Not chained: git's own words may hold the password.
        raise SourceError(f"{shown}: {reason}", hint=hint) from None
    except CommandTimeoutError:
        raise SourceError(
            f"{shown}: git {args[0]} did not end in {timeout:g} s", hint="check the network"
        ) from None
    return done.stdout.decode("utf-8", "replace")


def _reason(stderr: str) -> str:
    """Return git's complaint on one line: what it calls fatal, or all of it."""
    lines = [one_line(line) for line in stderr.splitlines() if line.strip()]
    fatal = [line for line in lines if line.startswith(("fatal:", "error:", "ERROR:"))]
    return "; ".join(fatal or lines) or "git said nothing"


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
    now = tagged_commit(job)
    if now not in {None, commit}:
        raise IntegrityError(
            f"{redact(remote_url(job))}: tag {job.pin.tag} was moved from {commit}, which the"
            f" store holds, to {now}",
            hint="find out why; then pin the commit: state `commit` with the tag in queue.toml",
        )


def tagged_commit(job: Job) -> str | None:
    """Return the commit that the remote's tag names now; None where it does not answer."""
    url = remote_url(job)
    try:
        return _ask(job, url, redact(url), timeout=_RECHECK_TIMEOUT).commit
    except SourceError as error:
        log.info("%s: cannot see whether it was moved: %s", job.pin.title, error.message)
        return None


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


_ID: Final = re.compile(r"[0-9a-f]{40}")
_TAG: Final = TypeAdapter[str](Tag)
_TAGS: Final = "refs/tags/"
#: How the two ends are called here.
_START: Final = "refs/points/start"
_END: Final = "refs/points/end"
_HINT: Final = "name a tag, or a commit by its 40 digits"
#: Commits alone, no trees and no files; of a large repository that takes minutes all the same.
_TIMEOUT: Final = 1800.0


def commits_between(upstream: Upstream, source: GitSource, start: str, end: str) -> list[str]:
    """Return the commits of the main line from one point to another, its ends too."""
    remote = source.remote or default_remote(upstream)

    def git(*args: str) -> str:
        return remote_git(folder, remote, redact(remote), *args, timeout=_TIMEOUT)

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        git("init", "--quiet", "--bare")
        refs = [_ref(point) for point in (start, end)]
        tags = [ref for ref in refs if ref.startswith(_TAGS)]
        known = git("ls-remote", REMOTE, *tags).split() if tags else []
        for tag in tags:
            if tag not in known:
                raise SourceError(f"{redact(remote)}: no tag {tag.removeprefix(_TAGS)}", hint=_HINT)
        wanted = [f"{ref}:{point}" for ref, point in zip(refs, (_START, _END), strict=True)]
        git("fetch", "--quiet", "--filter=tree:0", "--no-tags", REMOTE, *wanted)
        first = git("rev-parse", f"{_START}^{{commit}}").strip()
        later = git("rev-list", "--first-parent", "--reverse", f"{_START}..{_END}").split()
        if not later:
            raise out_of_order(start, end)
        if git("rev-list", "--max-count=1", f"{_END}..{_START}").strip():
            try:
                base = git("merge-base", _START, _END).strip()
            except SourceError:  # they have nothing in common
                base = ""
            raise _parted(start, end, base)
    return [first, *later]


def _ref(point: str) -> str:
    """Return what to fetch for an end that a user named."""
    if _ID.fullmatch(point):
        return point
    try:
        return _TAGS + _TAG.validate_python(point)
    except ValidationError as error:
        raise UsageError(f"{point}: neither a tag nor a commit", hint=_HINT) from error


def out_of_order(start: str, end: str) -> UsageError:
    """Return the error for ends of which the second does not come after the first."""
    if start == end:
        return UsageError(f"--from and --to are both {start}", hint="name two ends")
    return UsageError(f"{end} does not come after {start}", hint="exchange --from and --to")


def _parted(start: str, end: str, base: str) -> UsageError:
    """Return the error for ends on two branches, as releases with branches of their own are."""
    return UsageError(
        f"{end} does not come after {start}: they are on two branches of the history",
        hint=f"look from where they part: --from {base}" if base else "name two ends of one",
    )
