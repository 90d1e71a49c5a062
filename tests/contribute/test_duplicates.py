from __future__ import annotations

import json
import tomllib
from datetime import timedelta
from pathlib import Path

import pytest

from contribbot.contribute import duplicates
from contribbot.contribute.duplicates import fingerprint, look_file, terms
from contribbot.contribute.model import Gate
from contribbot.git.patch_format import functions, patch_id, patch_ids, touched_files
from contribbot.model.patch import PatchFile
from contribbot.queue.load import load_queue
from contribbot.queue.toml_edit import set_different
from tests.contribute.gatetoy import BESIDE, CHANGES, NOW, OTHERWISE, Table, close, edit
from tests.contribute.tracked import tracked_queue
from tests.toy import AREA

SAME = {path: str(text) for path, text in CHANGES.items()}


def toml_of(table: Table) -> Path:
    return table.toy.queue / "patches/area/patch.toml"


def likeness(table: Table) -> list[tuple[int, tuple[str, ...]]]:
    """Return number and what is in common, in the order that is shown."""
    candidates = table.gate().candidates
    return [(int(row.reference.partition("#")[2]), row.in_common) for row in candidates]


def test_each_kind_of_likeness_is_found_and_the_most_alike_comes_first(table: Table) -> None:
    table.pull("beside", BESIDE, title="Triangles")
    table.pull("issue", {"docs/x.md": "x\n"}, title="Write about it", body="Closes #1.")
    table.pull("far", {"docs/y.md": "y\n"}, title="Nothing", body="See #11 and bob/toy#1.")
    table.pull("otherwise", OTHERWISE, title="Rectangles")
    table.pull("same", SAME, title="Multiply")
    assert likeness(table) == [
        (6, ("the same change (patch-id)", "functions rectangle, test_area",
             "files src/toy/area.py, tests/test_area.py")),
        (3, ("mentions example/toy#1",)),
        (5, ("function rectangle", "file src/toy/area.py")),
        (2, ("file src/toy/area.py",)),
    ]  # fmt: skip


def test_one_commit_of_several_is_known_again(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    second = table.toy.format_patch({"src/toy/area.py": AREA.replace("side * side", "side**2")})
    (toml_of(table).parent / "0002-more.patch").write_bytes(second)
    table.pull("one", SAME, title="Half of it")
    assert likeness(table)[0][1][0] == "one of the patch's commits (patch-id)"
    # A pull request of several commits, of which one is the same.
    (toml_of(table).parent / "0002-more.patch").unlink()
    fork = table.github.state.repository("bob/toy")
    assert fork is not None
    for change in ({"docs/x.md": "x\n"}, SAME, {"docs/y.md": "y\n"}):
        content: dict[str, bytes | None] = {path: text.encode() for path, text in change.items()}
        table.github.commit(fork, "series", content, "A step\n", who=table.other)
    table.github.pull(table.upstream, fork, "series", title="A series", user=table.other)
    later = NOW + timedelta(hours=2)
    commons = {row.reference: row.in_common for row in table.gate(now=later).candidates}
    assert commons["example/toy#3"] == (
        "a commit of it is the same change (patch-id)", "functions rectangle, test_area",
        "files src/toy/area.py, tests/test_area.py",
    )  # fmt: skip
    monkeypatch.setattr(duplicates, "SERIES", 1)
    gate = table.gate(now=later + timedelta(hours=2))
    assert any(row.startswith("the commits of 1 of ") for row in gate.limits)


def test_merged_counts_closed_only_where_it_is_named_and_a_bots_landing_is_merged(
    table: Table,
) -> None:
    text = BESIDE["src/toy/area.py"]
    table.github.merge(table.pull("squashed", BESIDE), "squash")
    table.github.merge(table.pull("landed", OTHERWISE, title="By a bot"), "bot")
    close(table.pull("closed", {"src/toy/area.py": text + "\n\nY = 1\n"}))
    table.pull("draft", {"src/toy/area.py": text + "\n\nZ = 1\n"}).draft = True

    def states(gate: Gate) -> dict[str, str]:
        return {row.reference: str(row.state) for row in gate.candidates}

    assert states(table.gate()) == {
        "example/toy#2": "merged", "example/toy#3": "merged", "example/toy#5": "draft",
    }  # fmt: skip
    later = NOW + timedelta(days=duplicates.DAYS + 5)
    assert states(table.gate(now=later)) == {"example/toy#5": "draft"}
    # What the patch names is a candidate unless it is an issue.
    elsewhere = table.github.add_repository("bob/lib", members={"bob": "admin"})
    table.github.commit(elsewhere, "main", {"a": b"a\n"})
    table.github.commit(elsewhere, "fix", {"a": b"b\n"})
    table.github.pull(elsewhere, elsewhere, "fix", title="There", user=table.other)
    related = 'related = ["bob/lib#1", "example/toy#4", "example/toy#1", "bob/gone#3"]\n'
    edit(table.toy, "problem =", related + "problem =")
    gate = table.gate(now=later)
    assert states(gate) == {
        "bob/lib#1": "open", "example/toy#4": "closed", "example/toy#5": "draft",
    }  # fmt: skip
    assert any("bob/gone#3 could not be read" in row for row in gate.limits)


def test_without_an_answer_it_blocks_and_an_answer_is_written_where_people_write(
    table: Table,
) -> None:
    table.pull("beside", BESIDE)
    table.pull("otherwise", OTHERWISE, user=table.github.add_user("eve"))
    row = table.row("duplicates")
    assert row.state == "failed"
    assert "2 without an answer: example/toy#3, example/toy#2" in row.seen
    before = toml_of(table).read_text()

    def answer(text: str) -> int:
        return table.run("gate", "area", "--different", text).exit_code

    assert answer('example/toy#3=It only swaps "the sides" and has no test.') == 1
    assert answer("Example/Toy#2=It is about triangles, not rectangles.") == 0
    text = toml_of(table).read_text()
    assert text.startswith(before.rstrip("\n"))
    assert "# and a person read it" in text
    assert tomllib.loads(text)["contribution"]["different"] == {
        "example/toy#3": 'It only swaps "the sides" and has no test.',
        "Example/Toy#2": "It is about triangles, not rectangles.",
    }
    assert "different: It is about triangles" in table.run("gate", "area").stdout
    assert answer("example/toy#3=Another and far better reason.") == 0
    assert "swaps" not in toml_of(table).read_text()


STRANGER = "example/toy#99=It is about circles, and this is not."


def test_an_answer_to_what_is_no_candidate_is_refused_and_the_candidates_are_named(
    table: Table,
) -> None:
    table.pull("beside", BESIDE)
    assert table.run("gate", "area").exit_code == 1
    path = toml_of(table)
    before = path.read_bytes()
    done = table.run("gate", "area", "--different", STRANGER)
    assert (done.exit_code, done.stdout) == (2, "")
    assert "example/toy#99: it is no candidate of area; these are: example/toy#2" in done.stderr
    assert "`related`" in done.stderr
    assert path.read_bytes() == before
    # One that a person found goes into `related`; that is another question, and is asked anew.
    closed = table.pull("far", {"docs/y.md": "y\n"}, title="Circles", user=table.me)
    close(closed)
    edit(table.toy, "problem =", 'related = ["example/toy#3"]\nproblem =')
    named = STRANGER.replace("99", "3")
    shown = table.run("gate", "area", "--different", named, "--json").stdout
    answers = {row["reference"]: row["answer"] for row in json.loads(shown)["candidates"]}
    assert answers == {"example/toy#2": "", "example/toy#3": named.partition("=")[2]}


@pytest.mark.parametrize("how", ["offline", "no token"])
def test_an_answer_that_could_not_be_checked_is_said_to_be_none(table: Table, how: str) -> None:
    path = toml_of(table)
    if how == "offline":
        done = table.run("gate", "area", "--offline", "--different", STRANGER)
        why = "GitHub was not asked (--offline)"
    else:
        env = {"GITHUB_TOKEN": "", "PATH": "/nonexistent:/usr/bin:/bin"}
        done = table.run("gate", "area", "--different", STRANGER, **env)
        why = "no GitHub token for "
    assert "area: written, but not checked against the candidates: " in done.stderr
    assert why in done.stderr
    assert STRANGER.partition("=")[2] in path.read_text()


def test_an_answer_to_what_is_a_candidate_no_more_is_said_to_answer_nothing(table: Table) -> None:
    # Nobody has looked yet, so nobody can say that it is no candidate.
    done = table.run("gate", "area", "--offline", "--different", STRANGER)
    assert done.exit_code == 0
    row = table.row("duplicates")
    assert row.state == "passed"
    assert "example/toy#99 in `different` answers nothing now" in row.seen
    table.pull("beside", BESIDE)
    later = table.gate(now=NOW + timedelta(hours=2))
    row = table.row("duplicates", later)
    assert row.state == "failed"
    assert "1 without an answer: example/toy#2" in row.seen
    assert "example/toy#99 in `different` answers nothing now" in row.seen


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ("example/toy#3=no", "too short"),
        ("example/toy#3=it is not, it is not", "too short"),
        ("example/toy#3=1 2 3 4 5 6 7 8", "too short"),
        ("example/toy#3", "no pull request and a reason"),
        ("#3=a reason of several words", "no pull request and a reason"),
        ("example/toy#0=a reason of several words", "no pull request and a reason"),
        ("example/toy#3=a reason of several words\x1b[2J", "plain text"),
    ],
)
def test_what_is_no_reason_is_refused_and_nothing_is_written(
    table: Table, given: str, match: str
) -> None:
    path = toml_of(table)
    before = path.read_bytes()
    done = table.run("gate", "area", "--different", given)
    assert done.exit_code == 2
    assert match in done.stderr
    assert "\x1b" not in done.stderr
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "toml",
    [
        'title = "x"\n',
        'title = "x"\n\n[[checks]]\nname = "a"  # kept\n',
        '[contribution]\nai = "y"\n\n[contribution.different]\n"a/b#1" = "z"\n[[checks]]\nn = 1\n',
        '[contribution]\nai = "y"\ndifferent = { "a/b#1" = "z" }\n',
        'contribution = { ai = "y" }\n',
        '[contribution.different]\n"a/b#1" = "z"\n',
        'contribution.ai = "y"\n[other]\n',
    ],
)
def test_a_reason_is_added_to_any_layout(toml: str) -> None:
    changed = set_different(toml.encode(), {"o/n#7": 'Because of "that".'}).decode()
    wanted = tomllib.loads(toml)
    wanted.setdefault("contribution", {}).setdefault("different", {})["o/n#7"] = (
        'Because of "that".'
    )
    assert tomllib.loads(changed) == wanted
    assert all(word in changed for word in toml.split() if word.startswith("#"))


def test_a_look_is_remembered_for_an_hour_and_for_the_same_question(table: Table) -> None:
    table.pull("beside", BESIDE)
    first = table.gate()
    # What it holds may be of a repository that is not public.
    assert look_file(table.queue, "area").parent.stat().st_mode & 0o777 == 0o700
    table.pull("otherwise", OTHERWISE, user=table.github.add_user("eve"))
    assert table.gate(now=NOW + timedelta(minutes=59)).candidates == first.candidates
    assert table.gate(now=NOW + timedelta(minutes=59)).looked == NOW
    assert len(table.gate(now=NOW + timedelta(minutes=61)).candidates) == 2
    # A clock that was wrong once.
    assert table.gate(now=NOW).looked == NOW
    assert table.asked() == 5
    edit(table.toy, 'issue = "example/toy#1"', 'issue = "example/toy#2"')
    assert table.asked() > 5
    look_file(table.queue, "area").write_text("{")
    assert len(table.gate().candidates) == 2
    # A fault in the middle is not known, and remembers nothing.
    look_file(table.queue, "area").unlink()
    table.github.state.rate_limits["search"] = 0
    assert table.row("duplicates").state == "not known"
    assert not look_file(table.queue, "area").exists()


HOSTILE = "\x1b]0;owned\x07\x1b[2J\u202eevil\u202c [x](https://evil.example) <img> " + "A" * 150


def test_a_hostile_pull_request_is_shown_and_does_nothing(table: Table) -> None:
    eve = table.github.add_user("eve")
    table.pull("x", {**BESIDE, "a\u202eb": "\x1b[2J"}, title=HOSTILE, body="#1", user=eve)
    done = table.run("gate", "area")
    assert done.exit_code == 1
    assert all(char.isprintable() or char == "\n" for char in done.output)
    assert "example/toy#2 (open, eve)" in done.stdout
    assert max(map(len, done.stdout.splitlines())) < 400
    document = table.run("gate", "area", "--json").stdout
    assert all(char.isprintable() or char == "\n" for char in document)
    assert Gate.model_validate_json(document, strict=False).candidates[0].reference
    assert json.loads(document)["candidates"][0]["title"].startswith("\x1b]0;owned")


def test_a_look_at_a_busy_upstream_takes_a_bounded_number_of_requests(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(duplicates, "FILES_OF", 4)
    # What mentions the issue is looked into before what is only new.
    table.pull("issue", {"docs/x.md": "x\n"}, title="Old", body="Fixes example/toy#1")
    for number in range(6):
        text = BESIDE["src/toy/area.py"] + f"\n\nX{number} = {number}\n"
        table.pull(f"b{number}", {"src/toy/area.py": text}, title=f"Work {number}")
    # 5 for the other rules, 2 lists, 4 searches, 4 for files, and diffs of what shares a file.
    assert table.asked() == 5 + 2 + 4 + 4 + 3
    gate = table.gate()
    assert len(gate.candidates) == 4
    assert (2, ("mentions example/toy#1",)) in likeness(table)
    assert any("the files of 4 of 7 pull requests were compared" in row for row in gate.limits)


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
