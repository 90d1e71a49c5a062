"""Make an empty queue, add pins to a queue, and begin a patch."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter, ValidationError

from contribbot.errors import UsageError
from contribbot.files import stores_folder, write_atomically
from contribbot.git.pins import Progress
from contribbot.git.pins.index import resolve_file
from contribbot.git.pins.sources import provide
from contribbot.git.repository import open_store
from contribbot.model.base import Line, Model, Name
from contribbot.model.patch import (
    TODO,
    GitSource,
    InstalledSource,
    PatchFile,
    Pin,
    Reference,
    SourceSpec,
    Upstream,
)
from contribbot.queue.load import Queue, did_you_mean, load_queue, read_model, upstream_files
from contribbot.queue.toml_edit import set_pin
from contribbot.queue.transaction import Transaction, transaction

_NAME: Final = TypeAdapter[str](Name)
_TITLE: Final = TypeAdapter[str](Line)
_REFERENCE: Final = TypeAdapter[str](Reference)
_HINTS: Final = {
    "problem": "what goes wrong, for whom, on which hardware; where it was reported.",
    "root_cause": "why: the lines that are wrong, and how that is known.",
    "solution": "what the patch does about it, what it leaves alone, what was not run.",
}
_PROOF: Final = """\
# What proves it: docs/queue.md has every key. A fail-to-pass check fails on the pin for the
# stated reason and passes with the patch; until one is stated, `verify` fails. Without a GPU,
# [[emulated]] executes the code of AMD targets, and [[compile]] compiles it for them.
"""
_CHECK: Final = """\
[[checks]]
name = "red"
file = "test_red.py"
expect = "fail-to-pass"
reason = '^AssertionError: '
requires = ["cpu"]
"""
_TEST: Final = """\
\"""The fault that {name} mends: red on the pin for the stated reason, green with the patch.\"""

from contribbot.testing import {imports}


def test_what_the_patch_mends() -> None:
{body}
"""


@dataclass(frozen=True)
class Wish:
    """The values that a user gave for a new patch; `pin` None: take the only pin that fits."""

    name: str
    title: str
    #: The pin's upstream, tag, or both, such as `sglang v0.5.10`.
    pin: str | None = None
    depends_on: tuple[str, ...] = ()
    #: The issue that the patch fixes: a number in the upstream's repository, or OWNER/REPO#N.
    issue: str = ""


@dataclass(frozen=True)
class Draft:
    """A new patch that was checked against the queue and is not written yet."""

    name: str
    pin: Pin
    title: str
    depends_on: tuple[str, ...]
    issue: str = ""
    problem: str = ""
    pull: str = ""  # another person's pull request with the commits
    reproduces: bool = False  # only checks, which show another person's issue
    check: str = ""  # the text of `checks/test_red.py`, for a person to finish
    proof: str = ""  # the text in `patch.toml` that replaces the entry of the check
    files: Mapping[str, bytes] = field(default_factory=dict)  # more files, by path in the folder


def create(
    queue: Queue, wish: Wish, begin: Callable[[Draft], Draft] = lambda draft: draft
) -> Draft:
    """Write a new patch without commits; `begin` may change the draft before it is written."""
    if not wish.title and not wish.issue:
        raise UsageError(
            "a patch without commits needs a title",
            hint="give --title, or where its commits are: contribbot new NAME REPO BRANCH",
        )
    with transaction(queue.folder, f"new {wish.name}") as change:
        draft = begin(settle(load_queue(queue.folder), wish))
        if not draft.title:
            check = begun_check(draft.name, ())
            title = f"Reproducer of {draft.issue}"
            draft = replace(draft, title=title, reproduces=True, check=check)
        add(change, draft)
    return draft


def check_new_name(queue: Queue, name: str) -> None:
    """Raise UsageError if a new patch's name is invalid or in use."""
    _checked(_NAME, name, "a patch's name has a-z, 0-9 and . _ - only, no more than 80")
    folder = queue.folder / "patches" / name
    filled = folder.is_file() or (folder.is_dir() and any(folder.iterdir()))
    if name in queue.specs or filled:
        raise UsageError(
            f"{folder}: there is a patch {name} already",
            hint=f"take another name, or change it: contribbot edit {name}"
            if name in queue.specs
            else "take another name, or move the folder away",
        )


def settle(queue: Queue, wish: Wish) -> Draft:
    """Check a user's wish against the queue; return the draft with its pin."""
    check_new_name(queue, wish.name)
    rule = "a title is one line with something on it"
    title = _checked(_TITLE, wish.title, rule).strip() if wish.title else ""
    queue.require(*wish.depends_on)
    depends_on, pin = tuple(dict.fromkeys(wish.depends_on)), _pin(queue, wish)
    issue = wish.issue
    if issue:
        issue = f"{queue.upstreams[pin.upstream].repository}#{issue}" if issue.isdigit() else issue
        issue = _checked(_REFERENCE, issue, "an issue is a number, or OWNER/REPO#N")
    return Draft(wish.name, pin, title, depends_on, issue)


def _checked(adapter: TypeAdapter[str], value: str, rule: str) -> str:
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        raise UsageError(f"{value!r}: not possible here", hint=rule) from error


def _pin(queue: Queue, wish: Wish) -> Pin:
    below = {(queue.specs[lower].upstream, queue.specs[lower].pin) for lower in wish.depends_on}
    fitting = [
        pin
        for pin in queue.spec.pins
        if wish.pin in {None, pin.upstream, pin.tag, pin.title}
        and below <= {(pin.upstream, pin.tag)}
    ]
    if len(fitting) == 1:
        return fitting[0]
    titles = ", ".join(pin.title for pin in fitting or queue.spec.pins)
    if fitting:
        raise UsageError(
            f"which pin does {wish.name} stand on? {titles}",
            hint="name one of them with --pin",
        )
    on = f" below {', '.join(wish.depends_on)}" if wish.depends_on else ""
    near = did_you_mean(wish.pin or "", [pin.tag for pin in queue.spec.pins])
    raise UsageError(
        f"no pin {wish.pin or 'at all'}{on} in {queue.folder / 'patches' / 'queue.toml'}",
        hint=f"the queue pins {titles}{near}; pin another: contribbot pin add UPSTREAM VERSION"
        if titles
        else "pin one: contribbot pin add sglang VERSION",
    )


def add(change: Transaction, draft: Draft, *, patches: Sequence[PatchFile] = ()) -> None:
    """Add all files of a new patch to a transaction."""
    folder = f"patches/{draft.name}"
    change.write(f"{folder}/patch.toml", patch_toml(draft).encode())
    change.replace_files(folder, (), patches)
    for path, content in draft.files.items():
        change.write(f"{folder}/{path}", content)
    if draft.check:
        change.write(f"{folder}/checks/test_red.py", draft.check.encode())
    elif not draft.files:
        # git loses an empty folder; a dot file is not part of the checks.
        change.write(f"{folder}/checks/.gitkeep", b"")


def begun_check(name: str, code: Sequence[str]) -> str:
    """Return a test for a person to finish, which imports the first Python file in `code`."""
    python = next((path for path in code if path.endswith(".py")), "")
    rows = [f"module = import_file({_quoted(python)})"] if python else []
    where = " in module" if python else ""
    rows.append(f'unwritten("call what goes wrong{where}, and assert what is right")')
    return _TEST.format(
        name=name,
        imports="import_file, unwritten" if python else "unwritten",
        body="\n".join(f"    {row}" for row in rows),
    )


def patch_toml(draft: Draft) -> str:
    """Return the text of a valid `patch.toml`, with hints for a person to replace."""
    below = ", ".join(map(_quoted, draft.depends_on))
    lines = [
        f"title = {_quoted(draft.title)}",
        f"upstream = {_quoted(draft.pin.upstream)}",
        f"pin = {_quoted(draft.pin.tag)}",
        *([f"depends_on = [{below}]"] if below else []),
        *([f"pull = {_quoted(draft.pull)}"] if draft.pull else []),
        *([f"reproduces = {_quoted(draft.issue)}"] if draft.reproduces else []),
    ]
    for key, hint in _HINTS.items():
        text = draft.problem if key == "problem" and draft.problem else f"{TODO}{hint}"
        lines += ["", f'{key} = """', text.replace("\\", "\\\\").replace('"""', '""\\"'), '"""']
    check = draft.proof or (_CHECK if draft.check else "#\n" + textwrap.indent(_CHECK, "# "))
    stated = draft.check or draft.proof
    text = "\n".join(lines) + "\n\n" + _PROOF + ("\n" if stated else "") + check
    fixes = f"\n[contribution]\nissue = {_quoted(draft.issue)}\n"
    return text + (fixes if draft.issue and not draft.reproduces else "")


def _quoted(text: str) -> str:
    """Return a string literal for TOML, with JSON's escapes, which are valid in TOML."""
    return json.dumps(text, ensure_ascii=False)


_QUEUE: Final = """\
# The order in which patches are applied and shown; those not named come last, by name.
# `contribbot pin add sglang VERSION` adds a release that patches can stand on.
order = []
"""
#: Lines for git's files in a queue: ignore local state and what a killed run leaves; when git
#: merges a journal, keep the lines of both people.
_GIT_FILES: Final = {
    ".gitignore": ("/.contribbot/", ".*.partial"),
    ".gitattributes": ("/history/*/journal.jsonl merge=union",),
}


def init_queue(folder: Path) -> list[str]:
    """Write the files of an empty queue; return the names of the written files."""
    folder = folder.resolve()
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder}: not a folder", hint="name an empty folder, or a repository")
    if (folder / "patches" / "queue.toml").exists():
        raise UsageError(
            f"{folder}: there is a queue already", hint="see it with `contribbot queue list`"
        )
    in_repository = any((place / ".git").exists() for place in (folder, *folder.parents))
    if folder.exists() and any(folder.iterdir()) and not in_repository:
        raise UsageError(
            f"{folder}: neither empty nor in a git repository",
            hint="name an empty folder: contribbot init DIR",
        )
    written = []
    for name, wanted in _GIT_FILES.items():
        rows = (folder / name).read_text("utf-8").splitlines() if (folder / name).is_file() else []
        if lacking := [row for row in wanted if row not in rows]:
            write_atomically(folder / name, "\n".join((*rows, *lacking, "")).encode())
            written.append(name)
    # Written last, as a folder with queue.toml counts as a queue.
    write_atomically(folder / "patches" / "queue.toml", _QUEUE.encode())
    return [*written, "patches/queue.toml"]


class BegunQueue(Model):
    """The JSON document of `init`: the queue's folder, and the written files."""

    folder: str
    written: tuple[str, ...]


class AddedPin(Model):
    """The JSON document of `pin add`: the pin, its file, and where its tree came from."""

    upstream: str
    tag: str
    #: The file of the release that the pin names; empty: the pin names no file.
    file: str
    place: str
    sha256: str
    #: The kind of source that brought the tree, such as `sdist` or `git`.
    kind: str
    commit: str


def add_pin(queue: Queue, name: str, version: str, *, progress: Progress) -> AddedPin:
    """Find and fetch a release, and write its pin, with the file's digest, to `queue.toml`."""
    upstream, like, tag = _meant(queue, name, version)
    _refuse_known(queue, upstream.name, tag)
    pin, file = resolve_file(like, upstream, tag)
    _refuse_known(queue, pin.upstream, pin.tag)
    # Fetch the tree first: this fails if no source has it, or if the digest is wrong.
    store = open_store(stores_folder(), pin.upstream)
    provided = provide(pin, upstream, store, progress=progress)
    with transaction(queue.folder, f"pin add {pin.title}") as change:
        _refuse_known(load_queue(queue.folder), pin.upstream, pin.tag)
        change.edit("patches/queue.toml", lambda text: set_pin(text, None, pin))
    digests = [source.sha256 for source in pin.sources if source.kind in {"sdist", "wheel"}]
    return AddedPin(
        upstream=pin.upstream,
        tag=pin.tag,
        file=file.filename if file else "",
        place=file.place if file else "",
        sha256=digests[0] if file and digests else "",
        kind=provided.kind,
        commit=provided.commit,
    )


def _refuse_known(queue: Queue, upstream: str, tag: str) -> None:
    if queue.pin(upstream, tag) is not None:
        raise UsageError(
            f"{upstream} {tag}: pinned already in {queue.folder / 'patches' / 'queue.toml'}",
            hint=f"begin a patch on it: contribbot new NAME --title T --pin {tag}",
        )


def _meant(queue: Queue, name: str, version: str) -> tuple[Upstream, Pin, str]:
    """Return the upstream, the pin to copy, and the tag of a new pin, from a user's words."""
    described = {
        path.stem: read_model(path, Upstream) for path in upstream_files(queue.folder).values()
    }
    by_distribution = {
        upstream.release.distribution: upstream
        for upstream in described.values()
        if upstream.release
    }
    upstream = described.get(name) or by_distribution.get(name)
    if upstream is None:
        names = sorted({*described, *by_distribution})
        raise UsageError(
            f"unknown upstream {name}{did_you_mean(name, names)}",
            hint=f"known are {', '.join(names)}; or describe it in {queue.folder}/upstreams/"
            f"{name}.toml (docs/upstreams.md)",
        )
    release = upstream.release
    tag = version
    if release is not None and version != "newest" and release.version_of(version) is None:
        tag = release.tag_of(version)
    known = [pin for pin in queue.spec.pins if pin.upstream == upstream.name]
    return upstream, known[-1] if known else _template(upstream), tag


def _template(upstream: Upstream) -> Pin:
    sources: list[SourceSpec] = [GitSource(kind="git")]
    if upstream.release is not None and upstream.overlay:
        # If this Python has the release installed, nothing is downloaded.
        sources.append(
            InstalledSource(
                kind="installed",
                distribution=upstream.release.distribution,
                version="0",
                packages=upstream.release.packages,
            )
        )
    return Pin(upstream=upstream.name, tag="v0", sources=tuple(sources))
