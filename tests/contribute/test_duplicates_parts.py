from __future__ import annotations

import pytest

from contribbot.contribute.duplicates import (
    fingerprint,
    functions,
    patch_id,
    patch_ids,
    terms,
    touched_files,
)
from contribbot.model.patch import PatchFile
from contribbot.queue.load import load_queue
from tests.contribute.tracked import tracked_queue

PYTHON = (
    "@@ -14,6 +14,6 @@ class Norm:\n \n \n         first = inner(x)\n-        second = 1\n"
    "+        second = first\n         return second\n \n \n"
)
KERNEL = "@@ -1,2 +1,2 @@ template <typename T> __global__ void fuse(const T* a) {\n-x\n+y\n"


@pytest.mark.parametrize(
    ("path", "hunks", "names"),
    [
        ("a.py", PYTHON, {"Norm"}),
        ("a.cu", KERNEL, {"fuse"}),
        ("a.h", "@@ -1 +1 @@ struct Quant : Base {\n-x\n+y\n", {"Quant"}),
        ("a.cu", "@@ -1 +1 @@ if (x) {\n-x\n+y\n", set()),
        *(
            ("a.py", odd, set())
            for odd in ("", "@@", "@@ -1 +x @@\n", "\x00\n@@ -0,0 +1 @@", "-\n+\n" * 9)
        ),
    ],
)
def test_functions_are_named_by_the_hunks(path: str, hunks: str, names: set[str]) -> None:
    assert functions(path, hunks) == names


def test_patch_ids_do_not_care_for_places_and_nonsense_has_none() -> None:
    diff = b"diff --git a/x b/x\nindex 1..2 100644\n--- a/x\n+++ b/x\n@@ -%d +%d @@\n-a\n+b\n"
    assert patch_id(diff % (1, 1)) == patch_id(b"From: me\n\n" + diff % (9, 9)) != ""
    assert patch_id(b"<html>") == patch_id(b"") == ""


def test_the_ids_of_a_series_are_those_of_its_commits() -> None:
    diff = b"diff --git a/x b/x\nindex 1..2 100644\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+%s\n"
    mail = b"From %s Mon Sep 17 00:00:00 2001\nFrom: me\nSubject: x\n\n---\n\n%s-- \n2.0\n\n"
    series = b"".join(mail % (sha * 40, diff % new) for sha, new in ((b"1", b"b"), (b"2", b"c")))
    assert patch_ids(series) == (patch_id(diff % b"b"), patch_id(diff % b"c"))
    assert patch_ids(b"<html>") == patch_ids(b"") == ()


def test_a_deleted_and_a_moved_file_are_touched() -> None:
    diff = (
        b"diff --git a/x b/x\ndeleted file mode 100644\nindex 1..0\n--- a/x\n+++ /dev/null\n"
        b"@@ -1 +0,0 @@\n-a\n"
        b"diff --git a/o b/n\nsimilarity index 90%\nrename from o\nrename to n\nindex 1..2 100644\n"
        b"--- a/o\n+++ b/n\n@@ -1 +1 @@\n-a\n+b\n"
    )
    assert [
        (row.path, row.before, row.removed) for row in touched_files([PatchFile("x", diff)])
    ] == [("x", "", True), ("n", "o", False)]


def test_the_real_patches_are_searched_for_by_telling_names() -> None:
    queue = load_queue(tracked_queue())
    found_terms = {name: terms(fingerprint(queue, name)) for name in queue.specs}
    assert all(1 <= len(row) <= 5 for row in found_terms.values())
    assert found_terms["stable-softmax"][0] == "60939"
    assert (
        '"per_token_group_quant_8bit_packed_register_kernel" in:title,body'
        in (found_terms["fp8-hw-convert"])
    )
    assert all(len(term) < 120 for row in found_terms.values() for term in row)
