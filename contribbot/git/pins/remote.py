"""Fetch a tag or commit of a git repository without history; list a remote's releases."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import tempfile
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from packaging.version import InvalidVersion, Version
from pydantic import TypeAdapter, ValidationError

from contribbot import process
from contribbot.errors import (
    CommandError,
    CommandTimeoutError,
    IntegrityError,
    SourceError,
    UsageError,
)
from contribbot.git.pins import NEWEST, SourceRequest, default_remote, one_line, redact
from contribbot.model.base import Tag
from contribbot.model.patch import GitSource, Pin, Upstream

log: Final = logging.getLogger(__name__)

#: How git reaches the network: the user's own programs, keys, proxies and certificates.
_NETWORK: Final = re.compile(
    r"HOME|USER|LOGNAME|XDG_CONFIG_HOME|XDG_RUNTIME_DIR|SSH_AUTH_SOCK|CURL_CA_BUNDLE"
    r"|GIT_CONFIG_(?:GLOBAL|SYSTEM|NOSYSTEM)|GIT_SSH(?:_COMMAND|_VARIANT)?|GIT_ASKPASS"
    r"|GIT_SSL_\w+|GIT_PROXY_\w+|GIT_ALLOW_PROTOCOL|(?i:https?|all|no)_proxy"
)
_REMOTE: Final = "contribbot"
_FETCH: Final = (
    "fetch --quiet --no-tags --no-prune --no-write-fetch-head --no-auto-maintenance"
    " --no-recurse-submodules --force --refmap="
)
#: Settings of git that override the user's configuration for a fetch.
_SETTINGS: Final = {
    # No window asks a person for a password; `GIT_ASKPASS` and credential helpers still work.
    "core.askPass": "",
    "core.hooksPath": "/dev/null",
    "core.fsmonitor": "false",
    "core.logAllRefUpdates": "false",
    "fetch.pruneTags": "false",
    "fetch.writeCommitGraph": "false",
    "fetch.unpackLimit": "1",
    "transfer.unpackLimit": "1",
    "protocol.version": "2",
}
#: Seconds to list refs, to check a stored tag again, to fetch a commit and a whole history.
_ASK_TIMEOUT: Final = 120.0
_RECHECK_TIMEOUT: Final = 15.0
_FETCH_TIMEOUT: Final = 3600.0
_HISTORY_TIMEOUT: Final = 1800.0


@dataclass(frozen=True)
class Remote:
    """A remote git repository, and the local repository into which git fetches."""

    folder: Path
    #: May hold credentials: see `shown`.
    url: str

    @property
    def shown(self) -> str:
        """The URL without credentials."""
        return redact(self.url)

    def git(self, *args: str, timeout: float = _ASK_TIMEOUT) -> str:
        """Run git with the user's network settings; keep the URL out of the arguments."""
        settings = {**_SETTINGS, f"remote.{_REMOTE}.url": self.url}
        env = {name: value for name, value in os.environ.items() if _NETWORK.fullmatch(name)}
        env |= {"GIT_TERMINAL_PROMPT": "0", "GCM_INTERACTIVE": "never"}
        env["GIT_CONFIG_COUNT"] = str(len(settings))
        for number, (key, value) in enumerate(settings.items()):
            env |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
        # `from None`: the original error may hold the password in git's output.
        try:
            done = process.run(
                ["git", f"--git-dir={self.folder}", *args],
                cwd=self.folder,
                env=process.clean_environment(env),
                timeout=timeout,
                tethered=True,
            )
        except CommandError as error:
            lines = [one_line(line) for line in error.stderr.splitlines() if line.strip()]
            fatal = [line for line in lines if line.startswith(("fatal:", "error:", "ERROR:"))]
            reason = "; ".join(fatal or lines) or "git said nothing"
            hint = f"try `git ls-remote {self.shown}`; check the network and your access"
            raise SourceError(f"{self.shown}: {reason}", hint=hint) from None
        except CommandTimeoutError:
            raise SourceError(
                f"{self.shown}: git {args[0]} did not end in {timeout:g} s",
                hint="check the network",
            ) from None
        return done.stdout.decode("utf-8", "replace")

    def refs(self, *patterns: str, timeout: float = _ASK_TIMEOUT) -> dict[str, str]:
        """Return the object id of each ref on the remote that matches a pattern, by name."""
        rows = self.git("ls-remote", _REMOTE, *patterns, timeout=timeout).splitlines()
        return {name: object_id for object_id, name in (row.split("\t") for row in rows)}

    def fetch(self, *args: str, timeout: float = _FETCH_TIMEOUT) -> None:
        """Fetch refs or commits; the first argument is an option of `git fetch`."""
        self.git(*_FETCH.split(), args[0], _REMOTE, *args[1:], timeout=timeout)


@contextlib.contextmanager
def elsewhere(upstream: Upstream, source: GitSource) -> Iterator[Remote]:
    """Yield an upstream's remote with an empty temporary repository to fetch into."""
    with tempfile.TemporaryDirectory() as name:
        remote = Remote(Path(name), source.remote or default_remote(upstream))
        remote.git("init", "--quiet", "--bare")
        yield remote


#: The ref of the fetched commit, until the commit is known to be the right one.
_INCOMING: Final = "refs/incoming/pin"


def commit_detail(job: SourceRequest) -> str:
    """Return a line: the remote's URL, and the pinned commit, or else the pin's tag."""
    # A remote may lack the tag and have the pinned commit.
    what = f"commit {job.pin.commit}" if job.pin.commit else f"tag {job.pin.tag}"
    return f"{_remote(job).shown} {what}"


def bring_commit(job: SourceRequest) -> bool:
    """Fetch the pinned commit into the store without history; return False if the store had it."""
    remote = _remote(job)
    name, commit = _ask(job, remote)
    with job.store.exclusive():
        if job.stored():
            return False
        # Lock files of a killed fetch; nobody else uses the store inside `exclusive()`.
        for pattern in ("*.lock", "refs/**/*.lock"):
            for stale in job.store.path.glob(pattern):
                stale.unlink(missing_ok=True)
        job.progress.start(f"fetching {job.pin.title} from {remote.shown}", None)
        try:
            remote.fetch("--depth=1", f"{name}:{_INCOMING}")
        finally:
            job.progress.done()
        try:
            got = job.store.resolve(f"{_INCOMING}^{{commit}}")
            if got != commit:
                raise _wrong(job, remote, commit, got or "no commit")
            job.store.git("update-ref", job.ref, got)
        finally:
            job.store.git("update-ref", "-d", _INCOMING)
    return True


def _remote(job: SourceRequest) -> Remote:
    url = job.spec_as(GitSource).remote or default_remote(job.upstream)
    return Remote(job.store.path, url)


def _wrong(job: SourceRequest, remote: Remote, expected: str, got: str) -> IntegrityError:
    return IntegrityError(
        f"{remote.shown}: tag {job.pin.tag} is not the pinned commit:"
        f" expected {expected}, got {got}",
        hint="the tag was moved, or this is another repository; find out before you change the pin",
    )


def refuse_moved(job: SourceRequest, commit: str) -> None:
    """Raise IntegrityError if the pin's tag on the remote names another commit than `commit`."""
    now = tagged_commit(job)
    if now not in {None, commit}:
        raise IntegrityError(
            f"{_remote(job).shown}: tag {job.pin.tag} was moved from {commit}, which the"
            f" store holds, to {now}",
            hint="find out why; then pin the commit: state `commit` with the tag in queue.toml",
        )


def tagged_commit(job: SourceRequest) -> str | None:
    """Return the commit that the pin's tag names on the remote; None: no answer, or no such tag."""
    try:
        return _ask(job, _remote(job), timeout=_RECHECK_TIMEOUT)[1]
    except SourceError as error:
        log.info("%s: cannot see whether it was moved: %s", job.pin.title, error.message)
        return None


def _ask(job: SourceRequest, remote: Remote, *, timeout: float = _ASK_TIMEOUT) -> tuple[str, str]:
    """Return the ref or commit to fetch, and the commit that the fetched ref must have."""
    tag = f"refs/tags/{job.pin.tag}"
    ids = remote.refs(tag, f"{tag}^{{}}", timeout=timeout)
    # An annotated tag is an object; `^{}` names the commit that the object points to.
    commit = ids.get(f"{tag}^{{}}") or ids.get(tag)
    if commit is None:
        if job.pin.commit is None:
            raise SourceError(
                f"{remote.shown}: no tag {job.pin.tag}", hint="see `git ls-remote --tags` of it"
            )
        # A mirror may lack the tag and have the commit.
        return job.pin.commit, job.pin.commit
    if job.pin.commit not in {None, commit}:
        raise _wrong(job, remote, str(job.pin.commit), commit)
    return tag, commit


_ID: Final = re.compile(r"[0-9a-f]{40}")
_TAG: Final = TypeAdapter[str](Tag)
_TAGS: Final = "refs/tags/"
_START: Final = "refs/points/start"
_END: Final = "refs/points/end"
_HINT: Final = "name a tag, or a commit by its 40 digits"


def commits_between(upstream: Upstream, source: GitSource, start: str, end: str) -> list[str]:
    """Return the first-parent commits from one tag or commit to another, both included."""
    refs = [_ref(point) for point in (start, end)]
    with elsewhere(upstream, source) as remote:
        tags = [ref for ref in refs if ref.startswith(_TAGS)]
        known = remote.refs(*tags) if tags else {}
        for tag in tags:
            if tag not in known:
                raise SourceError(f"{remote.shown}: no tag {tag.removeprefix(_TAGS)}", hint=_HINT)
        # Fetch commits without trees and files; for a large repository this takes minutes.
        remote.fetch(
            "--filter=tree:0", f"{refs[0]}:{_START}", f"{refs[1]}:{_END}", timeout=_HISTORY_TIMEOUT
        )
        first = remote.git("rev-parse", f"{_START}^{{commit}}").strip()
        later = remote.git("rev-list", "--first-parent", "--reverse", f"{_START}..{_END}").split()
        if not later:
            raise out_of_order(start, end)
        if remote.git("rev-list", "--max-count=1", f"{_END}..{_START}").strip():
            raise UsageError(
                f"{end} does not come after {start}: they are on two branches of the history",
                hint=f"begin where they part: git merge-base {start} {end}",
            )
    return [first, *later]


def _ref(point: str) -> str:
    if _ID.fullmatch(point):
        return point
    try:
        return _TAGS + _TAG.validate_python(point)
    except ValidationError as error:
        raise UsageError(f"{point}: neither a tag nor a commit", hint=_HINT) from error


def out_of_order(start: str, end: str) -> UsageError:
    """Return the error for a range whose end does not come after its start."""
    if start == end:
        return UsageError(f"both ends are {start}", hint="name two ends")
    return UsageError(f"{end} does not come after {start}", hint="write them the other way round")


_TAG_REF: Final = re.compile(r"refs/tags/(?P<tag>[A-Za-z0-9][A-Za-z0-9._+-]*)")


def release_tags(upstream: Upstream, source: GitSource, *, also: Collection[str] = ()) -> list[str]:
    """Return a repository's tags that are final releases or in `also`, the oldest release first."""
    with elsewhere(upstream, source) as remote:
        return _final(_tags(remote), also)


def _tags(remote: Remote) -> list[str]:
    """Return a repository's tags whose names a pin can have."""
    return [
        match["tag"] for ref in remote.refs("refs/tags/*") if (match := _TAG_REF.fullmatch(ref))
    ]


def _final(tags: Sequence[str], also: Collection[str] = ()) -> list[str]:
    """Return the tags that are final releases, or versions in `also`, the oldest release first."""
    versions: dict[str, Version] = {}
    for tag in tags:
        with contextlib.suppress(InvalidVersion):
            versions[tag] = Version(tag)
    final = {tag for tag, version in versions.items() if tag in also or not version.is_prerelease}
    return sorted(final, key=lambda tag: (versions[tag], tag))


def pin_from_git(pin: Pin, upstream: Upstream, source: GitSource, tag: str) -> Pin:
    """Return a pin at another tag whose only source is a git repository."""
    with elsewhere(upstream, source) as remote:
        tags = _tags(remote)
    known = _final(tags)
    wanted = known[-1] if tag == NEWEST and known else tag
    if wanted not in tags:
        raise UsageError(
            f"{pin.upstream} {tag}: no such release in {remote.shown}",
            hint=f"the newest are {', '.join(known[-5:])}" if known else "it has no release tags",
        )
    return Pin(upstream=pin.upstream, tag=wanted, sources=(source,))
