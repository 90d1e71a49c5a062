"""Somebody else's pull request: taken as a patch to prove, and what one says there."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from contribbot.compile.toolchain import hip_toolchain
from contribbot.contribute.body import make_comment
from contribbot.contribute.model import Comment
from contribbot.errors import OpeningError
from contribbot.queue.exchange import pull_in
from contribbot.queue.load import load_queue
from tests.buildtoy import with_sources
from tests.conftest import Program
from tests.contribute.bodytoy import assert_snapshot, describe
from tests.contribute.following import AREA, Post
from tests.contribute.place import Desk, Table, close, edit
from tests.contribute.test_body import TOML, contribute
from tests.contribute.tracked import tracked_queue
from tests.github.faults import NOT_FOUND, Fault
from tests.github.wire import Answer
from tests.hiptoy import needed
from tests.test_emulated import TREE, TREE_CHECKS, masked
from tests.toy import FAIL_TO_PASS, FIXED, Toy, git, one_check

PULL = "example/toy#7"
GREEN = "def test_it() -> None:\n    assert True\n"
COMMENT = ("body", "area", "--comment", "--offline")
MARK = ("problem =", f'pull = "{PULL}"\nproblem =')


def test_it_says_what_was_run_and_how_to_repeat_it(known: Toy, program: Program) -> None:
    # The reasons for somebody else's pull request need no prose.
    edit(known, 'problem = "Areas are sums."', 'problem = "TODO: what goes wrong"', TOML)
    edit(known, *MARK)
    patch = load_queue(known.queue).patch("area")

    ran = program.ok(*COMMENT)
    assert "| cpu | red | 2 fail: `AssertionError: assert 5 == 6` | 2 pass | - |" in ran.out
    assert f"With: a change written anew for {PULL}, none of its commits." in ran.out
    assert ran.out.count("\ncontribbot ") == 1
    assert "\ncontribbot verify area\n```" in ran.out
    assert "mulated" not in ran.out
    assert "TODO" not in ran.out
    (check,) = (file for file in patch.support if file.name == "test_red.py")
    assert f"```python\n{check.content.decode().rstrip()}\n```" in ran.out
    document = program(*COMMENT, "--json").out
    shown = Comment.model_validate_json(document, strict=False)
    assert shown.text == ran.out
    assert shown.words <= 60
    refused = program("body", "area")
    assert (refused.code, refused.err.count("\n")) == (2, 1), refused.err
    assert f"area: it is {PULL}, somebody else's; " in refused.err
    assert "contribbot body area --comment" in refused.err


@pytest.mark.parametrize("name", ["fp8-softmax-weights", "fp8-hw-convert", "hipify-path"])
def test_it_is_short_and_says_what_was_emulated(name: str, tmp_path: Path) -> None:
    queue = shutil.copytree(tracked_queue(), tmp_path / "queue")
    stated = queue / f"patches/{name}/patch.toml"
    stated.write_text(stated.read_text().replace("\nproblem =", f'\npull = "{PULL}"\nproblem ='))
    comment = make_comment(load_queue(queue), name)
    assert comment.words <= 90
    assert ("Emulated, not run on a GPU" in comment.text) is ("| emulated gfx" in comment.text)
    assert "maintainers@contribbot" not in comment.text


def test_it_begins_with_the_summary(known: Toy, program: Program) -> None:
    edit(known, *MARK)
    stated = known.queue / TOML
    said = stated.read_text()
    table = "" if "[contribution]" in said else "\n[contribution]\n"
    stated.write_text(said + table + 'summary = "Of `{{ tag }}` the sum <alone> was run."\n')
    text = make_comment(load_queue(known.queue), "area").text
    assert text.startswith("Of `v1.0` the sum &lt;alone> was run.\n\n| target |"), text
    edit(known, "was run.", "is 4.08x as fast.")
    ran = program(*COMMENT)
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert "summary: 4.08x is typed, and comes from no record" in ran.err


def test_what_a_check_executes_is_not_said_to_be_the_cpus() -> None:
    text = make_comment(load_queue(tracked_queue()), "llmm1-wave32").text
    assert "| cpu |" not in text
    assert text.count("\n| emulated by the check | ") == 2


HOSTILE = (
    "</code></details><img src=x onerror=alert(1)> `` ``` ~~~ | [x](https://evil.example) @octocat "
    "Fixes #1, closes example/toy#2 GH-3 https://github.com/example/toy/issues/4 "
    "\\u202etfel\\u202c \\x1b[31mred\\x07 <!-- \\n## Heading"
)


def test_hostile_output_is_shown_and_does_nothing(toy: Toy, program: Program) -> None:
    describe(toy)
    check = (
        "import pytest\nfrom toy.area import rectangle\n\n\n"
        f'@pytest.mark.parametrize("x", ["@octocat #1"])\ndef test_it(x):\n'
        f'    assert rectangle(2, 3) == 6, "{HOSTILE}"\n' + "#\n" * 60
    )
    stated = one_check(reason="^AssertionError: </code>")
    toy.put_area(checks=stated, check_files={"test_red.py": check})
    program.ok("verify", "area")
    text = contribute(toy, 'tests = { red = "tests/test_area.py::test_it" }\n')
    assert "onerror" in text
    assert_inert(text)
    edit(toy, *MARK)
    text = make_comment(load_queue(toy.queue), "area").text
    assert "onerror" in text
    # The check is too long to be shown.
    assert "`checks/test_red.py`:\n\n(not shown: it has " in text
    # The only reference is to the pull request itself.
    assert_inert(f"# a\n\n# b\n\n{text}".replace(PULL, ""))


def assert_inert(text: str) -> None:
    """Check that a text has only the HTML, links and headings of the templates."""
    assert all(char.isprintable() or char == "\n" for char in text.replace("\u2060", ""))
    tokens = MarkdownIt("gfm-like", {"linkify": False}).parse(text)
    flat = [row for token in tokens for row in (token, *(token.children or ()))]
    html = "".join(row.content for row in flat if row.type in {"html_block", "html_inline"})
    assert (
        re.sub(
            r"</?details>|</?summary>|Checklist|The check, and records|"
            r"Cause, change, and records|\s",
            "",
            html,
        )
        == ""
    )
    assert not [row for row in flat if row.type in {"link_open", "image"}]
    assert len([row for row in flat if row.type == "heading_open"]) == 2
    # A commit message has no code spans: no text may be a reference there.
    for live in (r"@octocat", r"#\d", r"GH-\d", r"issues/\d"):
        assert re.search(live, text) is None


def test_what_cannot_be_said_is_one_line(known: Toy, program: Program) -> None:
    def refused(code: int, said: str) -> None:
        ran = program(*COMMENT)
        assert (ran.code, ran.out, ran.err.count("\n")) == (code, "", 1)
        assert said in ran.err

    wanted = "nothing says of which pull request of somebody else's it is; write `pull = "
    refused(2, wanted)
    edit(known, *MARK)
    (known.queue / "evidence/area").rename(known.queue / "gone")
    refused(1, "contribbot verify area")
    (known.queue / "gone").rename(known.queue / "evidence/area")
    edit(known, "problem =", 'kept = "v2 has it."\nproblem =')
    refused(1, "area: superseded: v2 has it.; nothing is to be said there")


def test_somebody_elses_does_not_pass_the_gate(table: Table) -> None:
    edit(table.toy, *MARK)
    rows = {row.rule: row for row in table.gate().rows}
    assert rows["duplicates"].state == "failed"
    assert f"it is {PULL}, somebody else's" in rows["duplicates"].seen


def test_somebody_elses_is_not_opened(desk: Desk) -> None:
    edit(desk.toy, *MARK)
    error = desk.refused(f"^area: it is {PULL}, somebody else's$")
    assert error.hint == "say there what was run: contribbot body area --comment"


def test_its_commit_is_named_while_it_is_that(known: Toy, program: Program) -> None:
    mails = b"".join(
        mail(known, f"{number} in the way", {"src/toy/area.py": FIXED + "#\n" * number})
        for number in range(2)
    )
    theirs = known.root / "theirs.patch"
    # A mail with an encoded name is rewritten, and still has the same commit.
    theirs.write_bytes(mails.replace(b"From: Ada Example", b"From: =?UTF-8?q?Ad=C3=A0?="))
    commit = re.findall(rb"^From ([0-9a-f]{40}) ", mails, re.MULTILINE)[1][:12].decode()
    known.put_queue([])
    shutil.rmtree(known.queue / "patches/area")
    program.ok("new", "area", theirs)
    edit(known, 'pin = "', f'pull = "{PULL}"\npin = "')
    state(known, "area", FAIL_TO_PASS, one_check())
    program.ok("verify", "area")

    said = program(*COMMENT).out

    assert f"With: the 2 commits up to `{commit}` of {PULL}." in said
    # A changed patch is no commit of the pull request any more.
    (second,) = (known.queue / "patches/area").glob("0002-*")
    second.write_bytes(second.read_bytes().replace(b"+#\n", b"+##\n"))
    program.ok("verify", "area")
    said = program(*COMMENT).out
    assert commit not in said
    assert "a change written anew" in said


def test_a_pull_request_that_is_not_what_was_tried_is_refused(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    pull = table.pull("theirs", {"src/toy/area.py": FIXED})
    edit(table.toy, "problem =", f'pull = "example/toy#{pull.number}"\nproblem =', TOML)
    ran = table.program.ok("body", "area", "--comment")
    monkeypatch.setattr("contribbot.contribute.body._commit", lambda *_: pull.head_sha)
    with table.connect() as client:
        assert make_comment(table.queue, "area", client).head == pull.head_sha
        monkeypatch.setattr("contribbot.contribute.body._commit", lambda *_: "a" * 40)
        with pytest.raises(OpeningError, match="now, and tried was aaaaaaaaaaaa"):
            make_comment(table.queue, "area", client)
    close(pull)
    gone = PULL.replace("7", "77")
    for reference, code, words in (
        (f"example/toy#{pull.number}", 1, "is closed"),
        (gone, 3, "77"),
    ):
        edit(table.toy, f'pull = "example/toy#{pull.number}"', f'pull = "{reference}"', TOML)
        ran = table.program("body", "area", "--comment")
        assert (ran.code, ran.out, ran.err.count("\n")) == (code, "", 1), ran.err
        assert words in ran.err


def test_an_issue_is_shown_by_checks_alone(table: Table) -> None:
    begun = table.program("new", "shown", "--issue", "1")
    assert (begun.code, begun.err) == (0, "")
    for check, entry, verdict, before in (
        (FAIL_TO_PASS, one_check(), "reproduced", "2 fail: `AssertionError: assert 5 == 6`"),
        (GREEN, one_check(expect="pass-to-pass", reason=""), "not reproduced", "1 pass"),
    ):
        state(table.toy, "shown", check, entry)
        ran = table.program.ok("verify", "shown")
        assert f"shown: {verdict} on cpu\n" in ran.out
        comment = table.program("body", "shown", "--comment").out
        assert f"| cpu | red | {before} | no change | - |" in comment
        assert f"example/toy#1: **{verdict}** at `v1.0`; no patch was applied." in comment
    table.program.ok("evidence", "check")
    # A patch without commits is left out of lists and of `verify --all`.
    assert "shown" not in table.program("queue", "list").out
    assert "shown" not in table.program("verify", "--all").out
    # Neither outcome is remembered where `reproduces` comes or goes.
    toml = table.toy.queue / "patches/shown/patch.toml"
    shows = toml.read_text()
    toml.write_text(shows.replace("reproduces =", "# "))
    ran = table.program("verify", "shown")
    assert (ran.code, "no commits yet" in ran.out) == (1, True), ran.out
    (own,) = (table.toy.queue / "patches/area").glob("*.patch")
    shutil.copy(own, table.toy.queue / "patches/shown")
    table.program("verify", "shown")
    toml.write_text(shows)
    ran = table.program("verify", "shown")
    assert ran.code == 2
    assert "`reproduces` is not true" in " ".join(ran.out.split())


def state(toy: Toy, name: str, check: str, entry: str) -> None:
    toy.put(f"patches/{name}/checks/test_red.py", check)
    file = toy.queue / f"patches/{name}/patch.toml"
    file.write_text(file.read_text().partition("[[checks]]")[0] + entry)


def mail(toy: Toy, subject: str, changes: dict[str, str]) -> bytes:
    """Commit something to the upstream's branch `theirs`, and return the mail of that."""
    git(toy.upstream, "checkout", "-q", "-B", "theirs")
    for path, content in changes.items():
        toy.write(path, content)
    git(toy.upstream, "commit", "-q", "-a", "-m", subject)
    return git(toy.upstream, "format-patch", "-1", "--stdout", "--no-signature")


@pytest.mark.slow
def test_the_whole_way_emulated(toy: Toy, program: Program) -> None:
    needed(hip_toolchain("gfx942"))
    describe(toy)
    with_sources(toy, {"src/toy/kernel.py": TREE})
    toy.put_queue([])
    theirs = toy.root / "theirs.patch"
    theirs.write_bytes(mail(toy, "Mask the rows", {"src/toy/kernel.py": masked(TREE)}))
    program.ok("new", "rows", theirs)
    edit(toy, 'pin = "', f'pull = "{PULL}"\npin = "', "patches/rows/patch.toml")
    entry = '[[emulated]]\nname = "red"\nfile = "test_red.py"\ntargets = ["gfx942"]\n'
    entry += "expect = 'fail-to-pass'\nreason = 'out of bounds'\n"
    state(toy, "rows", TREE_CHECKS["test_check.py"], entry)
    ran = program.ok("verify", "rows", "--require", "emulated:gfx942")

    ran = program.ok("body", "rows", "--comment", "--offline")
    assert_snapshot("comment.md", re.sub(r"(?m)^- Record: .*$", "- Record: …", ran.out))


ESCAPE = "\x1b[31mred\x1b[0m"


@pytest.mark.parametrize(
    ("source", "pull"),
    [
        ("vllm-project/vllm#54296", ("vllm-project/vllm", 54296)),
        ("https://github.com/vllm-project/vllm/pull/54296", ("vllm-project/vllm", 54296)),
        ("vllm-project/vllm#0", None),
        ("vllm#1", None),
        ("a/b.patch", None),
        ("../a/b#1", None),
    ],
)
def test_how_a_pull_request_is_named(source: str, pull: tuple[str, int] | None) -> None:
    assert pull_in([source]) == pull
    assert pull_in([source, "x"]) is None


def test_it_keeps_its_author_and_nothing_is_sent(post: Post) -> None:
    post.github.commit(post.fork, "theirs", {AREA: FIXED.encode()},
                       f"Multiply the sides {ESCAPE}\n\nA sum is no area.\n",
                       who=post.reviewer)  # fmt: skip
    theirs = post.github.pull(post.upstream, post.fork, "theirs", user=post.reviewer)
    name = f"{post.upstream.full_name}#{theirs.number}"
    post.program.ok("new", "theirs", name, "--json")
    patch = load_queue(post.toy.queue).patch("theirs")
    assert patch.spec.pull == name
    assert patch.spec.problem == "A sum is no area.\n"
    assert "\x1b" not in patch.spec.title
    (mail,) = patch.files
    assert f"From: {post.reviewer.name} <{post.reviewer.email}>".encode() in mail.content
    assert {each.method for each in post.github.requests} == {"GET"}


def answering(body: bytes) -> Fault:
    return Fault("another text", after=lambda _: Answer(raw=body))


def test_one_with_a_binary_file_is_taken_whole(post: Post) -> None:
    content = bytes(range(256))
    post.github.commit(post.fork, "binary", {"blob.bin": content}, "A binary file\n")
    pull = post.github.pull(post.upstream, post.fork, "binary", title="Binary")
    post.program.ok("new", "theirs", f"{post.upstream.full_name}#{pull.number}")
    (mail,) = load_queue(post.toy.queue).patch("theirs").files
    assert b"GIT binary patch" in mail.content


@pytest.mark.parametrize(
    ("fault", "code", "said"),
    [
        (NOT_FOUND, 3, "/pulls/1: Not Found; check the name; what is private or gone looks "),
        (answering(b"<html>\n"), 2, "#1: no author in its header"),
        (answering(b""), 2, "#1: empty"),
    ],
)
def test_what_cannot_be_taken_is_one_line(post: Post, fault: Fault, code: int, said: str) -> None:
    post.open()
    post.faults.arm(fault, path="/pulls/1$", times=0)
    ran = post.program.refused("new", "theirs", f"{post.upstream.full_name}#1", code=code)
    assert (ran.out, ran.err.count("\n")) == ("", 1)
    assert said in ran.err
