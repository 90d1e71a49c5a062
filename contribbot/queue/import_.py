"""Taking patches from elsewhere into the queue: clones, mboxes, format-patch and quilt series."""

from __future__ import annotations

import email.utils
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter, ValidationError

from contribbot import process
from contribbot.errors import CommandError, MachineError, QueueError, UsageError
from contribbot.files import run_folder
from contribbot.git.apply import apply_series
from contribbot.git.patch_format import changes, check_form, format_commits, parse
from contribbot.git.repository import Store, git_environment, open_store
from contribbot.git.source import Progress
from contribbot.model.base import Model, TreePath
from contribbot.model.lifecycle import Side
from contribbot.model.patch import PatchFile
from contribbot.model.pin import Pin
from contribbot.queue import history
from contribbot.queue.load import Queue, load_queue
from contribbot.queue.new import Draft, Wish, add, settle
from contribbot.queue.stack import PatchStack, land
from contribbot.queue.transaction import transaction

#: Length of the object ids that stores have.
_SHA1: Final = 40


def read_range(
    clone: Path, wanted: str, *, pin: Pin | None, scratch: Path
) -> tuple[PatchFile, ...]:
    """Return commits of a clone as format-patch files.

    They are read through an empty repository that borrows the clone's objects: what the
    clone, its owner or the machine has configured is not even looked at.
    """
    store = _borrowing(clone, scratch)
    base, tip = _ends(store, clone, wanted, pin)
    try:
        files = format_commits(store, base, tip)
        _check(store, base, tip, files, scratch)
    except CommandError as error:
        raise UsageError(
            f"{clone}: git cannot read {wanted}: {error.stderr.strip().splitlines()[-1]}",
            hint=f"if the clone is partial, `git -C {clone} log -p {wanted}` fetches the rest",
        ) from error
    return files


def is_repository(folder: Path) -> bool:
    """Say whether a folder is a git repository, or the top of a work tree."""
    return (folder / ".git").exists() or (folder / "objects").is_dir()


def _ask(clone: Path, *args: str) -> str:
    """Ask the clone's git; nothing that it answers depends on settings. Empty where it says no."""
    done = process.run(
        # Another person's clone may be read: nothing of it is run.
        ["git", "-c", "safe.directory=*", "-C", clone, "rev-parse", *args],
        env=git_environment(),
        accept=(0, 1, 128),
    )
    return done.stdout.decode("utf-8", "surrogateescape").strip() if done.returncode == 0 else ""


def _borrowing(clone: Path, scratch: Path) -> Store:
    """Return a repository of our own that reads the clone's objects."""
    objects = _ask(clone, "--path-format=absolute", "--git-path", "objects")
    if not is_repository(clone) or not objects:
        raise UsageError(
            f"{clone}: not a git repository", hint="name a clone: contribbot import NAME REPO A..B"
        )
    store = open_store(scratch, "clone")
    (store.path / "objects" / "info" / "alternates").write_bytes(
        objects.encode("utf-8", "surrogateescape") + b"\n"
    )
    shallow = Path(_ask(clone, "--path-format=absolute", "--git-path", "shallow"))
    if shallow.is_file():
        (store.path / "shallow").write_bytes(shallow.read_bytes())
    return store


def _ends(store: Store, clone: Path, wanted: str, pin: Pin | None) -> tuple[str, str]:
    """Return the commits that a range lies between."""
    if "..." in wanted or wanted.startswith("-"):
        raise UsageError(f"{wanted}: not a range", hint="write A..B, or the name of a branch")
    lower, dots, upper = wanted.partition("..")
    tip = _commit(clone, (upper or "HEAD") if dots else wanted)
    if dots:
        below = _commit(clone, lower or "HEAD")
    else:
        named = [pin.commit, f"refs/tags/{pin.tag}"] if pin is not None else []
        ids = [_ask(clone, "--verify", "--quiet", f"{one}^{{commit}}") for one in named if one]
        below = next((one for one in ids if one), "")
        if not below:
            raise UsageError(
                f"{clone}: where does {wanted} start? It has no tag "
                f"{pin.tag if pin is not None else 'of a pin'}",
                hint=f"write the range: A..{wanted}",
            )
    said = store.git("merge-base", below, tip, accept=(0, 1, 128)).stdout.decode().split()
    if not said:
        raise UsageError(f"{clone}: {wanted}: the two ends have no history in common")
    if said[0] == tip:
        raise UsageError(f"{clone}: {wanted}: no commits in it", hint="is it the right way round?")
    return said[0], tip


def _commit(clone: Path, name: str) -> str:
    found = _ask(clone, "--verify", "--quiet", f"{name}^{{commit}}")
    if not found:
        raise UsageError(f"{clone}: no commit {name}", hint=f"see git -C {clone} log --oneline")
    if len(found) != _SHA1:
        raise UsageError(f"{clone}: its objects are not named by SHA-1, as those of a store are")
    return found


def _check(store: Store, base: str, tip: str, files: tuple[PatchFile, ...], scratch: Path) -> None:
    """See that the files give the commits again: that no message was cut, and no change lost."""
    made = apply_series(store, base, files, pin="where the range starts", scratch=scratch)
    raw = store.git("log", "-z", "--reverse", "--format=%T %B", f"{base}..{tip}").stdout
    wanted = [one.split(b" ", 1) for one in raw.rstrip(b"\0").split(b"\0")]
    if made.conflicts or len(made.applied) != len(wanted):
        reason = made.conflicts[0].headline if made.conflicts else "commits are missing"
        raise QueueError(f"its patch files do not give the commits again: {reason}")
    for one, (tree, message) in zip(made.applied, wanted, strict=True):
        if tree.decode() != one.tree:
            raise QueueError(f"{one.file}: does not give the tree of its commit again")
        if one.message.split() != _text(message).split():
            subject = _text(message).partition("\n")[0]
            if one.subject != subject and subject.endswith(one.subject):
                raise QueueError(
                    f"commit {subject!r}: of its first line a patch file keeps {one.subject!r} "
                    "only: git takes the rest for a mark of the mail",
                    hint="reword it (git rebase -i)",
                )
            raise QueueError(
                f"commit {subject!r}: its message cannot stand in a patch file: git takes a line "
                "such as `---`, `diff ` or `From:` for the end of it, or for a header",
                hint="reword it (git rebase -i)",
            )


def _text(message: bytes) -> str:
    try:
        return message.decode("utf-8")
    except UnicodeDecodeError:
        return message.decode("latin-1")  # as git reads a patch that does not say


#: A file's first line as git writes it by default, and as `diff.noprefix` makes it.
_PREFIXED: Final = re.compile(rb'diff --git "?a/[^\n]+ "?b/')
_HINT: Final = "write it again: git -c diff.noprefix=false format-patch, or quilt refresh -p ab"


def _check_paths(name: str, diff: bytes) -> None:
    """Refuse paths without the folders `a/` and `b/`, and paths that no tree has."""
    rows = re.findall(rb"^diff --git [^\n]*", diff, re.MULTILINE)
    if any(not _PREFIXED.match(row) for row in rows):
        raise QueueError(f"{name}: a diff without a/ and b/ before its paths", hint=_HINT)
    for file in parse(name, diff):
        for path in (file.source_file or "", file.target_file or ""):
            parts = path.lower().split("/")
            if path not in {"", "/dev/null"} and {"", ".", "..", ".git"} & {*parts}:
                raise QueueError(
                    f"{name}: no tree has the path {path!a}: it leaves the tree, is git's own, or "
                    "has a `.` or nothing between its slashes"
                )


#: What `git format-patch` puts before each mail; the date never changes.
_GIT_LINE: Final = re.compile(rb"From [0-9a-f]{40,64} Mon Sep 17 00:00:00 2001\n")
_FROM_LINE: Final = re.compile(rb"\AFrom [^\n]*\n")
_FIELD: Final = re.compile(rb"(?P<key>[A-Za-z][A-Za-z0-9-]*):[ \t]*(?P<value>[^\n]*)")
#: Where a diff starts.
_DIFF: Final = re.compile(rb"^(?:diff -|Index: |--- [^\n]+\n\+\+\+ )", re.MULTILINE)
#: Ways to send a mail that hide its lines until they are decoded.
_ENCODED: Final = re.compile(
    rb"^content-(transfer-encoding:\s*(base64|quoted)|type:\s*multipart)",
    re.IGNORECASE | re.MULTILINE,
)
_COVER: Final = re.compile(rb"^subject:[^\n]*\[[^\]\n]*\b0+/\d+\]", re.IGNORECASE | re.MULTILINE)
#: Fields above a diff that say who, when and what, and what they are.
_KNOWN: Final = {
    b"from": "author", b"author": "author", b"date": "date", b"last-update": "date",
    b"subject": "subject", b"description": "subject",
}  # fmt: skip
_PERSON: Final = re.compile(r"\s*[^<>\s][^<>]*<[^<>@\s]+@[^<>\s]+>\s*")
#: A name that a mail's header must quote: git would drop its quotes and backslashes.
_SPECIAL: Final = re.compile(r'(?P<name>[^"].*["\\].*?)(?P<address>\s*<[^<>]*>)')
#: What editors put before a text, and what is left of copying one.
_BEFORE: Final = re.compile(rb"\A(?:\xef\xbb\xbf)?[\r\n]*")


@dataclass(frozen=True)
class Given:
    """What whoever imports says of patches that do not say it themselves."""

    author: str = ""
    subject: str = ""

    def __post_init__(self) -> None:
        if self.author and not _PERSON.fullmatch(self.author):
            raise UsageError(
                f"--author {self.author}: not an author", hint="write it as 'Name <address>'"
            )


def read_mbox(content: bytes, name: str, scratch: Path, given: Given) -> tuple[PatchFile, ...]:
    """Read an mbox, one mail, or one bare diff."""
    content = _BEFORE.sub(b"", content)
    if not content.strip():
        raise QueueError(f"{name}: empty", hint="give it the output of `git format-patch --stdout`")
    mails = _split(content, scratch) if content.startswith(b"From ") else [content]
    found: list[PatchFile] = []
    for number, mail in enumerate(mails, start=1):
        called = name if len(mails) == 1 else f"{name}, mail {number}"
        if not _DIFF.search(mail) and _COVER.search(mail.partition(b"\n\n")[0]):
            continue  # the letter that introduces a series
        found.append(PatchFile(called, _as_mail(called, mail, given)))
    if not found:
        raise QueueError(f"{name}: no patch in it", hint="it holds a cover letter only")
    return tuple(found)


def read_one(name: str, content: bytes, given: Given) -> PatchFile:
    """Read one file of a quilt series."""
    stem = re.sub(r"\.(patch|diff)$", "", Path(name).name)
    return PatchFile(name, _as_mail(name, content, replace(given, subject=stem)))


def is_plain(file: PatchFile) -> bool:
    """Say whether a file is what `git format-patch` writes, so that it is kept as it is."""
    head = file.content.partition(b"\n\n")[0]
    if not _GIT_LINE.match(file.content) or _ENCODED.search(head):
        return False
    try:
        check_form(file.name, file.content)
    except QueueError:
        return False
    return True


def _split(content: bytes, scratch: Path) -> list[bytes]:
    """Take an mbox apart with the program that `git am` uses."""
    folder = scratch / "mails"
    folder.mkdir()
    # Line endings of a mailbox that was saved with CRLF are not the patch's own.
    keep = () if content.partition(b"\n")[0].endswith(b"\r") else ("--keep-cr",)
    process.run(
        ["git", "mailsplit", "-b", "-d5", *keep, f"-o{folder}"],
        cwd=scratch,
        env=git_environment({"GIT_CEILING_DIRECTORIES": str(scratch.parent)}),
        stdin=content,
    )
    mails = [path.read_bytes() for path in sorted(folder.iterdir())]
    process.remove_tree(folder)
    return mails


def _without_crs(content: bytes) -> bytes:
    """Undo a whole file's CRLF; where only some lines have it, it is the content's own."""
    if content.partition(b"\n")[0].endswith(b"\r"):
        return content.replace(b"\r\n", b"\n")
    return content


def _as_mail(name: str, content: bytes, given: Given) -> bytes:
    """Return a patch as a mail that git reads."""
    content = _without_crs(content)
    if not content.endswith(b"\n"):
        raise QueueError(
            f"{name}: no newline at the end, so it may be cut off", hint="write it again"
        )
    if _is_mail(content) and _ENCODED.search(content.partition(b"\n\n")[0]):
        return _dated(content)
    found = _DIFF.search(content)
    if found is None:
        raise QueueError(
            f"{name}: no diff in it: an empty commit, or no patch",
            hint="leave out what changes nothing",
        )
    if re.search(rb"^Binary files [^\n]+ differ$", content[found.start() :], re.MULTILINE):
        raise QueueError(
            f"{name}: a binary file without its content", hint="write it with `--binary`"
        )
    above, diff = content[: found.start()], content[found.start() :]
    _check_paths(name, diff)
    if _is_mail(content):
        return _dated(above) + diff
    return _compose(name, above, diff, given)


def _is_mail(content: bytes) -> bool:
    """Say whether it starts with the header of a mail that names author and subject."""
    keys = set()
    start = _FROM_LINE.match(content)
    for row in content[start.end() if start else 0 :].split(b"\n"):
        if not row:
            break
        field = _FIELD.match(row)
        if field:
            keys.add(field["key"].lower())
        elif not row.startswith((b" ", b"\t")) or not keys:
            return False
    return {b"from", b"subject"} <= keys


def _dated(mail: bytes) -> bytes:
    """Give a mail that has no date that of now, as `git am` does."""
    if re.search(rb"^date:", mail.partition(b"\n\n")[0], re.IGNORECASE | re.MULTILINE):
        return mail
    start = _FROM_LINE.match(mail)
    at = start.end() if start else 0
    return mail[:at] + b"Date: " + _now() + b"\n" + mail[at:]


def _now() -> bytes:
    return email.utils.format_datetime(datetime.now(UTC).replace(microsecond=0)).encode()


def _compose(name: str, above: bytes, diff: bytes, given: Given) -> bytes:
    """Write a mail from the text above a diff."""
    try:
        text = above.decode("utf-8")
    except UnicodeDecodeError:
        text = above.decode("latin-1")  # as git reads a mail that does not say
    fields, message = _header(text)
    author = fields.get("author", "")
    author = author if _PERSON.fullmatch(author) else given.author
    if not author:
        raise QueueError(
            f"{name}: it does not say who wrote it",
            hint="name the author: --author 'Name <address>'",
        )
    subject, _, body = message.partition("\n")
    if "subject" in fields:
        subject, body = fields["subject"], message
    if not subject.strip():
        subject = given.subject
    if not subject.strip():
        raise QueueError(f"{name}: it has no message", hint="give its first line with --title")
    head = (
        f"From: {_quoted(author.strip())}\n"
        f"Date: {fields.get('date') or _now().decode()}\n"
        f"Subject: [PATCH] {' '.join(subject.split())}\n"
        "MIME-Version: 1.0\nContent-Type: text/plain; charset=UTF-8\n"
        f"Content-Transfer-Encoding: 8bit\n\n{_lines(body)}\n---\n\n"
    )
    return head.encode() + diff


def _quoted(author: str) -> str:
    """Return a name and address as the header of a mail has them."""
    found = _SPECIAL.fullmatch(author)
    if found is None:
        return author
    return '"' + re.sub(r'(["\\])', r"\\\1", found["name"]) + '"' + found["address"]


def _lines(text: str) -> str:
    """Return a text without what is empty around it; its first line keeps its indentation."""
    return re.sub(r"\A(?:[^\S\n]*\n)+", "", text).rstrip()


def _header(text: str) -> tuple[dict[str, str], str]:
    """Take author, date and subject out of the text above a diff; return them and the rest."""
    fields: dict[str, str] = {}
    rest: list[str] = []
    long = False
    for row in text.split("\n"):
        if row.rstrip() == "---":
            break  # a diffstat follows
        found = re.match(r"([A-Za-z-]+):\s*(.*)", row)
        key = _KNOWN.get(found[1].lower().encode(), "") if found else ""
        if found and key and key not in fields:
            fields[key] = found[2].strip()
            long = key == "subject"
        elif long and row.startswith(" "):
            # DEP-3: the long description, indented by one, a lone dot for an empty line.
            rest.append("" if row.strip() == "." else row[1:])
        else:
            long = False
            rest.append(row)
    if "date" in fields and re.fullmatch(r"\d{4}-\d\d-\d\d", fields["date"]):
        fields["date"] += "T00:00:00+0000"
    return fields, _lines("\n".join(rest))


#: What a quilt series may say behind a patch's name: one folder to strip.
_LEVELS: Final = {"-p1", "-pab"}


def read_series(places: Sequence[Path], scratch: Path, given: Given) -> tuple[PatchFile, ...]:
    """Read files and folders of patches, in the order in which they are named.

    A folder with a file `series` is quilt's or StGit's; of any other the `*.patch` and
    `*.mbox` files are read by name. A file called `series` means the folder around it.
    """
    found: list[PatchFile] = []
    for place in places:
        if place.is_dir() and (place / "series").is_file():
            found += _quilt(place / "series", given)
        elif place.is_dir():
            inside = sorted(
                path for path in place.iterdir() if path.suffix in {".patch", ".mbox", ".eml"}
            )
            if not inside:
                hint = (
                    f"name the commits too: contribbot import NAME {place} A..B"
                    if is_repository(place)
                    else "name a folder of patches, an mbox, or a clone and a range"
                )
                raise UsageError(f"{place}: no patches in it", hint=hint)
            for path in inside:
                found += read_mbox(path.read_bytes(), path.name, scratch, given)
        elif place.name == "series" and place.is_file():
            found += _quilt(place, given)
        elif place.is_file():
            found += read_mbox(place.read_bytes(), place.name, scratch, given)
        else:
            raise UsageError(f"{place}: no such file or folder")
    return tuple(found)


def _quilt(series: Path, given: Given) -> list[PatchFile]:
    """Read the patches that a quilt series names, in its order."""
    found = []
    for number, row in enumerate(series.read_text("utf-8", "replace").splitlines(), start=1):
        words = re.sub(r"(^|\s)#.*", "", row).split()
        if not words:
            continue
        name, options = words[0], words[1:]
        unknown = [option for option in options if option not in _LEVELS]
        if unknown:
            raise QueueError(
                f"{series}:{number}: {name} has {unknown[0]}, which is not understood here",
                hint="write it for one folder to strip: quilt refresh -p ab",
            )
        path = series.parent / name
        if not path.is_file():
            raise QueueError(f"{series}:{number}: {name}: no such file")
        found.append(read_one(name, path.read_bytes(), given))
    if not found:
        raise UsageError(f"{series}: no patches in it")
    return found


def read_sources(
    sources: Sequence[str],
    *,
    pin: Pin,
    stdin: Callable[[], bytes],
    given: Given,
    scratch: Path,
) -> tuple[PatchFile, ...]:
    """Read what a user named: `REPO A..B`, `REPO BRANCH`, files and folders, or `-`."""
    if list(sources) in ([], ["-"]):
        return read_mbox(stdin(), "standard input", scratch, given)
    if "-" in sources:
        raise UsageError("- stands alone", hint="name files, or standard input")
    first = Path(sources[0])
    if len(sources) == 2 and is_repository(first) and not Path(sources[1]).exists():  # noqa: PLR2004  a clone and a range
        return read_range(first, sources[1], pin=pin, scratch=scratch)
    if len(sources) == 2 and ".." in sources[1] and not Path(sources[1]).exists():  # noqa: PLR2004  see above
        raise UsageError(f"{first}: not a git repository", hint="name a clone, then the range")
    return read_series([Path(one) for one in sources], scratch, given)


_TREE_PATH: Final = TypeAdapter[str](TreePath)


class Imported(Model):
    """What `import --json` prints."""

    patch: str
    pin: str
    written: bool = True
    patch_files: tuple[str, ...] = ()
    #: Every path that it changes.
    files: tuple[str, ...] = ()
    #: The patch files that are not the bytes that came.
    rewritten: tuple[str, ...] = ()
    adjustments: tuple[str, ...] = ()
    conflicts: tuple[Side, ...] = ()
    version: int | None = None


def import_sources(
    queue: Queue,
    wish: Wish,
    sources: Sequence[str],
    *,
    stdin: Callable[[], bytes],
    given: Given,
    progress: Progress,
) -> Imported:
    """Read what a user named, and add it to the queue."""
    # Before anything is read: a name that is taken is said at once.
    pin = settle(queue, wish).pin
    with run_folder() as scratch:
        files = read_sources(sources, pin=pin, stdin=stdin, given=given, scratch=scratch)
    return import_patch(queue, wish, files, progress=progress)


def import_patch(
    queue: Queue, wish: Wish, files: Sequence[PatchFile], *, progress: Progress
) -> Imported:
    """Add a patch to the queue, unless it does not apply to its pin.

    A plain mail of git is kept byte for byte; anything else (another program's file, an
    encoded mail, a mail of a list) is applied and written anew, as `git format-patch`
    writes it.
    """
    draft = settle(queue, wish)
    with run_folder() as scratch:
        made = _make(queue, draft, files, scratch=scratch, progress=progress)
    if isinstance(made, Imported):
        return made
    with transaction(queue.folder) as change:
        there = load_queue(queue.folder)
        draft = settle(there, wish)
        if _ground(there, draft) != made.ground:
            raise MachineError(
                f"{queue.folder}: changed by somebody else just now; nothing was written",
                hint="run it again",
            )
        if not wish.title:
            draft = replace(draft, title=made.title)
        add(change, draft, patches=made.files, touched=made.outcome.files)
        below = {name: there.patch(name).digest for name in _below(there, draft)}
        number = history.record(
            change, draft.name, made.files, draft.pin, why="import", below=below
        )
    return made.outcome.model_copy(update={"version": number})


@dataclass(frozen=True)
class _Made:
    """A patch as it will be written, and what it was worked out on."""

    files: tuple[PatchFile, ...]
    title: str
    outcome: Imported
    ground: tuple[object, ...]


def _ground(queue: Queue, draft: Draft) -> tuple[object, ...]:
    """Return everything that the base of a patch depends on."""
    lower = [(name, queue.patch(name).digest) for name in _below(queue, draft)]
    return (draft.pin, *lower)


def _below(queue: Queue, draft: Draft) -> list[str]:
    names = [low for one in draft.depends_on for low in (*queue.below(one), one)]
    return list(dict.fromkeys(names))


def _make(
    queue: Queue, draft: Draft, files: Sequence[PatchFile], *, scratch: Path, progress: Progress
) -> _Made | Imported:
    """Apply the files in memory; return them as they will be, or why they do not apply."""
    landed = land(queue, draft.pin, progress=progress)
    store, pin = landed.store, draft.pin.title
    with store.exclusive():
        stack = PatchStack(queue, landed, scratch)
        below = stack.chain(landed.commit, _below(queue, draft))
        if below.why:
            raise QueueError(below.why, hint="mend it first: contribbot verify shows the sides")
        series = stack.series(below.tip, files)
        if series.conflicts:
            sides = tuple(conflict.side for conflict in series.conflicts)
            return Imported(patch=draft.name, pin=pin, written=False, conflicts=sides)
        written = format_commits(store, series.base, series.commit)
        touched = sorted({one.path for one in changes(store, series.base, series.commit)})
    if not touched:
        raise QueueError("its commits take back what they do: nothing is changed")
    kept = tuple(
        PatchFile(new.name, old.content) if is_plain(old) else new
        for old, new in zip(files, written, strict=True)
    )
    for path in touched:
        _check_path(path)
    for file in kept:
        check_form(file.name, file.content)
    outcome = Imported(
        patch=draft.name,
        pin=pin,
        patch_files=tuple(file.name for file in kept),
        files=tuple(touched),
        rewritten=tuple(
            new.name for old, new in zip(files, written, strict=True) if not is_plain(old)
        ),
        adjustments=tuple(item.phrase for one in series.applied for item in one.adjustments),
    )
    title = draft.title or _title_of(series.applied[0].subject)
    return _Made(kept, title, outcome, _ground(queue, draft))


def _title_of(subject: str) -> str:
    """Return a subject as a title: a commit's may have what no title can have."""
    text = "".join(char if char.isprintable() else " " for char in subject)
    title = " ".join(text.split())
    if not title:
        raise QueueError(f"the subject {subject!a} is no title", hint="give one with --title")
    return title


def _check_path(path: str) -> None:
    """Refuse a path that `files` of patch.toml cannot hold."""
    try:
        _TREE_PATH.validate_python(path)
    except ValidationError as error:
        raise QueueError(
            f"the path {path!a} cannot stand in `files` of patch.toml",
            hint="name the file so that it can be printed, without a backslash",
        ) from error
