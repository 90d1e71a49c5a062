"""Stage `style`: refute a patch that is not as declared, and list faults that a reviewer minds."""

from __future__ import annotations

import posixpath
import re
import sys
import warnings
from pathlib import PurePosixPath
from typing import Final

from contribbot.errors import first_of
from contribbot.git.patch_format import Change
from contribbot.git.repository import Store
from contribbot.model.evidence import Outcome, StyleStageResult
from contribbot.model.patch import CommitRules
from contribbot.model.record import StyleDetails
from contribbot.verify.job import Job
from contribbot.verify.stages import Finding, Inputs, Stage, Unit

_SIGN_OFF: Final = re.compile(r"^Signed-off-by: .+ <[^<>@\s]+@[^<>\s]+>$", re.MULTILINE)
#: Modules of contribbot, which a patch may not hide in a folder on Python's path.
_OURS: Final = sys.stdlib_module_names | {
    "sitecustomize", "usercustomize", "contribbot", "pytest", "_pytest", "pluggy",
    "iniconfig", "numpy", "packaging", "pydantic", "pydantic_core", "pygments", "torch",
}  # fmt: skip
_COMPILED: Final = frozenset({".pyc", ".pyo"})
_MODULES: Final = frozenset({".py", ".so", *_COMPILED})
_LINK: Final = "120000"
#: A path that goes up from a named folder, which may be a link.
_UP_AGAIN: Final = re.compile(r"(^|/)(?!\.\.?/)[^/]+/+\.\.(/|$)")
_WHITESPACE: Final = re.compile(r"^([^\n]+?:\d+): ([^\n]+)\.$", re.MULTILINE)


class StyleStage(Stage):
    """Checks declared files, links, hidden modules, messages, encoding, whitespace and syntax."""

    result = StyleStageResult

    def units(self, job: Job) -> list[Unit]:
        """Return one unit for all commits of the patch."""
        inputs: Inputs = {
            "base_commit": job.trees.base_commit,
            "patched_commit": job.trees.patched_commit,
            "patch": job.patch.digest,
            "files": [*sorted(job.patch.spec.files)],
            "rules": job.patch.upstream.commits.model_dump(),
            "python_roots": list(job.patch.upstream.python_roots),
        }
        return [Unit("any", inputs, lambda: _inspect(job))]


def _inspect(job: Job) -> Finding:
    changed = job.changes()
    refuting = [*_declared(job, changed), *_reach(job, changed)]
    minded = [*_messages(job), *_encoding(job), *_whitespace(job, changed), *_python(job, changed)]
    for change in changed:
        if change.status == "T":
            kinds = ("file", "link") if change.mode == _LINK else ("link", "file")
            minded.append("{}: a {} of the pin is a {} now".format(change.path, *kinds))
    details = StyleDetails(problems=tuple(refuting), minded=tuple(minded))
    if refuting:
        return Finding(Outcome.FAILED, first_of(refuting), details, lasting=True)
    seen = f"a reviewer would mind: {first_of(minded)}" if minded else "no problem found"
    return Finding(Outcome.PASSED, seen, details)


def _messages(job: Job) -> list[str]:
    """Return the problems of the commit messages, which are read from the store."""
    rules = job.patch.upstream.commits
    span = f"{job.trees.base_commit}..{job.trees.patched_commit}"
    raw = job.store.git("log", "--reverse", "-z", "--format=%B", span).stdout.decode()
    problems = []
    for file, message in zip(job.patch.files, raw.split("\0"), strict=False):
        problems += [f"{file.name}: {what}" for what in message_problems(message, rules)]
    return problems


def message_problems(message: str, rules: CommitRules) -> list[str]:
    """Return the problems of a commit message under an upstream's rules."""
    subject = message.partition("\n")[0]
    problems = []
    if 0 < rules.subject_max < len(subject):
        problems.append(f"the subject has {len(subject)} characters, {rules.subject_max} at most")
    if rules.subject_pattern and not re.search(rules.subject_pattern, subject):
        problems.append(f"the subject does not match {rules.subject_pattern}: {subject}")
    if rules.sign_off and not _SIGN_OFF.search(message):
        problems.append("no Signed-off-by, which this upstream asks for (git commit --signoff)")
    return problems


def _whitespace(job: Job, changed: list[Change]) -> list[str]:
    """Return git's whitespace problems; CR LF is allowed if the base's file has CR LF."""
    problems, base = _checked(job), job.trees.base
    # A file may get more lines that end in CR and LF, if the base's file has such lines.
    dos = [
        change.path
        for change in changed
        if problems and b"\r\n" in (job.store.file(f"{base}:{change.path}") or b"")
    ]
    if not dos:
        return problems
    rest = _checked(job, "--", ".", *(f":(exclude,literal){path}" for path in dos))
    return rest + _checked(job, "--", *(f":(literal){path}" for path in dos), crlf=True)


def _checked(job: Job, *paths: str, crlf: bool = False) -> list[str]:
    """Return the problems that `git diff --check` reports for some paths; no path: for all."""
    # The store ignores .gitattributes. The scratch repository obeys the file, which git reads from
    # the index if the work tree has no such file.
    scratch, tree = Store(job.fresh_folder()), job.fresh_folder()
    objects = {"GIT_OBJECT_DIRECTORY": str(job.store.path / "objects")}
    scratch.git("init", "--quiet", "--bare")
    at = (f"--work-tree={tree}", "-c", "core.bare=false", "-c", "core.quotePath=false")
    rules = ("-c", "core.whitespace=cr-at-eol") if crlf else ()
    scratch.git(*at, "read-tree", job.trees.patched, env=objects)
    done = scratch.git(
        *at, *rules, "diff-index", "--cached", "--check", "--no-color", job.trees.base, *paths,
        env=objects, accept=(0, 2),
    )  # fmt: skip
    rows = _WHITESPACE.findall(done.stdout.decode("utf-8", "replace"))
    return [f"{where}: {what}" for where, what in rows]


def _reach(job: Job, changed: list[Change]) -> list[str]:
    """Return the changed files that hide modules of contribbot, or that link out of the tree."""
    roots = [PurePosixPath(root) for root in job.patch.upstream.python_roots]
    problems = []
    for change in changed:
        path = PurePosixPath(change.path)
        if not change.blob.strip("0"):
            continue  # the patch removes the file
        if path.suffix in _COMPILED:
            problems.append(f"{path}: compiled Python, which nobody can read")
        if change.mode == _LINK:
            target = job.store.read(change.blob).decode("utf-8", "replace")
            inside = posixpath.normpath(posixpath.join(path.parent, target))
            leaves = inside.startswith(("/", "../")) or inside == ".."
            if leaves or _UP_AGAIN.search(target):
                problems.append(f"{path}: a link out of the tree, to {target}")
        for root in filter(path.is_relative_to, roots):
            top, *rest = path.relative_to(root).parts
            # A folder without an `__init__` file hides no module.
            module = rest[0].startswith("__init__.") if rest else path.suffix in _MODULES
            ours = top.partition(".")[0] in _OURS
            if ours and module and job.store.resolve(f"{job.trees.base}:{root / top}") is None:
                problems.append(f"{path}: hides the {top} of what judges it")
    return problems


def _declared(job: Job, changed: list[Change]) -> list[str]:
    touched = {change.path for change in changed}
    declared = {*job.patch.spec.files} or touched
    said = {
        **dict.fromkeys(touched - declared, "touched, but not in `files` of patch.toml"),
        **dict.fromkeys(declared - touched, "in `files` of patch.toml, but not touched"),
    }
    return [f"{path}: {said[path]}" for path in sorted(said)]


def _encoding(job: Job) -> list[str]:
    problems = []
    for file in job.patch.files:
        for number, row in enumerate(file.content.split(b"\n"), start=1):
            try:
                row.decode("utf-8")
            except UnicodeDecodeError:
                if row.startswith(b"+"):
                    problems.append(f"{file.name}:{number}: adds a line that is not UTF-8")
    return problems


def _python(job: Job, changed: list[Change]) -> list[str]:
    problems = []
    for change in changed:
        if not change.path.endswith(".py") or not change.mode.startswith("100"):
            continue
        source = job.store.read(change.blob)
        try:
            # Compiling runs no code. A SyntaxWarning is for the upstream to judge.
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", SyntaxWarning)
                compile(source, change.path, "exec", dont_inherit=True)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            line = getattr(error, "lineno", None) or 0
            problems.append(f"{change.path}:{line}: does not compile: {error}")
    return problems
