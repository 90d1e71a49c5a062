"""Import patches from mails or a clone's commits (`new NAME SOURCE`), and export patches."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from pydantic import Field

from contribbot import process
from contribbot.errors import CommandError, QueueError, UsageError
from contribbot.files import stores_folder
from contribbot.git.apply import apply_series
from contribbot.git.patch_format import check_form, format_commits
from contribbot.git.pins import Progress
from contribbot.git.repository import NOTHING, Store, git_environment, open_store
from contribbot.model.base import Model
from contribbot.model.lifecycle import ConflictSide
from contribbot.model.patch import PatchFile, Pin
from contribbot.queue import history
from contribbot.queue.load import Queue, load_queue
from contribbot.queue.new import Wish, add, begun_check, settle
from contribbot.queue.refresh import declared_paths
from contribbot.queue.stack import PatchStack, fetch_pin
from contribbot.queue.transaction import transaction
from contribbot.queue.worktree import BASE_REF


def read_range(clone: Path, wanted: str, *, pin: Pin, into: Store) -> tuple[PatchFile, ...]:
    """Return a clone's commits as patch files, without reading the clone's configuration.

    The store `into` gets the old contents of changed files, so that git can merge there.
    """
    with tempfile.TemporaryDirectory(prefix="contribbot-") as folder:
        store = _borrowing(clone, Path(folder))
        base, tip = _ends(store, clone, wanted, pin)
        try:
            files = format_commits(store, base, tip)
            _check_round_trip(store, base, tip, files)
            raw = ("--format=", "--raw", "--no-renames", "--no-abbrev", f"{base}..{tip}")
            rows = filter(None, store.git("log", *raw).stdout.split(b"\n"))
            blobs = {row.split()[2] for row in rows} - {NOTHING.encode()}
            packed = store.git("pack-objects", "--stdout", "-q", stdin=b"\n".join([*blobs, b""]))
        except CommandError as error:
            raise UsageError(
                f"{clone}: git cannot read {wanted}: {error.stderr.strip().splitlines()[-1]}",
                hint=f"if the clone is partial, `git -C {clone} log -p {wanted}` fetches the rest",
            ) from error
    with into.exclusive():
        into.git("unpack-objects", "-q", stdin=packed.stdout)
    return files


def _is_repository(folder: Path) -> bool:
    return (folder / ".git").exists() or (folder / "objects").is_dir()


def _rev_parse(clone: Path, *args: str) -> str:
    """Return the output of `git rev-parse` in a clone; empty: git failed."""
    done = process.run(
        # Another person may own the clone, as nothing in the clone is run.
        ["git", "-c", "safe.directory=*", "-C", clone, "rev-parse", *args],
        env=git_environment(),
        accept=(0, 1, 128),
    )
    return done.stdout.decode("utf-8", "surrogateescape").strip() if done.returncode == 0 else ""


def _borrowing(clone: Path, scratch: Path) -> Store:
    """Return a new store in `scratch` that reads the clone's objects where they are."""
    objects = _rev_parse(clone, "--path-format=absolute", "--git-path", "objects")
    if not _is_repository(clone) or not objects:
        raise UsageError(
            f"{clone}: not a git repository",
            hint="name a clone, and a range or branch of it: contribbot new NAME REPO A..B",
        )
    store = open_store(scratch, "clone")
    alternates = store.path / "objects" / "info" / "alternates"
    alternates.write_bytes(objects.encode("utf-8", "surrogateescape") + b"\n")
    shallow = Path(_rev_parse(clone, "--path-format=absolute", "--git-path", "shallow"))
    if shallow.is_file():
        (store.path / "shallow").write_bytes(shallow.read_bytes())
    return store


def _ends(store: Store, clone: Path, wanted: str, pin: Pin) -> tuple[str, str]:
    """Return the start (exclusive) and the end of a range `A..B` or of a branch."""
    if "..." in wanted or wanted.startswith("-"):
        raise UsageError(f"{wanted}: not a range", hint="write A..B, or the name of a branch")
    lower, dots, upper = wanted.partition("..")
    tip = _commit(clone, (upper or "HEAD") if dots else wanted)
    if dots:
        below = _commit(clone, lower or "HEAD")
    else:
        # A work tree that `edit` made has a ref of its base, and no tags.
        names = filter(None, (BASE_REF, pin.commit, f"refs/tags/{pin.tag}"))
        below = next(filter(None, (_resolve(clone, name) for name in names)), "")
    if not below:
        raise UsageError(
            f"{clone}: where does {wanted} start? It has no tag {pin.tag}",
            hint=f"write the range: A..{wanted}",
        )
    bases = store.git("merge-base", below, tip, accept=(0, 1, 128)).stdout.decode().split()
    if not bases or bases[0] == tip:
        why = "no commits in it" if bases else "the two ends have no history in common"
        raise UsageError(f"{clone}: {wanted}: {why}", hint="is it the right way round?")
    return bases[0], tip


def _resolve(clone: Path, name: str) -> str:
    """Return the commit that a name means in a clone; empty: the clone has no such name."""
    return _rev_parse(clone, "--verify", "--quiet", f"{name}^{{commit}}")


def _commit(clone: Path, name: str) -> str:
    commit = _resolve(clone, name)
    if not commit:
        raise UsageError(f"{clone}: no commit {name}", hint=f"see git -C {clone} log --oneline")
    return commit


def _check_round_trip(store: Store, base: str, tip: str, files: tuple[PatchFile, ...]) -> None:
    """Raise QueueError if the patch files lose a change or a part of a commit message."""
    series = apply_series(store, base, files, pin="where the range starts")
    log = store.git("log", "-z", "--reverse", "--format=%T %B", f"{base}..{tip}").stdout
    commits = [row.partition(b" ") for row in log.rstrip(b"\0").split(b"\0")]
    if [applied.tree.encode() for applied in series.applied] != [tree for tree, _, _ in commits]:
        why = series.why or "another tree"
        raise QueueError(f"its patch files do not give the commits again: {why}")
    for applied, (_, _, message) in zip(series.applied, commits, strict=True):
        # Git takes a message that is not UTF-8 for Latin-1.
        texts = [message.decode(encoding, "replace") for encoding in ("utf-8", "latin-1")]
        if applied.message.split() not in [text.split() for text in texts]:
            subject = texts[0].partition("\n")[0]
            why = "git takes its first lines for headers or marks"
            raise QueueError(
                f"commit {subject!r}: its message cannot stand in a patch file: {why}",
                hint="reword it (git rebase -i)",
            )


#: The line that `git format-patch` writes before each mail; its date is a constant of git.
_GIT_LINE: Final = re.compile(rb"From [0-9a-f]{40,64} Mon Sep 17 00:00:00 2001\n")
_DIFF: Final = re.compile(rb"^(?:diff -|Index: |--- [^\n]+\n\+\+\+ )", re.MULTILINE)
#: Mail headers that say that the body is encoded or has several parts.
_ENCODED: Final = re.compile(
    rb"^content-(transfer-encoding:\s*(base64|quoted)|type:\s*multipart)",
    re.IGNORECASE | re.MULTILINE,
)
_COVER: Final = re.compile(rb"^subject:[^\n]*\[[^\]\n]*\b0+/\d+\]", re.IGNORECASE | re.MULTILINE)


def read_mbox(content: bytes, name: str) -> tuple[PatchFile, ...]:
    """Return the mails of an mbox, or a single mail, as patch files, without a cover letter."""
    # Editors may leave a byte order mark and empty lines at the start.
    content = content.removeprefix(b"\xef\xbb\xbf").lstrip(b"\r\n")
    if not content:
        raise QueueError(f"{name}: empty", hint="give it the output of `git format-patch --stdout`")
    mails = _split(content) if content.startswith(b"From ") else [content]
    files = []
    for number, mail in enumerate(mails, start=1):
        # A cover letter, which introduces a series, has no diff: skip this mail.
        if _DIFF.search(mail) or not _COVER.search(mail.partition(b"\n\n")[0]):
            title = name if len(mails) == 1 else f"{name}, mail {number}"
            # A first line with CRLF: the mail was saved with CRLF, which the patch does not have.
            saved = mail.partition(b"\n")[0].endswith(b"\r")
            files.append(PatchFile(title, mail.replace(b"\r\n", b"\n") if saved else mail))
    return tuple(files)


def is_plain(file: PatchFile) -> bool:
    """Return whether a mail has the form of `git format-patch`, and so needs no change."""
    head = file.content.partition(b"\n\n")[0]
    if not _GIT_LINE.match(file.content) or _ENCODED.search(head):
        return False
    try:
        check_form(file.name, file.content)
    except QueueError:
        return False
    return True


def _split(content: bytes) -> list[bytes]:
    """Return the mails of an mbox, split by `git mailsplit`, which `git am` uses."""
    # A first line with CRLF: the mailbox was saved with CRLF, which the patch does not have.
    keep = () if content.partition(b"\n")[0].endswith(b"\r") else ("--keep-cr",)
    with tempfile.TemporaryDirectory(prefix="contribbot-") as folder:
        process.run(
            ["git", "mailsplit", "-b", "-d5", *keep, f"-o{folder}"],
            cwd=Path(folder),
            env=git_environment({"GIT_CEILING_DIRECTORIES": tempfile.gettempdir()}),
            stdin=content,
        )
        return [path.read_bytes() for path in sorted(Path(folder).iterdir())]


_SOURCES: Final = "name a folder of patches, an mbox, or a clone and a range"


def read_files(places: Sequence[Path]) -> tuple[PatchFile, ...]:
    """Return the patches in files and folders, in the given order; in a folder, by name."""
    files: list[PatchFile] = []
    for place in places:
        inside = [place] if place.is_file() else []
        if place.is_dir():
            suffixes = {".patch", ".mbox", ".eml"}
            inside = sorted(path for path in place.iterdir() if path.suffix in suffixes)
        if not inside:
            what = "no patches in it" if place.is_dir() else "no such file or folder"
            hint = _SOURCES
            if _is_repository(place):
                hint = f"name the commits too: contribbot new NAME {place} A..B"
            raise UsageError(f"{place}: {what}", hint=hint)
        for path in inside:
            files += read_mbox(path.read_bytes(), path.name)
    return tuple(files)


_PULL: Final = re.compile(
    r"(?:https://[^/\s]+/)?(?P<repository>[\w.-]+/[\w.-]+)(?:#|/pull/)(?P<number>[1-9]\d{0,9})"
)


def pull_in(sources: Sequence[str]) -> tuple[str, int] | None:
    """Return repository and number if the only source is a pull request, else None."""
    match = _PULL.fullmatch(sources[0]) if len(sources) == 1 else None
    return (match["repository"], int(match["number"])) if match else None


def read_sources(
    sources: Sequence[str], *, pin: Pin, stdin: Callable[[], bytes], into: Store
) -> tuple[PatchFile, ...]:
    """Return the patches at `REPO A..B`, `REPO BRANCH`, a pull request, files, folders or `-`."""
    pull = pull_in(sources)
    if pull or list(sources) == ["-"]:
        return read_mbox(stdin(), "{}#{}".format(*pull) if pull else "standard input")
    if "-" in sources:
        raise UsageError("- stands alone", hint="name files, or standard input")
    first, *rest = map(Path, sources)
    if len(rest) == 1 and not rest[0].exists() and (_is_repository(first) or ".." in sources[1]):
        return read_range(first, sources[1], pin=pin, into=into)
    return read_files([first, *rest])


class Imported(Model):
    """The JSON document of `new` for imported commits."""

    patch: str
    pin: str
    written: bool = True
    patch_files: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    #: The patch files whose bytes differ from the imported mails.
    rewritten: tuple[str, ...] = ()
    adjustments: tuple[str, ...] = ()
    #: The patch files that git applied with a three-way merge.
    merged: tuple[str, ...] = ()
    conflicts: tuple[ConflictSide, ...] = ()
    version: int | None = None


def import_sources(
    queue: Queue,
    wish: Wish,
    sources: Sequence[str],
    *,
    stdin: Callable[[], bytes],
    progress: Progress,
) -> Imported:
    """Import commits as a new patch, if they apply; git's plain mails stay byte for byte."""
    pulled = pull_in(sources)
    if sources[0] != "-" and not pulled and not Path(sources[0]).exists():
        raise UsageError(f"{sources[0]}: no such file or folder", hint=_SOURCES)
    # Refuse a name in use before anything is read.
    pin = settle(queue, wish).pin
    store = open_store(stores_folder(), pin.upstream)
    files = read_sources(sources, pin=pin, stdin=stdin, into=store)
    if not files:
        raise QueueError(f"{sources[0]}: no patch in it", hint="it holds a cover letter only")
    fetched = fetch_pin(queue, pin, progress=progress)
    with transaction(queue.folder, f"new {wish.name}") as change:
        queue = load_queue(queue.folder)
        draft = settle(queue, wish)
        below = queue.with_dependencies(draft.depends_on)
        with store.exclusive():
            chain = PatchStack(queue, fetched).chain(fetched.commit, below)
            if chain.why:
                raise QueueError(chain.why, hint="contribbot verify shows the sides")
            series = apply_series(store, chain.commit, files, pin=pin.title, merge=True)
            if series.conflicts:
                sides = series.conflicts
                return Imported(patch=draft.name, pin=pin.title, written=False, conflicts=sides)
            written = format_commits(store, series.base, series.commit)
        touched = declared_paths(draft.name, store, series.base, series.commit)
        mails: list[PatchFile] = []
        rewritten: list[str] = []
        for old, new, applied in zip(files, written, series.applied, strict=True):
            content = old.content
            if applied.merged or not is_plain(old):
                # The first line, with the commit's id, stays.
                line = _GIT_LINE.match(old.content)
                content = _GIT_LINE.sub(line[0], new.content, count=1) if line else new.content
                rewritten.append(new.name)
            check_form(new.name, content)
            mails.append(PatchFile(new.name, content))
        upstream = queue.upstreams[pin.upstream]
        code = [path for path in touched if not upstream.is_test(path)]
        draft = replace(
            draft,
            title=draft.title or _title_of(series.applied[0].subject),
            problem=_problem_in(series.applied[0].message),
            pull="{}#{}".format(*pulled) if pulled else "",
            check=begun_check(draft.name, code),
        )
        add(change, draft, patches=mails)
        digests = {name: queue.patch(name).digest for name in below}
        version = history.record(change, draft.name, mails, pin, why="import", below=digests)
    return Imported(
        patch=draft.name,
        pin=pin.title,
        patch_files=tuple(file.name for file in mails),
        files=touched,
        rewritten=tuple(rewritten),
        adjustments=tuple(
            item.phrase for applied in series.applied for item in applied.adjustments
        ),
        merged=tuple(applied.file for applied in series.applied if applied.merged),
        version=version,
    )


def _title_of(subject: str) -> str:
    """Return a commit's subject as a title: printable, with single spaces."""
    text = "".join(char if char.isprintable() else " " for char in subject)
    title = " ".join(text.split())
    if not title:
        raise QueueError(f"the subject {subject!a} is no title", hint="give one with --title")
    return title


def _problem_in(message: str) -> str:
    """Return the text below a commit message's subject, without trailers."""
    body = message.partition("\n")[2].strip()
    prose = re.sub(r"(?:\n|\A)(?:[A-Z][A-Za-z-]+: [^\n]*(?:\n|\Z))+\Z", "", body + "\n").strip()
    return "".join(char for char in prose if char.isprintable() or char == "\n")


#: A line at which `git mailsplit` begins a new mail.
_MAIL_BEGINS: Final = re.compile(rb"^From [^\n]*\d:\d\d[^\n]* \d+\r?$", re.MULTILINE)
_FROM: Final = b"From " + b"0" * 40 + b" Mon Sep 17 00:00:00 2001\n"


class Export(Model):
    """The JSON document of `queue export`; the patch files are left out of the JSON."""

    pin: str
    patches: tuple[str, ...]
    base: str
    commits: tuple[str, ...] = ()
    conflicts: tuple[ConflictSide, ...] = ()
    output: str = ""
    added: tuple[str, ...] = Field(exclude=True)
    files: tuple[PatchFile, ...] = Field(default=(), exclude=True)


def export(queue: Queue, names: Sequence[str], *, progress: Progress) -> Export:
    """Return patches of one pin with their dependencies, applied on top of each other."""
    pins = {queue.pin_of(name).title for name in names}
    if len(pins) > 1:
        raise UsageError(
            f"the patches stand on several pins ({', '.join(sorted(pins))})",
            hint="name those of one pin: contribbot queue export NAME",
        )
    patches = [queue.patch(name) for name in queue.with_dependencies(names)]
    for patch in patches:
        if not patch.files:
            raise UsageError(
                f"{patch.name}: no commits yet",
                hint=f"make them with `contribbot edit {patch.name}`",
            )
    fetched = fetch_pin(queue, patches[0].pin, progress=progress)
    done = Export(
        pin=patches[0].pin.title,
        patches=tuple(patch.name for patch in patches),
        base=fetched.commit,
        added=tuple(patch.name for patch in patches if patch.name not in names),
    )
    exported: list[PatchFile] = []
    commits: list[str] = []
    tip, stack = fetched.commit, PatchStack(queue, fetched)
    with fetched.store.exclusive():
        for patch in patches:
            series = stack.series(tip, patch.files)
            if series.conflicts:
                return done.model_copy(update={"conflicts": series.conflicts})
            adjusted = any(applied.adjustments for applied in series.applied)
            whole = format_commits(fetched.store, tip, series.commit) if adjusted else patch.files
            exported += whole
            commits += series.commits
            tip = series.commit
    return done.model_copy(update={"commits": tuple(commits), "files": tuple(exported)})


def mbox(files: Sequence[PatchFile]) -> bytes:
    """Return one mbox of all patch files, for `git am --keep-cr`."""
    for file in files:
        if _MAIL_BEGINS.search(file.content.partition(b"\n")[2]):
            raise QueueError(
                f"{file.name}: a line reads as the first line of another mail",
                hint=f"reword the message, or send the file alone: git am {file.name}",
            )
    mails = (file.content for file in files)
    return b"".join(mail if mail.startswith(b"From ") else _FROM + mail for mail in mails)
