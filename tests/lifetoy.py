"""A toy upstream with content that tools stumble over, and helpers for moving patches about."""

from __future__ import annotations

import subprocess
from pathlib import Path

from contribbot.files import stores_folder
from contribbot.git.apply import apply_series
from contribbot.git.pins import Silent
from contribbot.git.pins.sources import provide
from contribbot.git.repository import open_store
from contribbot.queue.load import Queue, load_queue
from tests.buildtoy import with_sources
from tests.toy import FIXED, GIT_ENV, Toy, git

CRLF = b"one\r\ntwo\r\nthree\r\nfour\r\n"
LATIN = "gr\xfc\xdfe\nund k\xfcsse\n".encode("latin-1")
BINARY = bytes(range(256)) * 8


def awkward(toy: Toy) -> None:
    """Give the upstream files that tools stumble over, and put the pin there."""
    toy.write("dos.txt", CRLF)
    toy.write("latin.txt", LATIN)
    toy.write("data.bin", BINARY)
    toy.write("tool.sh", "#!/bin/sh\necho tool\n")
    toy.write("docs/old name.md", "".join(f"line {n}\n" for n in range(30)))
    toy.write("no-newline", "end")
    toy.write("empty", "")
    (toy.upstream / "link").symlink_to("README")
    with_sources(toy, {})
    toy.put_queue([])


def commit(
    folder: Path, message: str | bytes, changes: dict[str, str | bytes | None], **env: str
) -> str:
    """Change files of a work tree and commit; None deletes."""
    for path, content in changes.items():
        target = folder / path
        if content is None:
            target.unlink()
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content.encode() if isinstance(content, str) else content)
    git(folder, "add", "-A")
    text = message if isinstance(message, bytes) else message.encode()
    subprocess.run(
        ["git", "commit", "-q", "--cleanup=verbatim", "-F", "-"],
        cwd=folder, env={**GIT_ENV, **env}, input=text, check=True, capture_output=True,
    )  # fmt: skip
    return git(folder, "rev-parse", "HEAD").decode().strip()


def resolve(tree: Path, content: str = FIXED, path: str = "src/toy/area.py") -> None:
    """Resolve the conflict of a cherry-pick in a file, as a person does."""
    (tree / path).write_text(content)
    git(tree, "add", "-A")
    git(tree, "-c", "core.editor=true", "cherry-pick", "--continue")


def clone(toy: Toy) -> Path:
    """Clone the upstream as a developer does, with settings that would spoil patches."""
    folder = toy.root / "clone"
    git(toy.root, "clone", "-q", str(toy.upstream), str(folder))
    for key, value in SPOILERS.items():
        git(folder, "config", key, value)
    hook = folder / ".git" / "hooks" / "post-index-change"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text('#!/bin/sh\ntouch "$(git rev-parse --git-dir)/hook-ran"\n')
    hook.chmod(0o755)
    return folder


SPOILERS = {
    "diff.noprefix": "true", "diff.mnemonicPrefix": "true", "diff.renames": "copies",
    "diff.algorithm": "patience", "diff.context": "0",
    "commit.gpgsign": "false", "format.signOff": "true", "format.attach": "yes",
    "format.numbered": "true", "format.subjectPrefix": "SPOILT", "format.coverLetter": "true",
    "format.headers": "X-Spoilt: 1\n", "format.from": "Spoil <spoil@example.com>",
    "color.ui": "always", "core.quotePath": "false", "submodule.recurse": "true",
    "i18n.logOutputEncoding": "ISO-8859-1",
}  # fmt: skip


def three_commits(folder: Path) -> str:
    """Commit content, renames, modes, and what is no text, on top of the clone; return the base."""
    base = git(folder, "rev-parse", "HEAD").decode().strip()
    commit(
        folder,
        "Multiply the sides\n\nAdding them is no area.\n\nFrom here on: \xe4rea.\n",
        {"src/toy/area.py": FIXED, "dos.txt": CRLF.replace(b"two", b"zwei"),
         "latin.txt": LATIN.replace(b"und", b"\xfcnd")},
        GIT_AUTHOR_NAME="J\xf6rg \xc4rger",
    )  # fmt: skip
    (folder / "docs" / "old name.md").rename(folder / "docs" / "n\xe4me.md")
    commit(
        folder,
        "[AMD] Move and make it run\n",
        {"docs/n\xe4me.md": "".join(f"line {n}\n" for n in range(29)) + "last\n",
         "no-newline": "no end", "added/empty": "", "empty": None},
    )  # fmt: skip
    (folder / "tool.sh").chmod(0o755)
    commit(folder, "Make the tool run\n", {"new.py": "X = 1\n"})
    return base


def tree_of(queue: Queue, name: str) -> str:
    """Return the tree that contribbot makes of a patch on its pin and what is below it."""
    patch = queue.patch(name)
    store = open_store(stores_folder(), patch.upstream.name)
    base = provide(patch.pin, patch.upstream, store, progress=Silent()).commit
    for one in (*queue.below(name), name):
        series = apply_series(store, base, queue.patch(one).files, pin="pin")
        assert series.conflicts == ()
        base = series.commit
    return store.tree_of(base)


def reloaded(toy: Toy) -> Queue:
    """Load the queue afresh."""
    return load_queue(toy.queue)
