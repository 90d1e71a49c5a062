from __future__ import annotations

import json
import re
import tomllib
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from contribbot.contribute import duplicates
from contribbot.contribute.attest import require
from contribbot.contribute.duplicates import functions_of, look_file, title_words
from contribbot.contribute.model import Gate, Look
from contribbot.errors import AttestationError
from contribbot.queue.toml_edit import set_different
from tests.contribute.place import BESIDE, CHANGES, NOW, OTHERWISE, Table, close, edit
from tests.github.faults import primary_limit


def toml_of(table: Table) -> Path:
    return table.toy.queue / "patches/area/patch.toml"


def likeness(table: Table) -> list[tuple[int, str, tuple[str, ...], tuple[str, ...]]]:
    rows = table.gate().candidates
    return [(int(it.reference.partition("#")[2]), it.issue, it.files, it.words) for it in rows]


def test_an_issue_links_and_so_do_a_file_and_a_title_word(table: Table) -> None:
    table.pull("far", {"docs/y.md": "y\n"}, title="Nothing", body="See #11 and bob/toy#1.")
    table.pull("issue", {"docs/x.md": "x\n"}, title="Write about it", body="Closes #1.")
    table.pull("words", {"docs/z.md": "z\n"}, title="Multiply the docs")
    table.pull("file", BESIDE, title="Triangles")
    table.pull("same", CHANGES, title="[Perf] multiply all")
    assert likeness(table) == [
        (3, "example/toy#1", (), ()),
        (6, "", ("src/toy/area.py", "tests/test_area.py"), ("multiply",)),
    ]


@pytest.mark.parametrize(
    ("title", "words"),
    [
        ("[AMD] Hand aiter's RMSNorm kernels the 2D layout they read",
         ("rmsnorm", "aiter", "layout")),
        ("Fix it", ()),
    ],
)  # fmt: skip
def test_a_title_is_told_by_its_long_words(title: str, words: tuple[str, ...]) -> None:
    assert sorted(title_words(title)) == sorted(words)


def test_merged_counts_closed_only_where_it_is_named_and_a_bots_landing_is_merged(
    table: Table,
) -> None:
    text, title = BESIDE["src/toy/area.py"], "Multiply otherwise"
    table.github.merge(table.pull("squashed", BESIDE, title=title), "squash")
    table.github.merge(table.pull("landed", OTHERWISE, title="Multiply by a bot"), "bot")
    close(table.pull("closed", {"src/toy/area.py": text + "\n\nY = 1\n"}, title=title))
    table.pull("draft", {"src/toy/area.py": text + "\n\nZ = 1\n"}, title=title).draft = True

    def states(gate: Gate) -> dict[str, str]:
        return {row.reference: str(row.state) for row in gate.candidates}

    assert states(table.gate()) == {
        "example/toy#2": "merged", "example/toy#3": "merged", "example/toy#5": "draft",
    }  # fmt: skip
    later = NOW + timedelta(days=duplicates.DAYS + 5)
    assert states(table.gate(now=later)) == {"example/toy#5": "draft"}
    # The pull requests in `related` are candidates, also in other repositories.
    elsewhere = table.github.add_repository("bob/lib", members={"bob": "admin"})
    table.github.commit(elsewhere, "main", {"a": b"a\n"})
    table.github.commit(elsewhere, "fix", {"a": b"b\n"})
    table.github.pull(elsewhere, elsewhere, "fix", title="There", user=table.other)
    related = 'related = ["bob/lib#1", "example/toy#4", "example/toy#1"]\n'
    edit(table.toy, "problem =", related + "problem =")
    gate = table.gate(now=later)
    assert states(gate) == {
        "bob/lib#1": "open", "example/toy#4": "closed", "example/toy#5": "draft",
    }  # fmt: skip
    edit(table.toy, '"example/toy#1"]', '"bob/gone#3"]')
    assert table.row("duplicates").state == "not known"


def test_a_change_that_was_turned_down_is_told_with_a_maintainers_last_word(table: Table) -> None:
    table.upstream.members["carol"] = "write"
    carol = table.github.add_user("carol")
    said = table.pull("said", OTHERWISE, title="Nothing alike", body="Mends rectangle.")
    named = table.pull("named", {"docs/x.md": "x\n"}, title="Words")
    # The comment is an event in the issue's timeline.
    table.github.add_comment(named.issue, table.other, "For #1.")
    table.pull("beside", BESIDE, title="Nothing, too", body="Mends rectangle.")
    for user, text in ((carol, "Callers give the sides."), (carol, "No:\x1b[2J callers."),
                       (table.other, "Please?")):  # fmt: skip
        table.github.add_comment(said.issue, user, text)
    for pull in table.upstream.pulls():
        close(pull)
    # Pull requests that were turned down count at any age.
    gate = table.gate(now=NOW + timedelta(days=10 * duplicates.DAYS))
    row = table.row("turned-down", gate)
    assert row.state == "failed"
    assert f"2 closed without being merged: example/toy#{named.number}; " in row.seen
    assert [(it.functions, it.last_word) for it in gate.candidates] == [
        ((), ""), (("rectangle",), "carol: No: callers."),
    ]  # fmt: skip
    assert table.row("duplicates", gate).state == "passed"
    for number in (named.number, said.number):
        why = f"example/toy#{number}=It asks the callers what they give."
        assert table.program("gate", "area", "--different", why).code == (number != said.number)
    assert "carol: No: callers." in table.program("gate", "area").out


def test_a_patch_for_an_issue_begins_with_what_was_tried_for_it(table: Table) -> None:
    table.upstream.members["bob"] = "write"
    tried = table.pull("tried", OTHERWISE, title="Areas", body="Fixes #1")
    table.github.add_comment(tried.issue, table.other, "The callers are wrong.")
    close(tried)
    done = table.program("new", "again", "--title", "[Bugfix] Again", "--issue", "1")
    assert (done.code, done.err) == (0, "")
    told = f"example/toy#{tried.number} (closed, bob): Areas"
    assert all(words in done.out for words in (told, "bob: The callers are wrong.", "--different"))
    stated = table.queue.specs["again"].contribution
    assert (stated.issue, stated.different) == ("example/toy#1", {})
    for number, code in (("77", 3), ("x", 2)):
        done = table.program("new", "other", "--title", "[Bugfix] T", "--issue", number)
        assert (done.code, done.err.count("\n")) == (code, 1), done.err
        assert "other" not in table.queue.specs


@pytest.mark.parametrize(
    ("diff", "names"),
    [
        ("@@ -1,4 +1,4 @@ def first(a):\n     x\n-    y\n+    z\n", {"first"}),
        ("@@ -1,4 +1,4 @@ def first(a):\n x\n\n def second():\n-    y\n", {"second"}),
        ("@@ -1,4 +1,4 @@ class Kernel:\n-y\n", {"Kernel"}),
        ("@@ -1,4 +1,4 @@ void launch(int n) {\n-y\n", {"launch"}),
        ("@@ -1 +1 @@\n-y\n+z\n", set()),
    ],
)
def test_the_functions_of_a_diff_are_those_whose_lines_change(diff: str, names: set[str]) -> None:
    assert functions_of(diff) == names


def test_without_an_answer_it_blocks_and_an_answer_is_written_where_people_write(
    table: Table,
) -> None:
    table.pull("beside", BESIDE, title="Multiply")
    table.pull("otherwise", OTHERWISE, title="Multiply", user=table.github.add_user("eve"))
    row = table.row("duplicates")
    assert row.state == "failed"
    assert "2 without an answer: example/toy#3; example/toy#2" in row.seen
    before = toml_of(table).read_text()

    def answer(text: str) -> int:
        return table.program("gate", "area", "--different", text).code

    assert answer('example/toy#3=It only swaps "the sides" and has no test.') == 1
    assert answer("Example/Toy#2=It is about triangles, not rectangles.") == 0
    text = toml_of(table).read_text()
    assert text.startswith(before.rstrip("\n"))
    assert "# and a person read it" in text
    assert tomllib.loads(text)["contribution"]["different"] == {
        "example/toy#3": 'It only swaps "the sides" and has no test.',
        "Example/Toy#2": "It is about triangles, not rectangles.",
    }
    assert "different: It is about triangles" in table.program("gate", "area").out
    assert answer("example/toy#3=Another and far better reason.") == 0
    assert "swaps" not in toml_of(table).read_text()


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
    done = table.program("gate", "area", "--different", given)
    assert done.code == 2
    assert match in done.err
    assert "\x1b" not in done.err
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
    table.pull("beside", BESIDE, title="Multiply")
    first = table.gate()
    # The search may have names from a private repository.
    assert look_file(table.queue, "area").parent.stat().st_mode & 0o777 == 0o700
    table.pull("otherwise", OTHERWISE, title="Multiply", user=table.github.add_user("eve"))
    assert table.gate(now=NOW + timedelta(minutes=59)).candidates == first.candidates
    assert table.gate(now=NOW + timedelta(minutes=59)).looked == NOW
    assert len(table.gate(now=NOW + timedelta(minutes=61)).candidates) == 2
    # The kept search is from the future: a clock was wrong.
    assert table.gate(now=NOW).looked == NOW
    assert table.asked() == 5
    edit(table.toy, 'issue = "example/toy#1"', 'issue = "example/toy#2"')
    assert table.asked() > 5
    look_file(table.queue, "area").write_text("{")
    assert len(table.gate().candidates) == 2
    # A search that fails is not kept.
    look_file(table.queue, "area").unlink()
    table.faults.arm(primary_limit(3600), path="^/search/", times=0)
    assert table.row("duplicates").state == "not known"
    assert not look_file(table.queue, "area").exists()


HOSTILE = "\x1b]0;owned\x07\x1b[2J\u202eevil\u202c [x](https://evil.example) <img> " + "A" * 150


def test_a_hostile_pull_request_is_shown_and_does_nothing(table: Table) -> None:
    eve = table.github.add_user("eve")
    table.pull("x", {**BESIDE, "a\u202eb": "\x1b[2J"}, title=HOSTILE, body="#1", user=eve)
    done = table.program("gate", "area")
    assert done.code == 1
    assert all(char.isprintable() or char == "\n" for char in done.output)
    assert "example/toy#2 (open, eve)" in done.out
    assert max(map(len, done.out.splitlines())) < 400
    document = table.program("gate", "area", "--json").out
    assert all(char.isprintable() or char == "\n" for char in document)
    assert Gate.model_validate_json(document, strict=False).candidates[0].reference
    assert json.loads(document)["candidates"][0]["title"].startswith("\x1b]0;owned")


def test_a_look_at_a_busy_upstream_takes_a_bounded_number_of_requests(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(duplicates, "FILES_OF", 4)
    for number in range(6):
        text = BESIDE["src/toy/area.py"] + f"\n\nX{number} = {number}\n"
        table.pull(f"b{number}", {"src/toy/area.py": text}, title=f"Multiply {number}")
    # 5 requests of other rules, the issue's timeline, 8 searches, and the files of 4.
    assert table.asked() == 5 + 1 + 8 + 4
    gate = table.gate()
    assert len(gate.candidates) == 4
    assert gate.limits == ("the files of 4 of 6 pull requests were compared",)


RULES_FILE = "upstreams/contributing/toy.toml"


@pytest.fixture
def telling(table: Table) -> Table:
    """A person with the proved patch, whose upstream's text tells of the search."""
    edit(table.toy, "[body]\n", "[body]\nduplicates = true\n", RULES_FILE)
    return table


def line_of(table: Table) -> str:
    done = table.program.ok("body", "area")
    return next((row for row in done.out.splitlines() if "duplicate was found" in row), "")


def age(table: Table, by: timedelta) -> None:
    path = look_file(table.queue, "area")
    look = Look.model_validate_json(path.read_bytes())
    path.write_text(look.model_copy(update={"time": look.time - by}).model_dump_json())


def test_a_look_that_found_none_is_told_with_its_day_and_its_bounds(telling: Table) -> None:
    telling.pull("far", {"docs/y.md": "y\n"}, title="Circles")
    assert line_of(telling) == ""
    telling.program.ok("gate", "area")
    assert re.fullmatch(
        rf"\*\*No duplicate was found\*\* on {datetime.now(UTC):%Y-%m-%d}, by the issue, and by "
        r"files and title words, among 0 pull requests of example/toy, open or merged in the "
        r"90 days before\.",
        line_of(telling),
    )


def test_nothing_is_told_where_it_is_not_asked_for_or_was_not_seen(telling: Table) -> None:
    telling.program.ok("gate", "area")
    assert line_of(telling)
    edit(telling.toy, "duplicates = true\n", "", RULES_FILE)
    assert line_of(telling) == ""
    edit(telling.toy, "[body]\n", "[body]\nduplicates = true\n", RULES_FILE)
    # A search for another issue, or an old search, is not named.
    edit(telling.toy, 'issue = "example/toy#1"', 'issue = "example/toy#2"')
    assert line_of(telling) == ""
    edit(telling.toy, 'issue = "example/toy#2"', 'issue = "example/toy#1"')
    age(telling, timedelta(hours=23))
    assert line_of(telling)
    age(telling, timedelta(hours=1))
    assert line_of(telling) == ""


def test_what_was_found_and_answered_is_told_instead(telling: Table) -> None:
    telling.pull("beside", BESIDE, title="Multiply")
    assert telling.program("gate", "area").code == 1
    assert line_of(telling) == ""
    reason = "It is about triangles, not rectangles."
    telling.program.ok("gate", "area", "--different", f"example/toy#2={reason}")
    assert line_of(telling) == ""
    assert f"- example/toy#2: {reason}" in telling.program("body", "area").out


def test_what_somebody_found_since_is_not_passed_over(telling: Table) -> None:
    telling.attest()
    look_file(telling.queue, "area").unlink()
    telling.pull("same", CHANGES, title="Multiply")
    assert telling.program("gate", "area").code == 1
    assert "No duplicate was found" not in telling.body().text
    with pytest.raises(AttestationError, match="void: the text, the patch or an answer changed"):
        require(telling.queue, telling.body())
