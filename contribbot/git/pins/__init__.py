"""Types that all sources of pins share, the refs of pins, and texts without credentials."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import json
import logging
import os
import re
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from contribbot.git.repository import Store
from contribbot.model.base import Model
from contribbot.model.patch import Pin, SourceSpec, Upstream

#: Part of every ref's name. Raise this number when an importer starts to write other trees,
#: so that trees of older importers are not found.
IMPORTER: Final = 1
#: Instead of a tag: the newest release that is neither a pre-release nor withdrawn.
NEWEST: Final = "newest"

Spec = TypeVar("Spec", bound=Model)


class Progress(Protocol):
    """A display of the progress of a long step; the base class shows nothing."""

    def start(self, label: str, total: int | None) -> None:
        """Begin a step with the name `label` and of `total` bytes (None: unknown)."""
        del label, total

    def advance(self, count: int) -> None:
        """Advance the display by a number of bytes."""
        del count

    def done(self) -> None:
        """End the step, after success or failure."""
        return


class Silent(Progress):
    """A display that shows nothing."""


@dataclass(frozen=True)
class Provided:
    """A pinned tree that the store has."""

    kind: str
    commit: str
    tree: str
    #: A line on where the tree comes from, without credentials.
    detail: str
    fresh: bool
    #: One line for each source that failed before this source worked.
    failures: tuple[str, ...] = ()


@dataclass(frozen=True)
class SourceRequest:
    """A request to bring a pin's tree into the store from one of the pin's sources."""

    pin: Pin
    #: The source to use: one of the pin's sources.
    spec: SourceSpec
    upstream: Upstream
    store: Store
    progress: Progress

    @property
    def ref(self) -> str:
        """The ref of the pinned commit in the store; written after the whole tree."""
        return ref_for(self.pin, self.spec, self.upstream)

    @property
    def generated(self) -> tuple[str, ...]:
        """The paths that the upstream's wheel build writes; the pin's tree leaves them out."""
        return self.upstream.release.generated if self.upstream.release else ()

    def spec_as(self, kind: type[Spec]) -> Spec:
        """Return `spec`; raise TypeError if `spec` is no `kind`."""
        if not isinstance(self.spec, kind):
            raise TypeError(f"{self.spec.kind} is no {kind.__name__}")
        return self.spec

    def stored(self) -> bool:
        """Return whether the store has the pin's commit; the ref alone does not count."""
        return self.store.resolve(f"{self.ref}^{{commit}}") is not None

    def message(self, digest: str) -> str:
        """Return the commit message for an imported tree."""
        return f"{self.pin.title}\n\nSource: {self.spec.kind}\nSha256: {digest}\n"


def default_remote(upstream: Upstream) -> str:
    """Return the URL of an upstream's repository on `GITHUB_SERVER_URL`, by default github.com."""
    server = os.environ.get("GITHUB_SERVER_URL", "") or "https://github.com"
    return f"{server.rstrip('/')}/{upstream.repository}"


def installed_version(distribution: str) -> str | None:
    """Return the version of a distribution that this Python has installed, or None."""
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(distribution)
    return None


def ref_for(pin: Pin, spec: SourceSpec, upstream: Upstream) -> str:
    """Return the store's ref for a pin's source; the ref has a digest of the tree's inputs."""
    # Each build of a release (`+cpu`, `+rocm6.4`) has its own tree.
    installed = installed_version(spec.distribution) if spec.kind == "installed" else None
    facts: dict[str, object] = {
        "commit": pin.commit,
        "importer": IMPORTER,
        "remote": default_remote(upstream) if spec.kind == "git" and not spec.remote else None,
        "installed": installed,
        "spec": spec.model_dump(mode="json"),
        "tag": pin.tag,
    }
    if spec.kind in {"wheel", "installed"} and upstream.release and upstream.release.generated:
        facts["generated"] = [*upstream.release.generated]
    text = json.dumps(facts, sort_keys=True, separators=(",", ":"))
    return f"refs/pins/{pin.tag}/{spec.kind}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


#: The part of a URL between `//` and the last `@` before the path: name, password, token.
_USERINFO: Final = re.compile(r"(?<=://)[^/\s'\"]*@")
#: The query of a URL, which in a signed download link holds a token.
_QUERY: Final = re.compile(r"(://[^\s'\"?]*)\?[^\s'\"]*")


def redact(text: str) -> str:
    """Return a text with the credentials and queries of all URLs removed."""
    return _QUERY.sub(r"\1", _USERINFO.sub("", text))


def one_line(text: str) -> str:
    """Return a text with its lines joined to one line, and without credentials."""
    return " ".join(redact(text).split())


def redact_logs(name: str) -> None:
    """Remove credentials from a library's log records; a second call changes nothing."""
    logging.getLogger(name).addFilter(_redacted)


def _redacted(record: logging.LogRecord) -> bool:
    record.msg, record.args = redact(record.getMessage()), ()
    return True
