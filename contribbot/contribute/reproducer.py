"""A fault shown with nothing of contribbot: a script with its files, and a report."""

from __future__ import annotations

import ast
import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from contribbot.contribute.body import template_environment
from contribbot.contribute.figures import Evidence, Figure, gather
from contribbot.errors import UsageError
from contribbot.files import write_atomically
from contribbot.markdown import prose
from contribbot.model.checks import Check
from contribbot.model.patch import Patch, PatchFile
from contribbot.model.pin import GitSource, InstalledSource, WheelSource
from contribbot.queue.load import Queue

SCRIPT: Final = "reproduce.sh"
REPORT: Final = "REPORT.md"


@dataclass(frozen=True)
class Reproducer:
    """The files that show a fault to people without contribbot."""

    patch: str
    check: str
    test: str
    report: str
    files: dict[str, bytes]


def make_reproducer(queue: Queue, name: str) -> Reproducer:
    """Make the reproducer of a patch's fault from one of its checks."""
    evidence = gather(queue, name)
    patch, spec = evidence.patch, evidence.patch.spec
    figure, stated, needed = _chosen(evidence)
    named = dict.fromkeys(entry.target for entry in (*spec.checks, *spec.numerics, *spec.bench))
    ran = {known.target for known in evidence.of("reproduce", "numerics", "bench")}
    names = {
        "spec": spec,
        "upstream": patch.upstream,
        "tag": patch.pin.tag,
        "below": evidence.below,
        "check": stated,
        "figure": figure,
        "source": figure.source,
        "test": figure.failures[0].test,
        "release": release_of(patch),
        "remote": _remote(patch),
        "roots": patch.upstream.python_roots,
        "files": [(file.name, _first_line(file)) for file in needed],
        "not_run": [target for target in named if target not in ran],
        "commands": "\n".join(_commands(patch, stated, figure, needed)),
    }
    environment = template_environment(queue)
    report, script = (
        environment.get_template(f"{file}.j2").render(names).rstrip("\n") + "\n"
        for file in ("report.md", "reproduce.sh")
    )
    files = {f"checks/{file.name}": file.content for file in needed}
    files["checks/pytest.ini"] = b"[pytest]\n"
    for number, lower in enumerate(evidence.below, start=1):
        for file in queue.patch(lower).files:
            files[f"below/{number:02d}-{lower}-{file.name}"] = file.content
    files |= {SCRIPT: script.encode(), REPORT: report.encode()}
    return Reproducer(name, stated.name, figure.failures[0].test, report, files)


def write_reproducer(made: Reproducer, folder: Path) -> list[Path]:
    """Write a reproducer's files into an empty folder, or over the same reproducer."""
    based = {name: text for name, text in made.files.items() if name.startswith((SCRIPT, "below/"))}
    known = all(
        (folder / name).is_file() and (folder / name).read_bytes() == text
        for name, text in based.items()
    )
    if folder.is_file() or (folder.is_dir() and any(folder.iterdir()) and not known):
        raise UsageError(f"{folder}: not empty", hint="remove it, or name another folder")
    for name, content in made.files.items():
        write_atomically(folder / name, content)
    return [folder / name for name in made.files]


def _chosen(evidence: Evidence) -> tuple[Figure, Check, list[PatchFile]]:
    """Choose a check that fails on the base in plain pytest, with its files."""
    patch = evidence.patch
    stated = {check.name: check for check in patch.spec.checks}
    red = [figure for figure in evidence.of("reproduce") if figure.red]
    causes = []
    # Anybody has a processor.
    for figure in sorted(red, key=lambda figure: figure.target != "cpu"):
        check = stated[figure.name]
        files = needed_files(patch.support, check.file)
        modules = {module.partition(".")[0] for file in files for module in _imported(file)}
        # The patch's own tests, which were laid over the base, are not in the upstream.
        tests = [PurePosixPath(path).stem.encode() for path in figure.laid_over_base]
        own = any(test in file.content for file in files for test in tests)
        needs = ["a build"] * bool(check.build) + ["the patch's own test"] * own
        needs += ["contribbot, which it imports"] * ("contribbot" in modules)
        if not needs:
            return figure, check, files
        causes.append(f"{check.name} needs {' and '.join(needs)}")
    hint = "; ".join(causes) or "what is red needs a compiler or an emulated GPU"
    hint += "; state one that needs neither, or write the issue by hand" * bool(causes)
    raise UsageError(f"{patch.name}: no check fails on the base in plain pytest", hint=hint)


def needed_files(support: Sequence[PatchFile], start: str) -> list[PatchFile]:
    """Return a check file with all files of its folder that the check imports."""
    known = {file.name: file for file in support}
    wanted = [start, *(["conftest.py"] if "conftest.py" in known else [])]
    needed: dict[str, PatchFile] = {}
    while wanted:
        name = wanted.pop()
        if name in needed or name not in known:
            continue
        needed[name] = known[name]
        for module in _imported(known[name]):
            path = module.replace(".", "/")
            wanted += [f"{path}.py", f"{path}/__init__.py", f"{path.partition('/')[0]}/__init__.py"]
    # Data files are read by name, which nobody can follow.
    data = (file for file in support if not file.name.endswith((".py", ".cpp", ".cu", ".hip")))
    return [*needed.values(), *data]


def _imported(file: PatchFile) -> list[str]:
    """Return the names of the modules that a Python file may import."""
    names: list[str] = []
    for node in ast.walk(ast.parse(file.content)) if file.name.endswith(".py") else ():
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return names


def _commands(patch: Patch, check: Check, figure: Figure, needed: Sequence[PatchFile]) -> list[str]:
    """Return the commands of a reader: install the release, run the script."""
    used = {module.partition(".")[0] for file in needed for module in _imported(file)}
    # A local label, such as +cpu, is on no index.
    requirements = {
        name: f"{name}=={version.partition('+')[0]}"
        for name, version in figure.source.details.machine.packages.items()
        if name in used and name != "pytest"
    }
    env = "".join(f"{name}={shlex.quote(value)} " for name, value in check.env.items())
    run = f"cd checks && {env}python -m pytest {shlex.quote(check.file)}"
    by_hand = ["# or, for all of its tests:", run]
    if patch.upstream.overlay:
        release = release_of(patch)
        requirements[release.partition("==")[0]] = release
    else:
        folders = (f"$PWD/tree/{root}".removesuffix("/.") for root in patch.upstream.python_roots)
        roots = ":".join(folders)
        by_hand = [
            "# or, for all of its tests, once the script has made `tree`:",
            f'export CONTRIBBOT_TREE="$PWD/tree" PYTHONPATH="{roots}"',
            run,
        ]
    install = f"python -m pip install {' '.join([*requirements.values(), 'pytest'])}"
    return [install, f"sh {SCRIPT}", *by_hand]


def _first_line(file: PatchFile) -> str:
    """Return the first line of a file's docstring; a general phrase where the file has none."""
    doc = ast.get_docstring(ast.parse(file.content)) if file.name.endswith(".py") else ""
    return prose((doc or "").partition("\n")[0]) or "what the check needs"


def release_of(patch: Patch) -> str:
    """Return the pin as a requirement of pip, or as a tag where no package has the tree."""
    for source in patch.pin.sources:
        if isinstance(source, InstalledSource | WheelSource):
            return f"{source.distribution}=={source.version}"
    return f"{patch.upstream.name} {patch.pin.tag}"


def _remote(patch: Patch) -> str:
    for source in patch.pin.sources:
        if isinstance(source, GitSource) and source.remote:
            return source.remote
    server = os.environ.get("GITHUB_SERVER_URL") or "https://github.com"
    return f"{server.rstrip('/')}/{patch.upstream.repository}"
