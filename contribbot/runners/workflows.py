"""The workflows of a queue, from templates, sealed: what a person changed stays."""

from __future__ import annotations

import difflib
import enum
import hashlib
import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import Version
from pydantic import Field

import contribbot
from contribbot import process
from contribbot.errors import CommandError, QueueError, SourceError, UsageError
from contribbot.git.package_index import PipConfig, read_listing, read_pip_config
from contribbot.model.base import Model
from contribbot.queue.load import Queue
from contribbot.queue.transaction import transaction
from contribbot.run_folder import run_folder
from contribbot.runners.documents import load_fleet


class Standing(enum.StrEnum):
    """How a workflow of a queue compares with what it shall be."""

    CURRENT = "current"
    MISSING = "missing"
    OUTDATED = "outdated"
    EDITED = "changed by hand"


class Workflow(Model):
    """One workflow."""

    path: str
    standing: Standing
    diff: tuple[str, ...] = ()
    wanted: str = Field(exclude=True, repr=False)


class Workflows(Model):
    """What `contribbot runners workflows install --json` says."""

    written: bool
    workflows: tuple[Workflow, ...]


#: Where jobs that have a token run, and all others of a queue without hosted runners.
GITHUBS_OWN: Final = "ubuntu-24.04"
#: The file, in the queue's folder: what pip installs, each by version and digest.
REQUIREMENTS: Final = ".github/contribbot-requirements.txt"
_OURS: Final = "contribbot"

#: A wheel beside the workflows: where, and its digest.
_BESIDE: Final = re.compile(
    r"\./(\.github/contribbot-[A-Za-z0-9._+-]+\.whl)[\s\\]+--hash=sha256:([0-9a-f]{64})"
)
#: A comment, as pip sees it; a requirement, on all its lines.
_COMMENT: Final = re.compile(r"(?:^|[ \t]+)#.*$", re.MULTILINE)
_LINES: Final = re.compile(r"(?:.*\\\n)*.+")
_HASHES: Final = re.compile(r"sha256:[0-9a-f]{64}(?: --hash=sha256:[0-9a-f]{64})*")
_HINT: Final = "write it with `contribbot runners workflows pin`"


def check_requirements(folder: Path) -> None:
    """Refuse a pinned requirement with which a runner could install something else."""
    path = folder / REQUIREMENTS
    try:
        text = _COMMENT.sub("", path.read_text(encoding="utf-8"))
    except (FileNotFoundError, UnicodeDecodeError) as error:
        why = "no such file" if isinstance(error, FileNotFoundError) else "not UTF-8"
        raise QueueError(
            f"{path}: {why}: runners would not know which contribbot to install", hint=_HINT
        ) from error
    names = set()
    for match in _LINES.finditer(text):
        line = " ".join(match[0].replace("\\\n", " ").split())
        where = f"{path}:{text.count(chr(10), 0, match.start()) + 1}"
        if beside := _BESIDE.fullmatch(line):
            _check_beside(folder / beside[1], beside[2])
            names.add(_OURS)
        elif line:
            names.add(_pinned_name(where, line))
    if _OURS not in names:
        raise QueueError(f"{path}: contribbot is not in it", hint=_HINT)


def _pinned_name(where: str, line: str) -> str:
    """Return the name of a requirement of one version, or at one address, with its digests."""
    head, _, hashes = line.partition(" --hash=")
    try:
        requirement = Requirement(head)
        exact = re.fullmatch(r"==[^*,]+", str(requirement.specifier)) or requirement.url
    except InvalidRequirement:
        exact = None
    if not exact:
        raise QueueError(f"{where}: not one package with its version: {line[:60]}", hint=_HINT)
    if not _HASHES.fullmatch(hashes):
        raise QueueError(f"{where}: no --hash=sha256:…: {line[:60]}", hint=_HINT)
    return canonicalize_name(requirement.name)


def _check_beside(path: Path, sha256: str) -> None:
    """Refuse a wheel beside the workflows that is not there, or not the one that is pinned."""
    if not path.is_file():
        raise QueueError(f"{path}: no such file, and runners install it", hint=_HINT)
    if hashlib.sha256(path.read_bytes()).hexdigest() != sha256:
        raise QueueError(f"{path}: not the wheel that {REQUIREMENTS} names", hint=_HINT)


FOLDER: Final = ".github/workflows"
_NAMES: Final = ("verify.yml", "rebase.yml", "open-pr.yml", "emulate.yml")
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
    if branch and not _BRANCH.fullmatch(branch):
        raise UsageError(
            f"--branch {branch}: no push to it would start verify.yml, as GitHub reads it",
            hint="name it as in release/2.1: letters, digits and - _ . / and no refs/heads/",
        )
    hosted = load_fleet(queue.folder).runners.hosted
    check_requirements(queue.folder)
    labels = ", ".join(map(_word, hosted.labels if hosted else (GITHUBS_OWN,)))
    values = {
        "hosted": f"[{labels}]" if "," in labels else labels,
        "count": str(hosted.count if hosted else 1),
    }
    return tuple(_compare(queue.folder, name, values, branch) for name in _NAMES)


def install(queue: Queue, *, branch: str = "", force: bool = False) -> tuple[Workflow, ...]:
    """Write the workflows of a queue, all of them or none."""
    with transaction(queue.folder) as changes:
        workflows = look(queue, branch=branch)
        edited = [each.path for each in workflows if each.standing is Standing.EDITED]
        if edited and not force:
            raise UsageError(
                f"{', '.join(edited)}: changed by hand, and nothing was written",
                hint="see what differs with `contribbot runners workflows install --check`; "
                "give the changes up with --force",
            )
        for workflow in workflows:
            changes.write(workflow.path, workflow.wanted.encode())
    return workflows


def templates_folder() -> Path:
    """Return the folder of the templates: in the package, or beside it in a work tree."""
    package = Path(contribbot.__file__).parent
    packed = package / "workflows"
    return packed if packed.is_dir() else package.parent / "workflows"


def sealed(text: str) -> str:
    """Return a workflow with its seal before it."""
    return f"# Written by `contribbot runners workflows install`; {_seal(text)}\n{text}"


def _seal(text: str) -> str:
    return f"seal {hashlib.sha256(text.encode()).hexdigest()}"


def _compare(folder: Path, name: str, known: Mapping[str, str], branch: str) -> Workflow:
    path = f"{FOLDER}/{name}"
    # What cannot be read as text is not ours, and a difference can be shown all the same.
    file = folder / path
    current = file.read_bytes().decode("utf-8", "replace") if file.is_file() else None
    # The branch stays that which an installed workflow names, where it names just one.
    named = [match[2].strip('[]"') for match in _MARKED.finditer(current or "")
             if match[4] == "branch"]  # fmt: skip
    branch = branch or next(filter(_BRANCH.fullmatch, named), "main")
    values = {**known, "branch": f"[{_word(branch)}]"}
    template = (templates_folder() / name).read_text(encoding="utf-8")
    wanted = sealed(_MARKED.sub(lambda match: f"{match[1]}{values[match[4]]}{match[3]}", template))
    if current is None:
        standing = Standing.MISSING
    elif current == wanted:
        standing = Standing.CURRENT
    else:
        # Whether it is as contribbot wrote it, this release or an earlier one.
        first, _, text = current.partition("\n")
        untouched = first.startswith("# Written by ") and first.endswith(f"; {_seal(text)}")
        standing = Standing.OUTDATED if untouched else Standing.EDITED
    before = "/dev/null" if current is None else f"a/{path}"
    diff = list(difflib.unified_diff((current or "").splitlines(), wanted.splitlines(), before,
                                     f"b/{path}", lineterm=""))  # fmt: skip
    if not diff and standing is not Standing.CURRENT:
        diff = [f"{path}: the same words, with other line ends"]
    return Workflow(path=path, standing=standing, wanted=wanted, diff=tuple(diff))


def _word(text: str) -> str:
    """Return a label or a branch as YAML, in which it stays a word."""
    plain = _PLAIN.fullmatch(text) and text.casefold() not in _NO_WORDS
    return text if plain else f'"{text}"'


def _check_place(folder: Path) -> None:
    """Refuse a queue in which GitHub, which reads what git keeps at the top, sees no workflow."""
    top = next(
        (each for each in (folder, *folder.absolute().parents) if (each / ".git").exists()), None
    )
    if top is not None and top.resolve() != folder.resolve():
        raise UsageError(
            f"{folder}: not the top of its repository, which is {top}",
            hint="GitHub reads workflows only there: give the queue a repository of its own",
        )
    folders = [folder / ".github", folder / FOLDER]
    for path in (*folders, *(folder / FOLDER / name for name in _NAMES)):
        file = path in folders and path.exists() and not path.is_dir()
        if path.is_symlink() or file:
            what = "a file, where a folder belongs" if file else "a link, and git keeps no more"
            raise QueueError(f"{path}: {what}", hint="put a real one in its place")


#: What a runner's image brings, and keeps: ROCm's own builds. pip comes with Python.
LEFT_OUT: Final = frozenset({"torch", "triton", "pip"})
_WHEEL: Final = re.compile(
    r"(?P<address>https://[^\s/\[\]]+(?P<path>/\S+\.whl))#sha256=(?P<sha256>[0-9a-f]{64})"
)
_HEAD: Final = """\
# What runners install, nothing else and nothing newer: `contribbot runners workflows pin` wrote it.
# torch and triton are not in it: those of the runner's image stay.
"""


class Pinned(Model):
    """What `runners workflows pin --json` prints; `wheel`: contribbot's own, if it is there."""

    packages: int
    wheel: str = ""
    note: str = ""


def pin(queue: Queue, *, ours: str = "") -> Pinned:
    """Write the pinned requirement; contribbot from a folder or file becomes a wheel beside it."""
    own = _checked_wheel(ours) if ours else None
    needed, place = needs(), None if own else _installed_from()
    config = read_pip_config()
    rows = {
        name: _row(f"{name}=={version}", digests(name, version, config))
        for name, version in needed.items()
        if name != _OURS or not (own or place)
    }
    wheel, content = "", b""
    if place:
        name, content = _wheel_of(place)
        wheel = f".github/{name}"
        own = f"./{wheel}", hashlib.sha256(content).hexdigest(), ""
    if own:
        rows[_OURS] = _row(own[0], [own[1]])
    with transaction(queue.folder) as changes:
        before = changes.read(REQUIREMENTS) or b""
        for old in _BESIDE.finditer(before.decode("utf-8", "replace")):
            if old[1] != wheel and (queue.folder / old[1]).is_file():
                changes.delete(old[1])
        if wheel:
            changes.write(wheel, content)
        changes.write(REQUIREMENTS, (_HEAD + "".join(rows[name] for name in needed)).encode())
    return Pinned(packages=len(needed), wheel=wheel, note=own[2] if own else "")


def _installed_from() -> Path | None:
    """Return the folder or wheel that contribbot was installed from (PEP 610); None: an index."""
    text = metadata.distribution(_OURS).read_text("direct_url.json")
    url = urlsplit(json.loads(text).get("url", "")) if text else None
    return Path(unquote(url.path)) if url and url.scheme == "file" else None


def _wheel_of(place: Path) -> tuple[str, bytes]:
    """Return the name and the content of a wheel: the file itself, or made of a folder."""
    if place.is_file():
        return place.name, place.read_bytes()
    kept = {name: value for name, value in os.environ.items()
            if name.startswith(("PIP_", "XDG_CONFIG")) or name == "HOME"}  # fmt: skip
    with run_folder() as scratch:
        try:
            process.run(
                [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-cache-dir",
                 "--wheel-dir", scratch, place],
                env=process.clean_environment(kept), timeout=300.0, tethered=True,
            )  # fmt: skip
            (wheel,) = scratch.glob("contribbot-*.whl")
        except (CommandError, ValueError) as error:
            raise SourceError(
                f"{place}: no wheel can be made of it",
                hint=f"python -m pip wheel --no-deps {place} must work; or name a wheel with "
                "--contribbot",
            ) from error
        return wheel.name, wheel.read_bytes()


def _checked_wheel(ours: str) -> tuple[str, str, str]:
    """Return requirement, digest and note of a wheel at an address; it is not opened."""
    if "@" in ours.partition("://")[2].partition("/")[0]:
        raise UsageError(
            "--contribbot: a password in the address, and the file is committed",
            hint="publish the wheel where runners reach it without one",
        )
    wheel = _WHEEL.fullmatch(ours)
    if wheel is None:
        raise UsageError(
            f"--contribbot {ours}: not https://HOST/….whl#sha256=… with 64 hexadecimal digits",
            hint="sha256sum FILE shows the digest of a wheel",
        )
    here = metadata.version(_OURS)
    file = unquote(wheel["path"]).rpartition("/")[2]
    try:
        name, version, _, _ = parse_wheel_filename(file)
        why = "" if name == _OURS else f"its name says that it is {name}, not {_OURS}"
    except InvalidWheelFilename:
        why = f"{file} is no name of a wheel"
    if why:
        hint = f"pip takes what is named as {_OURS}-{here}-py3-none-any.whl"
        raise UsageError(f"--contribbot: {why}", hint=hint)
    note = (f"--contribbot: its name says {version}, and {here} is what pinned it: what it "
            "needs is pinned as this one needs it")  # fmt: skip
    same = version == Version(here)
    return f"{_OURS} @ {wheel['address']}", wheel["sha256"], "" if same else note


def needs() -> dict[str, str]:
    """Return contribbot and all that it needs, with the versions that are installed, by name."""
    versions: dict[str, str] = {}
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
        versions[name] = distribution.version
        for line in map(Requirement, distribution.requires or ()):
            markers = ({"extra": extra} for extra in ("", *extras))
            if line.marker is None or any(map(line.marker.evaluate, markers)):
                waiting.append((canonicalize_name(line.name), frozenset(line.extras)))
    return dict(sorted(versions.items()))


def digests(name: str, version: str, config: PipConfig) -> list[str]:
    """Return the SHA-256 of every wheel of a release: other Pythons take other wheels."""
    listing = read_listing(name, config)
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
    return " \\\n    ".join([requirement, *(f"--hash=sha256:{each}" for each in hashes)]) + "\n"
