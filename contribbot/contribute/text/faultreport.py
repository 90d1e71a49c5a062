"""The report of a fault, for an upstream's issue."""

from __future__ import annotations

import ast
import shlex
from typing import Final

from contribbot.contribute.text.checkfiles import imported
from contribbot.contribute.text.escape import code, fence, plain, prose
from contribbot.contribute.text.figures import Figures
from contribbot.contribute.text.seen import Seen
from contribbot.model.checks import Check
from contribbot.model.patch import Patch, PatchFile
from contribbot.model.pin import InstalledSource, WheelSource

#: The script beside the report.
SCRIPT: Final = "reproduce.sh"


def fault_report(
    figures: Figures, seen: Seen, check: Check, tests: list[str], needed: tuple[PatchFile, ...]
) -> str:
    """Return the report of a fault that a check shows, for an upstream's issue (Markdown)."""
    patch = figures.patch
    below = ", ".join(map(code, figures.below))
    total = len(tests) + seen.count("base", "passed")
    told = (
        f"Seen with {patch.upstream.repository} at {code(patch.pin.tag)}"
        f"{f' with {below} applied' if below else ''}, on {seen.result.target}: "
        f"{len(tests)} of {total} tests of {code(check.file)} fail. "
        f"The first, {code(tests[0])}:"
    )
    contribution = patch.spec.contribution
    commands = [
        f"python -m pip install {' '.join(_requirements(patch, seen, needed))}",
        f"sh {SCRIPT}",
        *_by_hand(patch, check),
    ]
    paragraphs = [
        "## What happens",
        prose(patch.spec.problem),
        told,
        fence(next(seen.messages(), "")),
        "## How to see it",
        "With the files beside this report:",
        fence("\n".join(commands), language="sh"),
        "\n".join(f"- {code('checks/' + file.name)}: {_first_line(file)}" for file in needed),
        "## Why",
        prose(patch.spec.root_cause),
        "## Where it was seen",
        _where(seen),
        *_not_seen(figures),
        *([f"**Use of AI.** {prose(contribution.ai)}"] if contribution.ai else []),
    ]
    return "\n\n".join(paragraphs) + "\n"


def _where(seen: Seen) -> str:
    """Name the machine and the record."""
    source = seen.source
    statement = source.record.statement
    assert statement is not None  # noqa: S101  gather takes only records that can be read
    details = statement.predicate.contribbot
    machine = details.machine
    gpus = ", ".join(code(gpu.name) for gpu in machine.gpus) or "no GPU"
    packages = "".join(
        f", {name} {plain(machine.packages[name])}"
        for name in ("torch", "triton")
        if name in machine.packages
    )
    over = f", the tree's Python files over {plain(seen.over)}" if seen.over else ""
    return (
        f"Processor {code(machine.cpu)}, {gpus}{packages}, {plain(machine.python)}{over}; "
        f"{details.finished:%Y-%m-%d}. Record {code(source.file)}, seal "
        f"{code(statement.seal[:12])}; again: {code(details.command)}"
    )


def _requirements(patch: Patch, seen: Seen, needed: tuple[PatchFile, ...]) -> list[str]:
    """Return what pip has to install: the release, or what was there when it was seen."""
    statement = seen.source.record.statement
    there = statement.predicate.contribbot.machine.packages if statement else {}
    used = {
        module.partition(".")[0]
        for file in needed
        if file.name.endswith(".py")
        for module in imported(file.content)
    }
    # A local label, such as +cpu, is on no index.
    found = {
        name: f"{name}=={version.partition('+')[0]}"
        for name, version in there.items()
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


def _not_seen(figures: Figures) -> list[str]:
    """Say on which hardware that the patch names nobody has looked."""
    spec = figures.patch.spec
    named = dict.fromkeys(one.target for one in (*spec.checks, *spec.numerics, *spec.bench))
    ran = {one.result.target for one in figures.of("reproduce", "numerics", "bench")}
    left = [target for target in named if target not in ran]
    return [f"**Not run** on {', '.join(left)}."] if left else []
