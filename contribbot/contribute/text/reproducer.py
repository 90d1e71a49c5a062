"""A fault shown with nothing of contribbot: a script, the files it needs, a report."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from contribbot.contribute.text.checkfiles import name_any, needed_files, needs_contribbot
from contribbot.contribute.text.faultreport import SCRIPT, fault_report, release_of
from contribbot.contribute.text.figures import Figures, gather
from contribbot.contribute.text.seen import Seen
from contribbot.errors import UsageError
from contribbot.files import write_atomically
from contribbot.model.checks import Check
from contribbot.model.patch import Patch
from contribbot.model.pin import GitSource
from contribbot.queue.load import Queue

REPORT: Final = "REPORT.md"


@dataclass(frozen=True)
class Reproducer:
    """What shows a fault to people who have no contribbot.

    Attributes:
        patch: The patch whose fault it is.
        check: The check that it is made from.
        test: The one test that the script runs.
        report: The report (Markdown).
        files: All files, by path.
    """

    patch: str
    check: str
    test: str
    report: str
    files: dict[str, bytes]


def make_reproducer(queue: Queue, name: str, *, check: str = "") -> Reproducer:
    """Make the reproducer of a patch's fault from one of its checks."""
    figures = gather(queue, name)
    seen, stated = _chosen(figures, check)
    failed = seen.table("base").get("failed")
    tests = (
        [str(one.get("test")) for one in failed if isinstance(one, dict)]
        if isinstance(failed, list)
        else []
    )
    test = tests[0]
    needed = needed_files(figures.patch.support, stated.file)
    files = {f"checks/{one.name}": one.content for one in needed}
    files["checks/pytest.ini"] = b"[pytest]\n"
    for number, lower in enumerate(figures.below, start=1):
        for file in queue.patch(lower).files:
            files[f"below/{number:02d}-{lower}-{file.name}"] = file.content
    script = _script(figures.patch, stated, test, below=bool(figures.below))
    report = fault_report(figures, seen, stated, tests, needed)
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


def _chosen(figures: Figures, wanted: str) -> tuple[Seen, Check]:
    patch = figures.patch
    stated = {one.name: one for one in patch.spec.checks}
    if wanted and wanted not in stated:
        raise UsageError(
            f"{patch.name}: no check {wanted}", hint=f"there are: {', '.join(stated) or 'none'}"
        )
    red = [one for one in figures.of("reproduce") if one.red and one.name in stated]
    if wanted:
        red = [one for one in red if one.name == wanted]
        if not red:
            raise UsageError(
                f"{patch.name}: the check {wanted} does not fail on the base, or was not run",
                hint="name one that goes from red to green",
            )
    else:
        # Anybody has a processor.
        red.sort(key=lambda one: one.result.target != "cpu")
    for one in red:
        check = stated[one.name]
        files = needed_files(patch.support, check.file)
        laid = one.result.details.get("laid_over_base")
        own = isinstance(laid, list) and name_any(files, map(str, laid))
        if not (check.build or own or needs_contribbot(files)):
            return one, check
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
