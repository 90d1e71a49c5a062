"""Writing the pinned requirement: what is installed here, with the digests of its wheels."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from importlib import metadata
from typing import Final
from urllib.parse import unquote, urlsplit

from packaging.requirements import Requirement
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import Version

from contribbot.errors import SourceError, UsageError
from contribbot.git.package_index import (
    Connection,
    PipConfig,
    connect,
    read_listing,
    read_pip_config,
)
from contribbot.queue.load import Queue
from contribbot.queue.transaction import transaction
from contribbot.runners.requirements import REQUIREMENTS

_OURS: Final = "contribbot"
#: What a runner's image brings, and keeps: ROCm's own builds. pip comes with Python.
LEFT_OUT: Final = frozenset({"torch", "triton", "pip"})
_WHEEL: Final = re.compile(r"(https://\S+\.whl)#sha256=([0-9a-f]{64})")
_HEAD: Final = """\
# What runners install, nothing else and nothing newer: `contribbot workflows pin` wrote it.
# torch and triton are not in it: those of the runner's image stay.
"""


#: The name of a distribution, and which of its extras are asked for.
_Asked = tuple[str, frozenset[str]]


def pin(queue: Queue, *, ours: str = "") -> tuple[str, ...]:
    """Write the pinned requirement of a queue."""
    wheel = _checked_wheel(ours) if ours else None
    needed = needs()
    config = read_pip_config()
    rows = []
    with connect(config) as connection:
        for name, version in needed.items():
            if name == _OURS and wheel:
                rows.append(_row(f"{name} @ {wheel[1]}", [wheel[2]]))
                continue
            rows.append(_row(f"{name}=={version}", digests(name, version, config, connection)))
    with transaction(queue.folder) as changes:
        changes.write(REQUIREMENTS, (_HEAD + "".join(rows)).encode())
    return tuple(f"{name} {version}" for name, version in needed.items())


def _checked_wheel(ours: str) -> re.Match[str]:
    """Refuse an address that runners could not install from, or that nobody else may read."""
    try:
        netloc = urlsplit(ours).netloc
    except ValueError as error:
        raise UsageError(
            f"--contribbot {ours}: no address: {error}", hint="write it as https://HOST/PATH"
        ) from error
    if "@" in netloc:
        raise UsageError(
            "--contribbot: a password in the address, and the file is committed",
            hint="publish the wheel where runners reach it without one",
        )
    wheel = _WHEEL.fullmatch(ours)
    if wheel is None:
        raise UsageError(
            f"--contribbot {ours}: not https://….whl#sha256=… with 64 hexadecimal digits",
            hint="sha256sum FILE shows the digest of a wheel",
        )
    file = _file_of(wheel[1])
    hint = f"pip takes what is named as {_OURS}-{metadata.version(_OURS)}-py3-none-any.whl"
    try:
        name, *_ = parse_wheel_filename(file)
    except InvalidWheelFilename as error:
        raise UsageError(f"--contribbot: {file} is no name of a wheel", hint=hint) from error
    if name != _OURS:
        raise UsageError(f"--contribbot: its name says that it is {name}, not {_OURS}", hint=hint)
    return wheel


def _file_of(url: str) -> str:
    return unquote(urlsplit(url).path).rpartition("/")[2]


def wheel_note(url: str) -> str:
    """Say where the name of contribbot's own wheel tells another version than is installed here.

    All that contribbot needs is pinned as it is installed here: another version of it may need
    something else, and runners would tell so only when they install it. The wheel itself is not
    opened.
    """
    if not url:
        return ""
    _, version, _, _ = parse_wheel_filename(_file_of(url))
    here = metadata.version(_OURS)
    if version != Version(here):
        return (f"--contribbot: its name says {version}, and {here} is what pinned it: what it "
                "needs is pinned as this one needs it")  # fmt: skip
    return ""


def needs() -> dict[str, str]:
    """Return contribbot and all that it needs, with the versions that are installed, by name."""
    found: dict[str, str] = {}
    seen: set[_Asked] = set()
    waiting: list[_Asked] = [(_OURS, frozenset())]
    while waiting:
        name, extras = asked = waiting.pop()
        if asked in seen or name in LEFT_OUT:
            continue
        seen.add(asked)
        try:
            one = metadata.distribution(name)
        except metadata.PackageNotFoundError as error:
            raise SourceError(
                f"{name}: needed and not installed here", hint="python -m pip check"
            ) from error
        found[name] = one.version
        waiting += _required(one.requires or (), extras)
    return dict(sorted(found.items()))


def _required(lines: Sequence[str], extras: frozenset[str]) -> Iterator[_Asked]:
    """Give what a distribution requires here, also for some of its extras."""
    for line in lines:
        one = Requirement(line)
        if one.marker is None or any(one.marker.evaluate({"extra": extra})
                                     for extra in ("", *extras)):  # fmt: skip
            yield canonicalize_name(one.name), frozenset(one.extras)


def digests(name: str, version: str, config: PipConfig, connection: Connection) -> list[str]:
    """Return the SHA-256 of every wheel of a release: other Pythons take other wheels."""
    listing = read_listing(name, config, connection)
    announced = {
        file.sha256
        for file in listing.files
        if file.tags and Version(file.version) == Version(version) and file.sha256
    }
    if not announced:
        ours = "; name its wheel with --contribbot" if name == _OURS else ""
        raise SourceError(
            f"{name} {version}: no place announces the digest of a wheel: {listing.places}",
            hint=f"see which indexes `pip config list` names{ours}",
        )
    return sorted(announced)


def _row(requirement: str, hashes: Sequence[str]) -> str:
    return " \\\n    ".join([requirement, *(f"--hash=sha256:{one}" for one in hashes)]) + "\n"
