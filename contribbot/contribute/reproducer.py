"""A fault shown with nothing of contribbot: a script, the files it needs, a report."""

from __future__ import annotations

import ast
import os
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from contribbot.contribute.figures import Evidence, Figure, gather
from contribbot.contribute.markdown import code, fence, plain, prose
from contribbot.errors import UsageError
from contribbot.files import write_atomically
from contribbot.model.checks import Check
from contribbot.model.patch import Patch, PatchFile
from contribbot.model.pin import GitSource, InstalledSource, WheelSource
from contribbot.queue.load import Queue

_OURS: Final = "contribbot"


def needed_files(support: tuple[PatchFile, ...], start: str) -> tuple[PatchFile, ...]:
    """Return a check file with the files beside it that it imports, directly or not."""
    known = {file.name: file for file in support}
    wanted = [start, *(["conftest.py"] if "conftest.py" in known else [])]
    found: dict[str, PatchFile] = {}
    while wanted:
        name = wanted.pop()
        if name in found or name not in known:
            continue
        found[name] = known[name]
        for module in imported(known[name].content):
            path = module.replace(".", "/")
            wanted += [f"{path}.py", f"{path}/__init__.py", f"{path.partition('/')[0]}/__init__.py"]
    # What is no Python file is read by name, which nobody can follow.
    data = [file for file in support if not file.name.endswith((".py", ".cpp", ".cu", ".hip"))]
    return (*found.values(), *data)


def name_any(files: tuple[PatchFile, ...], paths: Iterable[str]) -> bool:
    """Say whether one of some files names one of the upstream's files, by name without suffix."""
    stems = [PurePosixPath(path).stem.encode() for path in paths]
    return any(stem in file.content for file in files for stem in stems)


def imported(content: bytes) -> list[str]:
    """Return the names of the modules that a Python file may import."""
    names: list[str] = []
    for node in ast.walk(ast.parse(content)):
        if isinstance(node, ast.Import):
            names += [one.name for one in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names += [node.module, *(f"{node.module}.{one.name}" for one in node.names)]
    return names


def needs_contribbot(files: tuple[PatchFile, ...]) -> bool:
    """Say whether one of some files imports contribbot."""
    return any(
        module.partition(".")[0] == _OURS
        for file in files
        if file.name.endswith(".py")
        for module in imported(file.content)
    )


#: The script beside the report.
SCRIPT: Final = "reproduce.sh"


def fault_report(
    evidence: Evidence, figure: Figure, check: Check, needed: tuple[PatchFile, ...]
) -> str:
    """Return the report of a fault that a check shows, for an upstream's issue (Markdown)."""
    patch = evidence.patch
    below = ", ".join(map(code, evidence.below))
    total = figure.failed + len(figure.facts.base.passed)
    told = (
        f"Seen with {patch.upstream.repository} at {code(patch.pin.tag)}"
        f"{f' with {below} applied' if below else ''}, on {figure.target}: "
        f"{figure.failed} of {total} tests of {code(check.file)} fail. "
        f"The first, {code(figure.facts.base.failed[0].test)}:"
    )
    contribution = patch.spec.contribution
    commands = [
        f"python -m pip install {' '.join(_requirements(patch, figure, needed))}",
        f"sh {SCRIPT}",
        *_by_hand(patch, check),
    ]
    paragraphs = [
        "## What happens",
        prose(patch.spec.problem),
        told,
        fence(figure.message),
        "## How to see it",
        "With the files beside this report:",
        fence("\n".join(commands), language="sh"),
        "\n".join(f"- {code('checks/' + file.name)}: {_first_line(file)}" for file in needed),
        "## Why",
        prose(patch.spec.root_cause),
        "## Where it was seen",
        _where(figure, contribution.records),
        *_not_run(evidence),
        *([f"**Use of AI.** {prose(contribution.ai)}"] if contribution.ai else []),
    ]
    return "\n\n".join(paragraphs) + "\n"


def _where(figure: Figure, records: str) -> str:
    """Name the machine, and the record where it can be read."""
    source = figure.source
    over = f"; the tree's Python files over {plain(source.over)}" if source.over else ""
    link = source.link(records)
    return (
        f"Processor {code(source.details.machine.cpu)}, {plain(source.gpus) or 'no GPU'}, "
        f"{plain(source.packages)}{over}; {source.day}."
        f"{f' [Record]({link}).' if link else ''}"
    )


def _requirements(patch: Patch, figure: Figure, needed: tuple[PatchFile, ...]) -> list[str]:
    """Return what pip has to install: the release, or what was there when it was seen."""
    installed = figure.source.details.machine.packages
    used = {
        module.partition(".")[0]
        for file in needed
        if file.name.endswith(".py")
        for module in imported(file.content)
    }
    # A local label, such as +cpu, is on no index.
    found = {
        name: f"{name}=={version.partition('+')[0]}"
        for name, version in installed.items()
        if name in used and name != "pytest"
    }
    if patch.upstream.overlay:
        release = release_of(patch)
        found[release.partition("==")[0]] = release
    return [*found.values(), "pytest"]


def _first_line(file: PatchFile) -> str:
    """Return what a file says of itself."""
    said = ast.get_docstring(ast.parse(file.content)) if file.name.endswith(".py") else ""
    return prose((said or "").partition("\n")[0]) or "what the check needs"


def release_of(patch: Patch) -> str:
    """Return the requirement that stands for the pin, where the installed release is the base."""
    for source in patch.pin.sources:
        if isinstance(source, InstalledSource | WheelSource):
            return f"{source.distribution}=={source.version}"
    return f"{patch.upstream.name} {patch.pin.tag}"


def _by_hand(patch: Patch, check: Check) -> list[str]:
    """Return what the script does, for those who would rather type it."""
    env = " ".join(f"{name}={shlex.quote(value)}" for name, value in check.env.items())
    run = f"{env + ' ' if env else ''}python -m pytest {shlex.quote(check.file)}"
    if patch.upstream.overlay:
        return [
            "# or, for all of its tests:",
            f"cd checks && {run}",
        ]
    roots = ":".join(
        "$PWD/tree" if one == "." else f"$PWD/tree/{one}" for one in patch.upstream.python_roots
    )
    return [
        "# or, for all of its tests, once the script has made `tree`:",
        f'export CONTRIBBOT_TREE="$PWD/tree" PYTHONPATH="{roots}"',
        f"cd checks && {run}",
    ]


def _not_run(evidence: Evidence) -> list[str]:
    """Say on which hardware that the patch names nothing ran."""
    spec = evidence.patch.spec
    named = dict.fromkeys(one.target for one in (*spec.checks, *spec.numerics, *spec.bench))
    ran = {figure.target for figure in evidence.of("reproduce", "numerics", "bench")}
    left = [target for target in named if target not in ran]
    return [f"**Not run** on {', '.join(left)}."] if left else []


REPORT: Final = "REPORT.md"


@dataclass(frozen=True)
class Reproducer:
    """What shows a fault to people who have no contribbot."""

    patch: str
    check: str
    test: str
    report: str
    files: dict[str, bytes]


def make_reproducer(queue: Queue, name: str, *, check: str = "") -> Reproducer:
    """Make the reproducer of a patch's fault from one of its checks."""
    evidence = gather(queue, name)
    figure, stated = _chosen(evidence, check)
    test = figure.facts.base.failed[0].test
    needed = needed_files(evidence.patch.support, stated.file)
    files = {f"checks/{one.name}": one.content for one in needed}
    files["checks/pytest.ini"] = b"[pytest]\n"
    for number, lower in enumerate(evidence.below, start=1):
        for file in queue.patch(lower).files:
            files[f"below/{number:02d}-{lower}-{file.name}"] = file.content
    script = _script(evidence.patch, stated, test, below=bool(evidence.below))
    report = fault_report(evidence, figure, stated, needed)
    files |= {SCRIPT: script.encode(), REPORT: report.encode()}
    return Reproducer(name, stated.name, test, report, files)


def write_reproducer(made: Reproducer, folder: Path) -> list[Path]:
    """Write a reproducer's files."""
    earlier = (folder / SCRIPT).is_file()
    strangers = folder.is_dir() and not earlier and any(folder.iterdir())
    if strangers or folder.is_file():
        raise UsageError(f"{folder}: not empty", hint="name another with --output")
    if earlier and _base_in(folder) != _base_of(made.files):
        raise UsageError(
            f"{folder}: another reproducer, whose base may lie there still",
            hint="remove it, or name another with --output",
        )
    written = []
    for name, content in made.files.items():
        write_atomically(folder / name, content)
        written.append(folder / name)
    return written


def _base_of(files: dict[str, bytes]) -> dict[str, bytes]:
    """Return the files that make the base which the script runs on."""
    return {
        name: content
        for name, content in files.items()
        if name == SCRIPT or name.startswith("below/")
    }


def _base_in(folder: Path) -> dict[str, bytes]:
    there = [folder / SCRIPT, *(one for one in (folder / "below").glob("*") if one.is_file())]
    return {one.relative_to(folder).as_posix(): one.read_bytes() for one in there}


def _chosen(evidence: Evidence, wanted: str) -> tuple[Figure, Check]:
    patch = evidence.patch
    stated = {check.name: check for check in patch.spec.checks}
    if wanted and wanted not in stated:
        raise UsageError(
            f"{patch.name}: no check {wanted}", hint=f"there are: {', '.join(stated) or 'none'}"
        )
    red = [figure for figure in evidence.of("reproduce") if figure.red and figure.name in stated]
    if wanted:
        red = [figure for figure in red if figure.name == wanted]
        if not red:
            raise UsageError(
                f"{patch.name}: the check {wanted} does not fail on the base, or was not run",
                hint="name one that goes from red to green",
            )
    else:
        # Anybody has a processor.
        red.sort(key=lambda figure: figure.target != "cpu")
    for figure in red:
        check = stated[figure.name]
        files = needed_files(patch.support, check.file)
        own = name_any(files, figure.facts.laid_over_base)
        if not (check.build or own or needs_contribbot(files)):
            return figure, check
    raise UsageError(
        f"{patch.name}: no check fails on the base in plain pytest",
        hint="what does is a compile, a hipify step, needs contribbot, or runs the patch's own test"
        if not wanted
        else "it needs a build, contribbot or the patch's own test; name another with --check",
    )


def _script(patch: Patch, check: Check, test: str, *, below: bool) -> str:
    """Return the shell script: get the base, set what the check wants, run one test."""
    lines = ["#!/bin/sh", "set -eu", 'here=$(CDPATH="" cd -- "$(dirname -- "$0")" && pwd)']
    exports = {name: shlex.quote(value) for name, value in check.env.items()}
    if patch.upstream.overlay:
        lines[1:1] = [f"# Needs {release_of(patch)} and pytest in the Python that PYTHON names."]
        roots: list[str] = []
    else:
        lines[1:1] = [
            "# Usage: sh reproduce.sh [CHECKOUT]",
            *(["# A CHECKOUT must have below/*.patch applied."] if below else []),
        ]
        lines += [
            "tree=${1:-$here/tree}",
            'if [ ! -e "$tree" ]; then',
            f"    git clone --quiet --depth 1 --branch {patch.pin.tag} \\",
            f'        {shlex.quote(_remote(patch))} "$tree"',
            *(['    git -C "$tree" apply "$here"/below/*.patch'] if below else []),
            "fi",
            'tree=$(cd "$tree" && pwd)',
            'export CONTRIBBOT_TREE="$tree"',
        ]
        roots = [
            '"$tree"' if one == "." else f'"$tree"/{shlex.quote(one)}'
            for one in patch.upstream.python_roots
        ]
    if roots:
        lines.append(f"export PYTHONPATH={':'.join(roots)}")
    lines += [f"export {name}={value}" for name, value in exports.items()]
    lines += [
        'cd "$here/checks"',
        'exec "${PYTHON:-python}" -m pytest -p no:cacheprovider -q --tb=short \\',
        f"    {shlex.quote(test)}",
    ]
    return "\n".join(lines) + "\n"


def _remote(patch: Patch) -> str:
    for source in patch.pin.sources:
        if isinstance(source, GitSource) and source.remote:
            return source.remote
    server = os.environ.get("GITHUB_SERVER_URL") or "https://github.com"
    return f"{server.rstrip('/')}/{patch.upstream.repository}"
