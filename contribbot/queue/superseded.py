"""Tell from local files whether an upstream already has a patch, or turned the patch down."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Mapping
from typing import Final

from packaging.version import InvalidVersion, Version
from pydantic import Field, ValidationError

from contribbot.files import write_atomically
from contribbot.model.base import Model
from contribbot.model.history import PullRequestEvent
from contribbot.model.lifecycle import Due, Need, PatchStatus, Text
from contribbot.model.patch import Expiry, digest_of
from contribbot.model.pin import ReleaseRecipe
from contribbot.queue import history
from contribbot.queue.load import Queue

_FILE: Final = "superseded.json"


class Supersession(Model):
    """Why a patch must not be proposed any more; `by`: the release, pull request or upstream."""

    why: str
    by: str
    turned_down: bool = Field(default=False, exclude_if=operator.not_)

    @property
    def words(self) -> str:
        """A line with the state (superseded or turned down), the cause and the reason."""
        by = f" by {self.by}" if self.by else ""
        return f"{'turned down' if self.turned_down else 'superseded'}{by}: {self.why}"


class _Seen(Model):
    """The file of remembered supersessions, by the name and digests of a patch."""

    of: dict[str, Supersession] = Field(default_factory=dict)


def superseded(queue: Queue, name: str) -> Supersession | None:
    """Return why a patch must not be proposed, from patch.toml or as remembered; else None."""
    spec = queue.specs[name]
    named = next((str(each.pull_request) for each in spec.expires_when if each.pull_request), "")
    if spec.turned_down:
        why = " ".join(spec.turned_down.split())
        return Supersession(why=why, by=spec.upstream, turned_down=True)
    if spec.kept:
        return Supersession(why=" ".join(spec.kept.split()), by=named)
    merged, recipe = merged_in(queue, name), queue.upstreams[spec.upstream].release
    tags = [pin.tag for pin in queue.spec.pins if pin.upstream == spec.upstream]
    for condition in spec.expires_when:
        for tag in tags:
            state = due(condition, tag, merged, releases=recipe)
            if state.come:
                by = condition.pull_request or f"{spec.upstream} {condition.release}"
                return Supersession(why=f"{state.condition}: {state.why}", by=by)
    seen = _read(queue).of
    # The key needs the patch's files: read them only if the file remembers anything.
    return seen.get(_key(queue, name)) if seen else None


def superseded_words(queue: Queue, name: str) -> str:
    """Return a line on why a patch must not be proposed; empty: the patch may be proposed."""
    found = superseded(queue, name)
    return found.words if found else ""


def superseded_by_release(status: PatchStatus) -> Supersession | None:
    """Return a supersession if a status shows that the release has the patch, else None."""
    release, behaviour = f"{status.upstream} {status.against}", status.behaviour
    if status.text is Text.UPSTREAM:
        return Supersession(why=status.text_why or "it has all of its text", by=release)
    if behaviour is not None and behaviour.verdict in {Need.SUPERSEDED, Need.PARTLY}:
        return Supersession(why=behaviour.why, by=release)
    return None


def note(queue: Queue, found: Mapping[str, Supersession | None]) -> None:
    """Save which patches are superseded, in a file that may be deleted; None removes an entry."""
    known = _read(queue).of
    now = dict(known)
    for name, seen in found.items():
        now.pop(_key(queue, name), None)
        if seen is not None:
            now[_key(queue, name)] = seen
    if now != known:
        with contextlib.suppress(OSError):
            write_atomically(queue.local / _FILE, _Seen(of=now).model_dump_json().encode())


def _read(queue: Queue) -> _Seen:
    with contextlib.suppress(OSError, ValidationError):
        return _Seen.model_validate_json((queue.local / _FILE).read_bytes())
    return _Seen()


def _key(queue: Queue, name: str) -> str:
    patch = queue.patch(name)
    return f"{name} {digest_of(patch.files)} {patch.checks_digest}"


def merged_in(queue: Queue, name: str) -> frozenset[str]:
    """Return the pull requests whose last state in a patch's history is `merged`."""
    events = history.read(queue.folder, name)
    # The last event on each pull request counts: after a revert, it is not merged.
    last = {event.reference: event.state for event in events if isinstance(event, PullRequestEvent)}
    return frozenset(reference for reference, state in last.items() if state == "merged")


def due(
    expiry: Expiry, tag: str, merged: frozenset[str], *, releases: ReleaseRecipe | None = None
) -> Due:
    """Return whether a patch's expiry condition is met at the release `tag`, and why."""
    if expiry.release is None:
        come = True if expiry.pull_request in merged else None
        why = "the patch's history says so" if come else "only GitHub can tell; see its page"
        return Due(condition=f"{expiry.pull_request} is merged", come=come, why=why)
    condition = f"release {expiry.release}"
    if tag == expiry.release:
        return Due(condition=condition, come=True, why="this is it")
    try:
        now, then = (
            Version((releases and releases.version_of(name)) or name)
            for name in (tag, expiry.release)
        )
    except InvalidVersion:
        why = f"{tag} and {expiry.release} are not both versions"
        return Due(condition=condition, come=None, why=why)
    place = "at or after" if now >= then else "before"
    return Due(condition=condition, come=now >= then, why=f"{tag} is {place} it")
