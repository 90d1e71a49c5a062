"""A series is what `git am` and `git apply` make of its patch files."""

from __future__ import annotations

import pytest

from contribbot.errors import QueueError
from contribbot.git.apply import apply_series
from contribbot.git.patch_format import read_mail
from contribbot.git.repository import Store
from contribbot.model.patch import PatchFile
from tests.toy import Toy, git


@pytest.fixture
def store(toy: Toy) -> Store:
    return toy.fetched()


PLAIN = b"""\
From 0000000000000000000000000000000000000000 Mon Sep 17 00:00:00 2001
From: Ada Example <ada@example.com>
Date: Tue, 14 Nov 2023 23:13:20 +0100
Subject: [PATCH] Change a thing

Why it is changed.

---
 README | 2 +-
 1 file changed, 1 insertion(+), 1 deletion(-)

diff --git a/README b/README
index 1..2 100644
--- a/README
+++ b/README
@@ -1 +1 @@
-toy
+x
"""
AUTHORS = (
    b"Ada Example <ada@example.com>", b"=?UTF-8?q?Zo=C3=AB?= <z@example.com>",
    b'"Example, Ada" <ada@example.com>', b"ada@example.com (Ada Example)", b"Jo <jo@example.com>",
    b"Ada Example Jr. <ada@example.com>", b"A" * 70 + b" <ada@example.com>",
    b"Ada Example <ada@localhost>", b"Zo\xc3\xab Raw <z@example.com>",
    "=?UTF-8?q?J=C3=BCrgen?= Šimić <j@example.com>".encode(),
    b"R\xe9mi L1 <r@example.com>",
)  # fmt: skip
DATES = (
    b"Tue, 14 Nov 2023 23:13:20 +0100", b"Thu, 1 Jan 2026 00:00:00 -0330",
    b"Thu, 1 Jan 2026 00:00:00 -0000", b"1700000000 +0000", b"Tue, 14 Nov 2023 23:13:20 GMT",
    b"Mon, 14 Nov 2023 23:13:20 +0100", b"Sat, 1 Jan 2000 00:00:60 +0000",
    b"Tue, 30 Feb 2021 01:02:03 +0545",
)  # fmt: skip


def mail(author: bytes, date: bytes) -> bytes:
    start, _, rest = PLAIN.partition(b"From: ")
    _, _, diff = rest.partition(b"---\n")
    fields = b"From: %s\nDate: %s\nSubject: [PATCH v2 3/7] [ROCm] Two  words\n\n" % (author, date)
    return start + fields + "Zoë\n".encode() + b"---\n" + diff


def test_a_mail_is_read_as_git_am_reads_it() -> None:
    read = read_mail(PatchFile("x.patch", mail(AUTHORS[2], DATES[0])))
    assert (read.name, read.email, read.date) == (
        "Example, Ada",
        "ada@example.com",
        DATES[0].decode(),
    )
    assert (read.subject, read.message) == ("[ROCm] Two words", "[ROCm] Two words\n\nZoë\n")
    assert read.paths == {"README"}
    with pytest.raises(QueueError, match=r"x\.patch: no date in its header"):
        read_mail(PatchFile("x.patch", PLAIN.replace(b"Date: ", b"X-Date: ")))


def test_the_commits_are_those_that_commit_tree_makes(toy: Toy, store: Store) -> None:
    for date, author in zip(DATES, AUTHORS, strict=False):
        file = PatchFile("x.patch", mail(author, date))
        read = read_mail(file)
        env = {
            "GIT_AUTHOR_NAME": read.name, "GIT_AUTHOR_EMAIL": read.email,
            "GIT_AUTHOR_DATE": read.date, "GIT_COMMITTER_DATE": read.date,
            "GIT_COMMITTER_NAME": "contribbot", "GIT_COMMITTER_EMAIL": "contribbot@localhost",
        }  # fmt: skip
        done = store.git(
            "commit-tree", store.tree_of(toy.commit), "-p", toy.commit,
            stdin=read.message.encode(), env=env, accept=(0, 128),
        )  # fmt: skip
        if done.returncode:
            with pytest.raises(QueueError, match=r"x\.patch: invalid date format: "):
                apply_series(store, toy.commit, [file], pin="x")
            continue
        (made,) = apply_series(store, toy.commit, [file], pin="x").applied
        form = ("log", "-1", "--format=%an%n%ae%n%ad%n%cn%n%ce%n%cd%n%B", "--date=raw")
        # git 2.39 takes the dot off, 2.47 does not.
        expected = store.git(*form, done.stdout.decode().strip()).stdout.replace(b"Jr\n", b"Jr.\n")
        assert store.git(*form, made.commit).stdout == expected, (author, date)


def test_a_path_that_recurs_is_what_git_makes_of_it(toy: Toy, store: Store) -> None:
    long = "".join(f"line {n}\n" for n in range(40))
    base = toy.change({"long.txt": long}, "Long")
    toy.fetched()
    for number in range(0, 40, 8):
        long = long.replace(f"line {number}\n", f"{number}\n")
        toy.change({"long.txt": long}, f"Line {number}")
    toy.change({"long.txt": None, "other.txt": long}, "Rename")
    toy.change({"other.txt": long.replace("line 20\n", "20\n")}, "Under the new name")
    toy.change({"README": None, "README/first": "a folder now\n"}, "A folder for a file")
    commits = git(toy.upstream, "rev-list", "--reverse", f"{base}..HEAD").decode().split()
    contents = [git(toy.upstream, "format-patch", "-1", "-M", "--stdout", one) for one in commits]
    patches = [PatchFile(f"{n}.patch", one) for n, one in enumerate(contents)]
    series = apply_series(store, base, patches, pin="x")
    trees = git(toy.upstream, "log", "--reverse", "--format=%T", f"{base}..HEAD").decode().split()
    assert [applied.tree for applied in series.applied] == trees
