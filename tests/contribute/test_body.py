from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from markdown_it import MarkdownIt
from pydantic import JsonValue

from contribbot.contribute.body import (
    OVERVIEW_WORDS,
    VISIBLE_WORDS,
    WORDS,
    Template,
    compare_with_live,
    make_body,
    outline,
    rules_of,
    template_of,
    visible_words,
)
from contribbot.contribute.figures import pace
from contribbot.contribute.model import Body, Rules, Want
from contribbot.errors import NotProvedError, QueueError, UsageError
from contribbot.markdown import seconds
from contribbot.model.patch import Contribution
from contribbot.queue.load import UPSTREAMS, Queue, load_queue, read_model, upstream_files
from tests.conftest import Program, dig
from tests.contribute.bodytoy import OWN, assert_snapshot, describe
from tests.contribute.place import edit
from tests.contribute.tracked import tracked_queue
from tests.toy import AREA, FAIL_TO_PASS, FIXED, Toy, git, one_check

TOML = "patches/area/patch.toml"
ROOT = Path("/nonexistent")
#: The upstreams whose rules come along.
NAMES = sorted(upstream_files(ROOT, "contributing"))
REAL = (
    "rmsnorm", "stable-softmax", "fp8-hw-convert", "hipify-path", "fp8-softmax-weights",
    "indexer-keys-fnuz", "resample-race", "rmsnorm-variance", "vision-qk-norm-tp",
)  # fmt: skip


@cache
def real_queue() -> Queue:
    return load_queue(tracked_queue())


def stages(case: str) -> list[dict[str, JsonValue]]:
    """Return every outcome in the records of a patch, as JSON has it."""
    found: list[dict[str, JsonValue]] = []
    for path in sorted((tracked_queue() / "evidence" / case).glob("*.json")):
        found += json.loads(path.read_text(encoding="utf-8"))["predicate"]["contribbot"]["stages"]
    return found


@pytest.mark.parametrize("case", REAL)
def test_a_real_patch_reads_as_it_was_approved_in_the_templates_sections(case: str) -> None:
    body = make_body(real_queue(), case)
    assert_snapshot(f"{case}.md", body.text)
    template = template_of(real_queue(), rules_of(real_queue(), body.upstream))
    assert outline(body.text) == outline(template.text)
    assert body.text.count("<details>") == body.text.count("</details>")
    assert len(body.text) == body.characters
    # pytorch gets machine text below its own heading, and asks for a person's words.
    assert (body.upstream == "pytorch") is (Want.WORDS in body.wants)
    # The text has only what a reader can open, and figures that a record holds.
    patch = real_queue().patch(case)
    noise = ("seal", "evidence/", "contribbot verify", "R1", "R2", "incomplete record", "checks/")
    assert not [word for word in (*noise, *(row.seal for row in body.records)) if word in body.text]
    first = body.text.partition("\n")[0]
    gone = "**Superseded by sgl-project/sglang#23974: v0.5.23 has the fix"
    assert first.startswith(gone) is (case == "rmsnorm")
    # Each row names a test or a source of the upstream, with a figure from a record.
    diff, rows = "".join(file.content.decode() for file in patch.files), table_of(body.text)
    for row in rows:
        name = re.match(r"\| `([^`]+)`", row)
        assert name, row
        assert name[1] in diff, row
    for stage in stages(case):
        own = patch.spec.contribution.tests.get(str(stage["label"]), "").rpartition("::")[2]
        if stage["outcome"] != "passed" or not own or stage["stage"] == "bench":
            continue
        mine = [row for row in rows if row.startswith(f"| `{own}` |")]
        passed = dig(stage, "details", "patched", "passed")
        assert isinstance(passed, list)
        assert any(row.endswith(f"| {len(passed)} pass |") for row in mine)
    # The text never says that compiled code has run.
    assert {"gfx942", "gfx950"} <= set(body.not_run)
    assert f"**Not run** on {', '.join(body.not_run)}: no AMD GPU was used." in body.text
    results = [row for row in body.text.splitlines() if row.startswith("| ")]
    assert all("not run" in row for row in results if re.search(r"\| gfx\w+", row))
    assert not [row for row in results if re.search(r"\| gfx\w+ \| [^|]* pass", row)]


def table_of(text: str) -> list[str]:
    """Return the rows of the table outside folds; a text has at most one table."""
    shown = re.sub(r"<details>.*?</details>", "", text, flags=re.DOTALL)
    rows = [row for row in shown.splitlines() if row.startswith("|")]
    assert sum(row.startswith("|---") for row in rows) <= 1
    return rows[2:]


#: Patches of the queue, each with every upstream's template.
TEXTS = [(name, template) for name in REAL[:5] for template in NAMES]


@pytest.mark.parametrize(("name", "upstream"), TEXTS)
def test_a_text_is_as_short_as_its_upstreams_reviewers_read(
    name: str, upstream: str, tmp_path: Path
) -> None:
    queue = real_queue()
    if queue.specs[name].upstream != upstream:
        shutil.copytree(tracked_queue(), tmp_path / "queue")
        queue = load_queue(tmp_path / "queue")
        rules = read_model(upstream_files(ROOT, "contributing")[upstream], Rules)
        own = queue.specs[name].upstream
        template = template_of(real_queue(), rules).text
        (queue.folder / "templates").mkdir()
        (queue.folder / f"templates/{own}.md.j2").write_text(template)
    body = make_body(queue, name)
    spec = queue.specs[name]
    assert body.overview_words <= OVERVIEW_WORDS
    assert body.visible_words == visible_words(body.text) <= VISIBLE_WORDS
    # In another upstream's template a text may be longer than in its own.
    assert body.words <= WORDS or spec.upstream != upstream
    rows = table_of(body.text)
    assert len(rows) <= 6
    # No row comes twice, in sight or in the fold.
    every = [row for row in body.text.splitlines() if re.match(r"\| [^|]+ \| [^*|]+ \|", row)]
    assert len(every) == len(set(every))
    code = re.findall(r"^To see it:\n\n```\w+\n(.*?)\n```$", body.text, re.DOTALL | re.MULTILINE)
    assert all(len(text.splitlines()) <= 15 for text in code)
    folds = re.findall(r"<summary>(.*?)</summary>", body.text)
    assert sum("Checklist" not in title for title in folds) == (upstream != "pytorch")
    for word in ("without a sign", "keeps its bits", "checks of ours", "of the speed"):
        assert word not in body.text


@pytest.mark.parametrize(
    ("slowest", "fastest", "said"),
    [
        (0.67, 0.81, "slower by 23 to 49 %"), (0.5, 0.5, "slower by 100 %"),
        (0.97, 1.5, "from 3 % slower to 1.50x the speed"),
        (0.95, 1.0, "up to 5 % slower"),
        (0.997, 1.0, "0.997x to 1.000x the speed"),
        (1.0, 1.2, "no difference to 1.20x the speed"), (1.0, 1.0, "1.000x the speed"),
        (1.4, 4.08, "1.40x to 4.08x the speed"), (4.0, 4.0, "4.00x the speed"),
    ],
)  # fmt: skip
def test_a_speed_is_said_as_reviewers_say_it(slowest: float, fastest: float, said: str) -> None:
    assert pace(slowest, fastest) == said


def text_of(toy: Toy) -> str:
    return make_body(load_queue(toy.queue), "area").text


def contribute(known: Toy, text: str) -> str:
    """Put a table `[contribution]` into patch.toml, and return the body's text."""
    path = known.queue / TOML
    path.write_text(f"{path.read_text().partition('[contribution]')[0]}\n[contribution]\n{text}")
    return text_of(known)


def test_a_toy_says_what_failed_and_what_passes(known: Toy) -> None:
    # Without `records` or `tests`, no reader can open the check's file.
    assert not table_of(text_of(known))
    contribute(known, 'records = "https://example.org/q"\n')
    file = "[`test_red.py`](https://example.org/q/patches/area/checks/test_red.py)"
    fails = "| CPU | 2 fail: `AssertionError: assert 5 == 6` | 2 pass |"
    assert table_of(text_of(known)) == [f"| {file} {fails}"]
    contribute(known, 'tests = { red = "tests/test_area.py::test_area" }\n')
    body = make_body(load_queue(known.queue), "area")
    assert table_of(body.text) == [f"| `test_area` {fails}"]
    assert "**Nobody stands behind this text yet**" in body.text
    assert "**Not run** on gfx942: no AMD GPU was used." in body.text
    assert "Speed: **not measured**." in body.text
    assert "- [ ] Tests" in body.text


@pytest.mark.parametrize(
    ("prose", "shown"),
    [
        ("# Heading", "\\# Heading"),
        ("a\n===\nb", "a\n\\===\nb"),
        ("<!-- hidden", "&lt;!-- hidden"),
        ("</details> `</b>`", "&lt;/details> `</b>`"),
        # These look like code spans, and are none.
        ("`` <details> `", "`` &lt;details> `"),
        ("\\` <details> `", "\\` &lt;details> `"),
        ("a `b\nc` <details> `d", "a `b c` &lt;details> `d"),
        # Only the lines of a paragraph are joined.
        ("a\nb\n- c\n  d", "a b\n- c\n  d"),
        ("a | b\n--- | ---\n1 | 2", "a | b\n--- | ---\n1 | 2"),
        ("a\n```\nb\nc\n```\nd\ne", "a\n```\nb\nc\n```\nd e"),
        # A fence that was left open is closed.
        ("```c\n## x", "```c\n## x\n```"),
    ],
)
def test_prose_stays_in_its_section(known: Toy, prose: str, shown: str) -> None:
    edit(known, '"Areas are sums."', json.dumps(prose), TOML)
    body = text_of(known)
    assert f"## What\n\n{shown}\n\n## Shown" in body
    assert outline(body)[:2] == ["## What", "## Shown"]


@pytest.mark.parametrize(
    ("before", "after", "match"),
    [
        ("Areas are sums.", "long " * 14_000, "GitHub takes 65,536"),
        ("Multiply the sides", "Multiply " * 29, r"patch\.toml: title: .* 256"),
        ("Multiply the sides", "\u200b\u2066", r"patch\.toml: title: .* 256"),
    ],
)
def test_a_text_that_is_too_long_is_refused(
    known: Toy, before: str, after: str, match: str
) -> None:
    edit(known, before, after, TOML)
    with pytest.raises(QueueError, match=match):
        text_of(known)


def refused(toy: Toy, match: str) -> None:
    with pytest.raises(NotProvedError, match=match) as caught:
        text_of(toy)
    assert caught.value.exit_code == 1
    assert caught.value.hint


def test_what_is_not_proved_is_refused(known: Toy) -> None:
    (record,) = (known.queue / "evidence/area").glob("*.json")
    content = record.read_text()
    record.write_text(content.replace("2 tests", "9 tests"))
    refused(known, "does not match its seal")
    record.write_text(content)
    check = known.queue / "patches/area/checks/test_same.py"
    check.write_text(check.read_text() + "\n")
    refused(known, r"^area: no fresh evidence: evidence/area/\S+: the checks have changed since$")
    record.unlink()
    refused(known, "^area: no fresh evidence$")


SAME = "from toy.area import rectangle\n\n\ndef test_it():\n    assert rectangle(2, 2) == 4\n"


def test_what_was_tried_and_could_not_run_says_why(toy: Toy, program: Program) -> None:
    describe(toy)
    absent = "from contribbot.testing import StandInError\n\n\ndef test_it():\n"
    absent += '    raise StandInError("absent", "times", use="call")\n'
    both = one_check() + one_check("pass-to-pass", "").replace("red", "same")
    toy.put_area(checks=both, check_files={"test_red.py": FAIL_TO_PASS, "test_same.py": absent})
    program("verify", "area")
    refused(toy, "no fresh evidence of the check same on cpu: it could not run: .*absent")


def test_what_failed_or_only_stays_green_is_refused(toy: Toy, program: Program) -> None:
    describe(toy)
    toy.put_queue(["area"])
    toy.put_patch(patch=toy.format_patch({"src/toy/area.py": AREA.replace("+", "-")}))
    program("verify", "area")
    refused(toy, "^area: (red|same) failed on cpu, says evidence/area/")
    toy.put_patch(checks=one_check("pass-to-pass", ""), check_files={"test_red.py": SAME})
    program("verify", "area")
    refused(toy, "no fresh record proves it: .* is incomplete")


def test_an_unfinished_patch_is_refused(known: Toy) -> None:
    path = known.queue / TOML
    whole = path.read_text()
    path.write_text(whole.replace('problem = "Areas', 'problem = "TODO: areas'))
    refused(known, "problem of .* not written yet")
    path.write_text(whole.partition("[[checks]]")[0])
    refused(known, "states nothing that proves it")
    path.write_text(whole)
    with pytest.raises(UsageError, match="no such patch"):
        make_body(load_queue(known.queue), "volume")
    (known.queue / "upstreams/contributing/toy.toml").unlink()
    with pytest.raises(QueueError, match="toy: no rules for contributions are known"):
        text_of(known)


def test_proof_knows_nothing_of_the_contribution(known: Toy, program: Program) -> None:
    text = contribute(
        known, 'issue = "example/toy#7"\nai = "By a machine."\nwords = "I like it."\n'
        'docs = "none needed: no docs."\n[contribution.different]\n"example/toy#8" = "It adds."\n',
    )  # fmt: skip
    program.ok("evidence", "check")
    for part in ("Fixes #7\n", "- [x] AI\n", "I like it.", "- example/toy#8: It adds.\n"):
        assert part in text
    # Later keys that say nothing are in no digest.
    assert set(Contribution().model_dump(mode="json")) == {
        "issue", "branch", "labels", "docs", "ai", "words", "breaking", "different",
    }  # fmt: skip
    full = Contribution(records="https://example.org/q", model_evaluation="It ran.")
    assert Contribution.model_validate_json(full.model_dump_json()) == full
    assert "duplicates" not in rules_of(real_queue(), "sglang").model_dump_json()


@pytest.mark.parametrize("place", ["https://example.org/q/blob/main", "https://example.org:8/q/"])
def test_a_record_is_linked_where_a_person_says_that_it_can_be_read(known: Toy, place: str) -> None:
    (record,) = (known.queue / "evidence/area").glob("*.json")
    file = f"evidence/area/{record.name}"
    assert file not in contribute(known, "")
    text = contribute(known, f'records = "{place}"\n')
    assert f"- [Record]({place.rstrip('/')}/{file}): " in text
    assert f'href="{place.rstrip("/")}/{file}"' in MarkdownIt().render(text)


@pytest.mark.parametrize(
    "place",
    ["http://example.org/q", "https://example.org/a b", "https://example.org/q) @me (", "evidence",
     "https://me:secret@example.org/q", "https://example.org/q?token=x", "javascript:alert(1)"],
)  # fmt: skip
def test_what_is_no_plain_address_is_refused(known: Toy, place: str) -> None:
    with pytest.raises(QueueError, match=r"contribution\.records"):
        contribute(known, f'records = "{place}"\n')


@pytest.mark.slow
def test_only_tests_that_stay_and_that_pytest_runs_are_named(toy: Toy, program: Program) -> None:
    describe(toy)
    toy.write("tests/test_old.py", "def test_it(): pass\n")
    git(toy.upstream, "add", "-A")
    git(toy.upstream, "commit", "-q", "-m", "An old test")
    git(toy.upstream, "tag", "-f", "v1.0")
    toy.commit = git(toy.upstream, "rev-parse", "HEAD").decode().strip()
    git(toy.upstream, "rm", "-q", "tests/test_old.py")
    changes: dict[str, str | bytes] = {"src/toy/area.py": FIXED, "tests/cpp/test_area.cpp": "//\n"}
    toy.put_area(patch=toy.format_patch(changes), files=(*changes, "tests/test_old.py"))
    program.ok("verify", "area")
    text = text_of(toy)
    assert "python -m pytest" not in text
    assert "- [x] Tests" in text
    path = toy.queue / "patches/area/patch.toml"
    path.write_text(path.read_text().replace('"tests/cpp/test_area.cpp", ', ""))
    changes.pop("tests/cpp/test_area.cpp")
    git(toy.upstream, "rm", "-q", "tests/test_old.py")
    toy.put("patches/area/0001-change.patch", toy.format_patch(changes))
    program.ok("verify", "area")
    assert "- [ ] Tests" in text_of(toy)


@pytest.mark.parametrize(
    ("ai", "used"),
    [
        ("None.", False), ("No AI was used.", False), ("none: typed by hand", False),
        ("not used", False), ("None of it was typed by hand.", True), ("It drafted all.", True),
    ],
)  # fmt: skip
def test_ai_is_ticked_only_where_it_was_used(known: Toy, ai: str, used: bool) -> None:
    edit(known, "[body]", "[ai]\ncontained = true\n\n[body]", "upstreams/contributing/toy.toml")
    edit(known, "## Shown", '{{ "(machine-written)" if ai_used else "" }}\n## Shown', OWN)
    text = contribute(known, f'ai = "{ai}"\nbreaking = "Nothing."\n')
    assert ("- [x] AI\n" in text, "- [ ] AI\n" in text) == (used, not used)
    assert ("(machine-written)" in text) is used
    assert f"**Use of AI.** {ai}\n" in text


def test_the_command_prints_the_text_alone(known: Toy, program: Program) -> None:
    body = make_body(load_queue(known.queue), "area")
    ran = program("body", "area")
    assert (ran.code, ran.out) == (0, body.text)
    assert "seen at once" in ran.err
    shown = program("body", "area", "--json").out
    assert Body.model_validate_json(shown, strict=False) == body
    (known.queue / "evidence/area").rename(known.queue / "gone")
    ran = program("body", "area")
    assert (ran.code, ran.out) == (1, "")
    assert "contribbot verify area" in ran.err


def test_a_person_may_say_that_they_evaluated_a_model(known: Toy) -> None:
    edit(known, "(evaluation=false)", "()", OWN)
    assert "End to end, with a model: **not run**.\n" in contribute(known, "")
    said = contribute(known, 'model_evaluation = "GSM8K on my desk: 0.71 before and after."\n')
    assert "End to end, with a model" not in said
    # The text says that no record shows this.
    start = "\n**End to end**, as a person says; no record is of it: "
    assert f"{start}GSM8K on my desk: 0.71 before and after.\n" in said


def test_a_claim_has_its_figures_from_records_or_is_refused(known: Toy) -> None:
    claim = "{% set red = figure('reproduce', 'red') %}{{ red.failed }} tests mend *areas*."
    text = contribute(known, f'summary = "Areas are right."\nclaims = ["{claim}"]\n')
    assert "\n- 2 tests mend *areas*.\n" in text
    for wrong, said in (
        ("figure('bench', 'red').noise", "claims: no fresh record has bench red"),
        ("figure('reproduce', 'red').fame", "not a template that can be filled: .*fame"),
        ("spec.__class__", "not a template that can be filled"),
    ):
        with pytest.raises(QueueError, match=said):
            contribute(known, f'claims = ["{{{{ {wrong} }}}}"]\n')


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('claims = ["It is 4.08x faster."]', "4.08x is typed"),
        ('summary = "It saves 13 % of it."', "13 % is typed"),
        ('claims = ["It takes 197 µs."]', "197 µs is typed"),
        ('summary = "Groups of 128, in {{ 2 }}x."', ""),
        (f"reproducer = {json.dumps('a' + chr(10) * 15 + 'b')}", "16 lines, and .* 15 at most"),
    ],
)  # fmt: skip
def test_what_no_record_can_fill_is_refused(known: Toy, text: str, said: str) -> None:
    if not said:
        contribute(known, f"{text}\n")
        return
    with pytest.raises(QueueError, match=said):
        contribute(known, f"{text}\n")


@pytest.mark.parametrize(
    ("text", "said"),
    [("{% if %}", "line 1: not a template"), ("{{ fame }}", "'fame' is undefined")],
)
def test_a_template_of_the_queue_that_cannot_be_filled_is_named(
    known: Toy, text: str, said: str
) -> None:
    (known.queue / OWN).write_text(text)
    with pytest.raises(QueueError, match=rf"toy\.md\.j2: .*{said}"):
        make_body(load_queue(known.queue), "area")


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (12.3, "12.3 s"),
        (0.9996, "1 s"),
        (0.99951e-3, "1 ms"),
        (0.0123, "12.3 ms"),
        (2e-10, "0.2 ns"),
    ],
)
def test_a_time_has_three_digits_and_its_unit(value: float, said: str) -> None:
    assert seconds(value) == said


#: The output of each reproducer without the patch.
PASTED = {
    "stable-softmax": r"torch.bfloat16 1 True 0\.4\d%\ntorch.bfloat16 1 False 0\.2\d%\n"
    r"torch.bfloat16 2 True 0\.9\d%\ntorch.bfloat16 2 False 0\.1\d%\n"
    r"torch.float16 256 True nan%\ntorch.float16 256 False 0\.00%\n",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PASTED)
def test_the_lines_that_a_maintainer_pastes_show_the_fault(name: str) -> None:
    lines = real_queue().specs[name].contribution.reproducer
    ran = subprocess.run([sys.executable, "-c", lines], text=True, check=True, capture_output=True)
    assert re.fullmatch(PASTED[name], ran.stdout)


def test_each_fault_that_needs_no_harness_has_lines_to_paste() -> None:
    specs = real_queue().specs
    assert {name for name, spec in specs.items() if spec.contribution.reproducer} == {*PASTED}


@pytest.mark.parametrize("name", NAMES)
def test_the_rules_that_come_along_name_a_template_and_none_hides_anything(name: str) -> None:
    assert set(upstream_files(ROOT)) <= set(NAMES)
    rules = read_model(upstream_files(ROOT, "contributing")[name], Rules)
    assert rules.upstream == name
    source = (UPSTREAMS / "templates" / name / f"{rules.body.template}.md.j2").read_text()
    # Without these a text would hide what was not done, or where its figures are from.
    for part in (
        "{{ summary | prose }}", "m.results(", "m.open_ends(", "m.person(", "m.disclosure(",
        # PyTorch takes one paragraph and one table.
        *(["m.records("] if name == "pytorch" else ["m.claimed(", "m.fold("]),
    ):  # fmt: skip
        assert part in source
    # Facts with source and day; what the upstream says stays there.
    assert "https://github.com/" in rules.source
    assert re.search(r"read 2026-\d\d-\d\d$", rules.source.strip())


def test_a_queue_has_its_own(toy: Toy) -> None:
    describe(toy)
    ours = (UPSTREAMS / "templates" / "vllm/0.33.0.md.j2").read_text()
    toy.put("templates/vllm.md.j2", ours.replace("Claims", "Boasts"))
    queue = load_queue(toy.queue)
    assert rules_of(queue, "toy").body.template == "1"
    vllm = rules_of(queue, "vllm")
    assert "## Boasts" in outline(template_of(queue, vllm).text)


@pytest.mark.parametrize(
    ("before", "after", "match"),
    [
        ('"toy"', '"other"', "upstream is other, and the file's is toy"),
        ("[body]", "[body]\nlive_ = 1", "live_: there is no such key .did you mean live"),
        ("[body]", "[body]\nbudget = 1", "body.budget is gone"),
    ],
)
def test_a_wrong_file_is_told(toy: Toy, before: str, after: str, match: str) -> None:
    describe(toy)
    edit(toy, before, after, "upstreams/contributing/toy.toml")
    with pytest.raises(QueueError, match=match):
        rules_of(load_queue(toy.queue), "toy")
    describe(toy)
    (toy.queue / OWN).unlink()
    queue = load_queue(toy.queue)
    with pytest.raises(QueueError, match="template 1, which is not there") as caught:
        template_of(queue, rules_of(queue, "toy"))
    assert caught.value.hint.endswith("toy.md.j2")


def test_a_trailer_of_vllms_is_known_and_its_rules_for_tests_are_asked_for() -> None:
    rules = read_model(upstream_files(ROOT, "contributing")["vllm"], Rules)
    for key in ("Co-authored-by", "Co-Authored-By", "Assisted-by"):
        assert re.search(rules.ai.trailer, f"{key}: A model <model@example.com>")
    assert not re.search(rules.ai.trailer, "Reviewed-by: A model <model@example.com>")
    # No program can see what tests/AGENTS.md forbids.
    asked = {question.name: question.text for question in rules.questions}
    assert all(word in asked["tests"] for word in ("skip", "xfail", "retr", "tolerance"))


@pytest.mark.parametrize(
    ("upstream", "title", "good"),
    [
        ("sglang", "[Bugfix] Write whole files", True),
        ("sglang", "Write whole files", True),
        ("vllm", "[Bugfix] Write whole files", True),
        ("vllm", "Write whole files", False),
    ],
)
def test_a_title_need_not_say_amd(upstream: str, title: str, good: bool) -> None:
    rules = read_model(upstream_files(ROOT, "contributing")[upstream], Rules)
    assert bool(re.search(rules.title, title)) is good


def test_headings_in_comments_and_code_are_none() -> None:
    text = (
        "<!-- ## a\n## b -->\n# c #\n```\n## d\n- [ ] d\n```\n####### e\n ## f ##\n- [x] g\n"
        "{# ## h #}\n<!-- open\n## i"
    )
    assert outline(text) == ["## f", "g"]


#: Sections as they were read; the rest of the upstreams' files is theirs.
LIVE = {
    "vllm": ("Overview", "Claims", "Validation", "Details"),
    "pytorch": ("Issue", "Summary", "Checklist", "BC-breaking?"),
    "sglang": (
        "Motivation", "Modifications", "Accuracy Tests", "Speed Tests and Profiling", "Checklist",
        "Review and Merge Process",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(LIVE))
def test_ours_is_the_live_one_as_it_was_read(name: str) -> None:
    rules = read_model(upstream_files(ROOT, "contributing")[name], Rules)
    path = UPSTREAMS / "templates" / name / f"{rules.body.template}.md.j2"
    template = Template(rules.body.template, path)
    items = [row for row in outline(template.text) if not row.startswith("## ")]
    rows = [*(f"## {part}" for part in LIVE[name]), *(f"- [ ] {item}" for item in items)]

    def against(*live: str) -> tuple[str, ...]:
        return compare_with_live(template, "\n".join(live))

    headings = [row for row in outline(template.text) if row.startswith("## ")]
    assert headings == rows[: len(headings)]
    assert "the live template has `## More`, which is new" in against(*rows, "## More")
    assert against(*rows[1:])[0] == f"the live template has no `{rows[0]}` any more"
    assert against(*rows[:-1])[0] == f"the live template has no `{items[-1]}` any more"
    assert against(template.text) == ()
    assert against(*reversed(rows)) == ("the live template has its headings in another order",)
