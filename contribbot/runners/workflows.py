"""The workflows of a queue: made from templates, put into `.github/workflows/`, and compared.

A file that is written begins with a seal over the rest of it. A file whose seal holds is
contribbot's, and is replaced when its template or `runners.toml` has changed. Any other was
changed by a person, and stays until that person says otherwise.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from packaging.requirements import Requirement
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import Version

import contribbot
from contribbot import process
from contribbot.errors import CommandError, QueueError, SourceError, UsageError
from contribbot.files import run_folder
from contribbot.git.package_index import (
    Connection,
    PipConfig,
    connect,
    read_listing,
    read_pip_config,
)
from contribbot.queue.load import Queue
from contribbot.queue.transaction import transaction
from contribbot.runners.config import GITHUBS_OWN, load_fleet
from contribbot.runners.model import Standing, Workflow

#: The file, in the queue's folder: what pip installs, each by version and digest.
REQUIREMENTS: Final = ".github/contribbot-requirements.txt"
_OURS: Final = "contribbot"

_PINNED: Final = re.compile(
    r"^[A-Za-z0-9][A-Za-z0-9._-]*(?:\[[^]]*\])?\s*(?:==\s*[^\s*;]+|@\s*\S+)(?=\s|;|$)"
)
_HASH: Final = re.compile(r"\s--hash=sha256:[0-9a-f]{64}(?=\s|$)")
#: A wheel beside the workflows: where, and its digest.
_BESIDE: Final = re.compile(
    r"\./(\.github/contribbot-[A-Za-z0-9._+-]+\.whl)[\s\\]+--hash=sha256:([0-9a-f]{64})"
)
#: A comment, as pip sees it.
_COMMENT: Final = re.compile(r"(?:^|\s+)#.*$")
_HINT: Final = "write it with `contribbot workflows pin`"


def check_requirements(folder: Path) -> None:
    """Refuse a pinned requirement with which a runner could install something else."""
    path = folder / REQUIREMENTS
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise QueueError(
            f"{path}: no such file: runners would not know which contribbot to install", hint=_HINT
        ) from None
    except UnicodeDecodeError as error:
        raise QueueError(f"{path}: not UTF-8", hint=_HINT) from error
    names = set()
    for line, requirement in _logical(text):
        if beside := _BESIDE.fullmatch(requirement):
            _check_wheel(folder / beside[1], beside[2])
            names.add(_OURS)
            continue
        if not _PINNED.match(requirement):
            raise QueueError(
                f"{path}:{line}: not one package with its version: {requirement[:60]}", hint=_HINT
            )
        if not _HASH.search(requirement):
            raise QueueError(f"{path}:{line}: no --hash=sha256:…: {requirement[:60]}", hint=_HINT)
        names.add(re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0].lower())
    if _OURS not in names:
        raise QueueError(f"{path}: contribbot is not in it", hint=_HINT)


def _check_wheel(path: Path, sha256: str) -> None:
    """Refuse a wheel beside the workflows that is not there, or not the one that is pinned."""
    if not path.is_file():
        raise QueueError(f"{path}: no such file, and runners install it", hint=_HINT)
    if hashlib.sha256(path.read_bytes()).hexdigest() != sha256:
        raise QueueError(f"{path}: not the wheel that {REQUIREMENTS} names", hint=_HINT)


def _logical(text: str) -> Iterator[tuple[int, str]]:
    """Give each requirement on one line, with the number of the line that it begins on."""
    parts: list[str] = []
    first = 0
    for number, row in enumerate(text.splitlines(), start=1):
        line = _COMMENT.sub("", row).strip()
        if not parts:
            first = number
        parts.append(line.removesuffix("\\").strip())
        if line.endswith("\\"):
            continue
        joined = " ".join(filter(None, parts))
        parts = []
        if joined:
            yield first, joined
    if any(parts):
        yield first, " ".join(filter(None, parts))


#: Where GitHub looks for workflows, in a repository.
FOLDER: Final = ".github/workflows"
_NAMES: Final = ("verify.yml", "rebase.yml", "open-pr.yml")
_SEAL: Final = re.compile(r"# Written by `contribbot workflows install`; seal ([0-9a-f]{64})\n")
#: What ends a line of a template that is filled in, and the part that is.
_MARKED: Final = re.compile(r"^( *[a-z-]+: )(\S.*?)( # filled in: ([a-z]+))$", re.MULTILINE)
#: Branches that GitHub's filter takes as they stand; in others it sees a pattern.
_BRANCH: Final = re.compile(r"(?!refs/)[A-Za-z0-9_][A-Za-z0-9_-]*(?:[./][A-Za-z0-9_-]+)*")
#: What YAML leaves a word, without quotes: nothing that begins as a number or a date does.
_PLAIN: Final = re.compile(r"[A-Za-z][A-Za-z0-9._/-]*")
#: What it does not, in one of its versions.
_NO_WORDS: Final = frozenset({"true", "false", "yes", "no", "on", "off", "y", "n", "null"})


def look(queue: Queue, *, branch: str = "") -> tuple[Workflow, ...]:
    """Compare the workflows of a queue with what they shall be."""
    _check_place(queue.folder)
    _check_way(queue.folder)
    labels = _hosted_labels(queue.folder)
    check_requirements(queue.folder)
    return tuple(_compare(queue.folder, name, labels, branch) for name in _NAMES)


def install(queue: Queue, *, branch: str = "", force: bool = False) -> tuple[Workflow, ...]:
    """Write the workflows of a queue, all of them or none."""
    with transaction(queue.folder) as changes:
        found = look(queue, branch=branch)
        edited = [one.path for one in found if one.standing is Standing.EDITED]
        if edited and not force:
            raise UsageError(
                f"{', '.join(edited)}: changed by hand, and nothing was written",
                hint="see what differs with `contribbot workflows install --check`; "
                "give the changes up with --force",
            )
        for one in found:
            changes.write(one.path, one.wanted.encode())
    return found


def templates_folder() -> Path:
    """Return the folder of the templates: in the package, or beside it in a work tree."""
    package = Path(contribbot.__file__).parent
    packed = package / "workflows"
    return packed if packed.is_dir() else package.parent / "workflows"


def fill(template: str, filled: dict[str, str]) -> str:
    """Return a template with each marked value replaced."""
    return _MARKED.sub(lambda one: f"{one[1]}{filled[one[4]]}{one[3]}", template)


def sealed(text: str) -> str:
    """Return a workflow with its seal before it."""
    digest = hashlib.sha256(text.encode()).hexdigest()
    return f"# Written by `contribbot workflows install`; seal {digest}\n{text}"


def is_untouched(text: str) -> bool:
    """Say whether a file is as contribbot wrote it."""
    seal = _SEAL.match(text)
    if seal is None:
        return False
    return hashlib.sha256(text[seal.end() :].encode()).hexdigest() == seal[1]


def _compare(folder: Path, name: str, labels: Sequence[str], branch: str) -> Workflow:
    path = f"{FOLDER}/{name}"
    place = folder / path
    # What cannot be read as text is not ours, and a difference can be shown all the same.
    there = place.read_bytes().decode("utf-8", "replace") if place.is_file() else None
    template = (templates_folder() / name).read_text(encoding="utf-8")
    hosted = [_word(label) for label in labels]
    values = {
        "hosted": hosted[0] if len(hosted) == 1 else f"[{', '.join(hosted)}]",
        "branch": f"[{_word(_checked_branch(branch) or _branch_in(there or '') or 'main')}]",
    }
    wanted = sealed(fill(template, values))
    if there is None:
        standing = Standing.MISSING
    elif there == wanted:
        standing = Standing.CURRENT
    else:
        standing = Standing.OUTDATED if is_untouched(there) else Standing.EDITED
    return Workflow(
        path=path, standing=standing, wanted=wanted, diff=_difference(path, there, wanted)
    )


def _difference(path: str, there: str | None, wanted: str) -> tuple[str, ...]:
    """Return what installing would change, as a unified diff."""
    before = [] if there is None else there.splitlines()
    rows = difflib.unified_diff(
        before,
        wanted.splitlines(),
        "/dev/null" if there is None else f"a/{path}",
        f"b/{path}",
        lineterm="",
    )
    found = tuple(rows)
    if not found and there not in {None, wanted}:
        return (f"{path}: the same words, with other line ends",)
    return found


def _branch_in(text: str) -> str:
    """Return the branch that an installed workflow names; empty where it names not just one."""
    for one in _MARKED.finditer(text):
        branch = one[2].strip('[]"')
        if one[4] == "branch" and _BRANCH.fullmatch(branch):
            return branch
    return ""


def _checked_branch(branch: str) -> str:
    if branch and not _BRANCH.fullmatch(branch):
        raise UsageError(
            f"--branch {branch}: no push to it would start verify.yml, as GitHub reads it",
            hint="name it as in release/2.1: letters, digits and - _ . / and no refs/heads/",
        )
    return branch


def _word(text: str) -> str:
    """Return a label or a branch as YAML, in which it stays a word."""
    plain = _PLAIN.fullmatch(text) and text.casefold() not in _NO_WORDS
    return text if plain else f'"{text}"'


def _check_place(folder: Path) -> None:
    """Refuse a queue that is not the top of its repository: GitHub looks only there."""
    top = next(
        (one for one in (folder, *folder.absolute().parents) if (one / ".git").exists()), None
    )
    if top is not None and top.resolve() != folder.resolve():
        raise UsageError(
            f"{folder}: not the top of its repository, which is {top}",
            hint="GitHub reads workflows only there: give the queue a repository of its own",
        )


def _check_way(folder: Path) -> None:
    """Refuse what is in the way: through a link git, and so GitHub, sees no workflow."""
    folders = [folder / ".github", folder / FOLDER]
    for place in (*folders, *(folder / FOLDER / name for name in _NAMES)):
        if place.is_symlink():
            raise QueueError(
                f"{place}: a link, of which git keeps where it leads and no workflow",
                hint="put a real one in its place",
            )
    for place in folders:
        if place.exists() and not place.is_dir():
            raise QueueError(f"{place}: a file, where a folder belongs", hint="move it away")


def _hosted_labels(folder: Path) -> Sequence[str]:
    """Return the labels of the runners that compile."""
    hosted = load_fleet(folder).runners.hosted
    return hosted.labels if hosted else (GITHUBS_OWN,)


#: What a runner's image brings, and keeps: ROCm's own builds. pip comes with Python.
LEFT_OUT: Final = frozenset({"torch", "triton", "pip"})
_WHEEL: Final = re.compile(r"(https://\S+\.whl)#sha256=([0-9a-f]{64})")
_HEAD: Final = """\
# What runners install, nothing else and nothing newer: `contribbot workflows pin` wrote it.
# torch and triton are not in it: those of the runner's image stay.
"""


@dataclass(frozen=True)
class Pinned:
    """What runners install; `wheel` is where contribbot's own lies, if beside the workflows."""

    packages: tuple[str, ...]
    wheel: str = ""
    note: str = ""


def pin(queue: Queue, *, ours: str = "") -> Pinned:
    """Write the pinned requirement of a queue.

    Where contribbot is installed here from a folder (a checkout) or from a wheel's file, that is
    what runners get: a wheel of it lies beside the workflows. Else it is that of a package index.
    """
    address = _checked_wheel(ours) if ours else None
    needed = needs()
    place = None if address else _installed_from()
    config = read_pip_config()
    with connect(config) as connection:
        rows = {
            name: _row(f"{name}=={version}", digests(name, version, config, connection))
            for name, version in needed.items()
            if name != _OURS or not (address or place)
        }
    wheel, content = "", b""
    if address:
        rows[_OURS] = _row(f"{_OURS} @ {address[0]}", [address[1]])
    elif place:
        name, content = _wheel_of(place)
        wheel = f".github/{name}"
        rows[_OURS] = _row(f"./{wheel}", [hashlib.sha256(content).hexdigest()])
    with transaction(queue.folder) as changes:
        before = changes.read(REQUIREMENTS) or b""
        for old in _BESIDE.finditer(before.decode("utf-8", "replace")):
            if old[1] != wheel and (queue.folder / old[1]).is_file():
                changes.delete(old[1])
        if wheel:
            changes.write(wheel, content)
        changes.write(REQUIREMENTS, (_HEAD + "".join(rows[name] for name in needed)).encode())
    packages = tuple(f"{name} {version}" for name, version in needed.items())
    return Pinned(packages, wheel, address[2] if address else "")


def _installed_from() -> Path | None:
    """Return the folder or wheel that contribbot was installed from (PEP 610); None: an index."""
    text = metadata.distribution(_OURS).read_text("direct_url.json")
    url = urlsplit(json.loads(text).get("url", "")) if text else None
    return Path(unquote(url.path)) if url and url.scheme == "file" else None


def _wheel_of(place: Path) -> tuple[str, bytes]:
    """Return the name and the content of a wheel: the file itself, or made of a folder."""
    if place.is_file():
        return place.name, place.read_bytes()
    hint = f"python -m pip wheel --no-deps {place} must work; or name a wheel with --contribbot"
    kept = {name: value for name, value in os.environ.items()
            if name.startswith(("PIP_", "XDG_CONFIG")) or name == "HOME"}  # fmt: skip
    with run_folder() as scratch:
        try:
            process.run(
                [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-cache-dir",
                 "--wheel-dir", scratch, place],
                env=process.clean_environment(kept), timeout=300.0, tethered=True,
            )  # fmt: skip
        except CommandError as error:
            raise SourceError(f"{place}: no wheel can be made of it", hint=hint) from error
        made = list(scratch.glob("contribbot-*.whl"))
        if len(made) != 1:
            raise SourceError(f"{place}: no wheel can be made of it", hint=hint)
        return made[0].name, made[0].read_bytes()


def _checked_wheel(ours: str) -> tuple[str, str, str]:
    """Return address, digest and note of a wheel that runners can install and others may read.

    All that contribbot needs is pinned as it is installed here: another version of it may need
    something else, which is noted. The wheel itself is not opened.
    """
    try:
        parts = urlsplit(ours)
    except ValueError as error:
        raise UsageError(
            f"--contribbot {ours}: no address: {error}", hint="write it as https://HOST/PATH"
        ) from error
    if "@" in parts.netloc:
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
    here = metadata.version(_OURS)
    file = unquote(parts.path).rpartition("/")[2]
    hint = f"pip takes what is named as {_OURS}-{here}-py3-none-any.whl"
    try:
        name, version, _, _ = parse_wheel_filename(file)
    except InvalidWheelFilename as error:
        raise UsageError(f"--contribbot: {file} is no name of a wheel", hint=hint) from error
    if name != _OURS:
        raise UsageError(f"--contribbot: its name says that it is {name}, not {_OURS}", hint=hint)
    note = (f"--contribbot: its name says {version}, and {here} is what pinned it: what it "
            "needs is pinned as this one needs it")  # fmt: skip
    return wheel[1], wheel[2], "" if version == Version(here) else note


def needs() -> dict[str, str]:
    """Return contribbot and all that it needs, with the versions that are installed, by name."""
    found: dict[str, str] = {}
    done: set[tuple[str, frozenset[str]]] = set()
    waiting = [(_OURS, frozenset[str]())]
    while waiting:
        name, extras = asked = waiting.pop()
        if asked in done or name in LEFT_OUT:
            continue
        done.add(asked)
        try:
            distribution = metadata.distribution(name)
        except metadata.PackageNotFoundError as error:
            raise SourceError(
                f"{name}: needed and not installed here", hint="python -m pip check"
            ) from error
        found[name] = distribution.version
        for line in map(Requirement, distribution.requires or ()):
            markers = ({"extra": extra} for extra in ("", *extras))
            if line.marker is None or any(map(line.marker.evaluate, markers)):
                waiting.append((canonicalize_name(line.name), frozenset(line.extras)))
    return dict(sorted(found.items()))


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
