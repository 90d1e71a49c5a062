"""The request to a source, its answer, and the progress that is shown."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import json
import logging
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol, TypeVar

from contribbot.git.repository import Store
from contribbot.model.base import Model
from contribbot.model.pin import Pin, SourceSpec, Upstream

#: Part of every ref's name: raise it when an importer starts to write other trees,
#: so that what older versions imported is no longer found.
IMPORTER: Final = 1

Spec = TypeVar("Spec", bound=Model)


class Progress(Protocol):
    """The display of a long step."""

    def start(self, label: str, total: int | None) -> None:
        """Begin a step."""
        del label, total

    def advance(self, count: int) -> None:
        """Count some bytes."""
        del count

    def done(self) -> None:
        """End the step, well or badly."""
        return


class Silent(Progress):
    """A display that shows nothing."""


@dataclass(frozen=True)
class Provided:
    """A pinned tree, in the store."""

    kind: str
    commit: str
    tree: str
    #: The origin of the tree in a line, without credentials.
    detail: str
    fresh: bool
    #: One line for each source that was tried before and failed.
    failures: tuple[str, ...] = ()


@dataclass(frozen=True)
class SourceRequest:
    """A request to one source to bring a pin's tree into the store."""

    pin: Pin
    #: Which of its sources; of the kind that the source is registered for.
    spec: SourceSpec
    upstream: Upstream
    store: Store
    progress: Progress

    @property
    def ref(self) -> str:
        """The ref of the pinned commit in the store, written once the whole tree is there."""
        return ref_for(self.pin, self.spec, self.upstream)

    @property
    def generated(self) -> tuple[str, ...]:
        """The files that the build of a wheel writes; a pin's tree leaves these files out."""
        return self.upstream.release.generated if self.upstream.release else ()

    def spec_as(self, kind: type[Spec]) -> Spec:
        """Return the source's description, checked to be of a type."""
        if not isinstance(self.spec, kind):
            raise TypeError(f"{self.spec.kind} is no {kind.__name__}")
        return self.spec

    def stored(self) -> bool:
        """Tell whether the commit is in the store; the ref alone does not count."""
        return self.store.resolve(f"{self.ref}^{{commit}}") is not None

    def message(self, digest: str) -> str:
        """Return the message of the commit that an importer writes."""
        return f"{self.pin.title}\n\nSource: {self.spec.kind}\nSha256: {digest}\n"


class PinSource(NamedTuple):
    """A kind of source of pinned trees."""

    #: Says in a line where the tree comes from, without credentials or work.
    detail: Callable[[SourceRequest], str]
    #: Puts the tree into the store, holding it briefly, and last names its commit `job.ref`.
    bring: Callable[[SourceRequest], bool]


def default_remote(upstream: Upstream) -> str:
    """Return the URL of an upstream's repository on the server that the environment names."""
    server = os.environ.get("GITHUB_SERVER_URL", "") or "https://github.com"
    return f"{server.rstrip('/')}/{upstream.repository}"


def ref_for(pin: Pin, spec: SourceSpec, upstream: Upstream) -> str:
    """Return the ref of a pin's source; the name has a digest of all that decides the tree."""
    installed = None
    if spec.kind == "installed":
        # Another build of the same release (`+cpu`, `+rocm6.4`) is another tree.
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            installed = importlib.metadata.version(spec.distribution)
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


#: The part between `//` and the last `@` before the path: name, password, token.
_USERINFO: Final = re.compile(r"(?<=://)[^/\s'\"]*@")
#: Queries carry tokens too (signed download links).
_QUERY: Final = re.compile(r"(://[^\s'\"?]*)\?[^\s'\"]*")


def redact(text: str) -> str:
    """Return a text without the credentials of the URLs in it."""
    return _QUERY.sub(r"\1", _USERINFO.sub("", text))


def one_line(text: str) -> str:
    """Return a text on one line, without credentials."""
    return " ".join(redact(text).split())


def redact_logs(name: str) -> None:
    """Keep credentials out of the logs of a library; a second call changes nothing."""
    logging.getLogger(name).addFilter(_redacted)


def _redacted(record: logging.LogRecord) -> bool:
    record.msg, record.args = redact(record.getMessage()), ()
    return True
