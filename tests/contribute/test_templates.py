from __future__ import annotations

import re
from pathlib import Path

import pytest

from contribbot import upstreams
from contribbot.contribute.body import BLOCKS, compare_with_live, headings, rules_of, template_of
from contribbot.contribute.model import Rules, Template
from contribbot.errors import QueueError
from contribbot.queue.load import load_queue, read_model
from tests.contribute.bodytoy import describe
from tests.toy import Toy

NOWHERE = Path("/nonexistent")
NAMES = sorted(upstreams.contributing(NOWHERE))
TEMPLATES = [path for name in NAMES for path in upstreams.templates(NOWHERE, name).values()]


@pytest.mark.parametrize("name", NAMES)
def test_the_rules_that_come_along_are_valid_and_name_a_template(name: str) -> None:
    rules = read_model(upstreams.contributing(NOWHERE)[name], Rules)
    assert rules.upstream == name
    assert rules.body.template in upstreams.templates(NOWHERE, name)


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_the_templates_that_come_along_are_valid(path: Path) -> None:
    template = read_model(path, Template)
    assert (template.upstream, template.version) == (path.parent.name, path.stem)
    used = [block for one in template.sections for block in (*one.blocks, *one.folded)]
    assert len(set(used)) == len(used), "a block stands there twice"
    # Without these a text would hide what was not done, or where its figures are from.
    assert {"problem", "cause", "solution", "tests", "speed", "grid", "records"} <= set(used)
    assert set(used) <= set(BLOCKS)


def test_all_upstreams_of_the_queue_have_rules() -> None:
    assert set(upstreams.files(NOWHERE)) <= set(NAMES)


def test_a_queue_has_its_own(toy: Toy) -> None:
    describe(toy)
    folder = upstreams.templates(toy.queue, "vllm")["0.33.0"]
    toy.put("upstreams/templates/vllm/0.33.0.toml", folder.read_text().replace("Claims", "Boasts"))
    queue = load_queue(toy.queue)
    assert rules_of(queue, "toy").body.template == "1"
    vllm = rules_of(queue, "vllm")
    assert "## Boasts" in template_of(queue, vllm).headings
    assert template_of(queue, vllm, "0.22.0").headings == (
        "## Purpose", "## Test Plan", "## Test Result",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("path", "before", "after", "match"),
    [
        ("contributing/toy.toml", '"toy"', '"other"', "upstream is other, and the file's is toy"),
        ("contributing/toy.toml", 'template = "1"', 'template = "2"', "template 2, which is not"),
        ("contributing/toy.toml", "budget = 10000", "budgets = 1", "budgets: there is no such key"),
        ("templates/toy/1.toml", 'version = "1"', 'version = "2"', "it says toy 2, and its place"),
        ("templates/toy/1.toml", '"claims"', '"boasts"', r"sections\[1\]\.blocks"),
        ("templates/toy/1.toml", 'summary = "Checklist"', "", "give both or none"),
    ],
)
def test_a_wrong_file_is_told(toy: Toy, path: str, before: str, after: str, match: str) -> None:
    describe(toy)
    file = toy.queue / "upstreams" / path
    assert before in file.read_text()
    file.write_text(file.read_text().replace(before, after))
    queue = load_queue(toy.queue)
    with pytest.raises(QueueError, match=match):
        template_of(queue, rules_of(queue, "toy"))


@pytest.mark.parametrize("key", ["Co-authored-by", "Co-Authored-By", "Assisted-by"])
def test_a_trailer_of_vllms_is_known_however_it_is_written(key: str) -> None:
    rules = read_model(upstreams.contributing(NOWHERE)["vllm"], Rules)
    assert re.search(rules.ai.trailer, f"{key}: A model <model@example.com>")
    assert not re.search(rules.ai.trailer, "Reviewed-by: A model <model@example.com>")


def test_what_no_program_can_see_is_asked_of_vllms_contributors() -> None:
    rules = read_model(upstreams.contributing(NOWHERE)["vllm"], Rules)
    asked = {one.name: one.text for one in rules.questions}
    # tests/AGENTS.md forbids all of them.
    assert all(word in asked["tests"] for word in ("skip", "xfail", "retr", "tolerance"))


def test_headings_in_comments_and_code_are_none() -> None:
    text = "<!-- # a\n## b -->\n# c #\n```\n# d\n```\n####### e\n ## f\n<!-- open\n# g"
    assert headings(text) == ["# c", "## f"]


#: Headings as they were read; the rest of the upstreams' files is theirs.
LIVE = {
    "vllm": "## Overview\n## Claims\n## Validation\n## Details\n",
    "pytorch": "# Fixing an Issue\n## Issue\n## Summary\n## Checklist\n## BC-breaking?\n",
    "sglang": (
        "## Motivation\n## Modifications\n## Accuracy Tests\n## Speed Tests and Profiling\n"
        "## Checklist\n## Review and Merge Process\n"
    ),
}


@pytest.mark.parametrize("name", sorted(LIVE))
def test_ours_is_the_live_one_as_it_was_read(name: str) -> None:
    rules = read_model(upstreams.contributing(NOWHERE)[name], Rules)
    path = upstreams.templates(NOWHERE, name)[rules.body.template]
    template = read_model(path, Template)
    assert compare_with_live(template, LIVE[name]).lines == ()
    assert compare_with_live(template, LIVE[name] + "## More\n").new == ("## More",)
    rows = LIVE[name].splitlines()
    assert compare_with_live(template, "\n".join(rows[1:])).gone == (rows[0],)
    swapped = "\n".join([*rows[:-2], rows[-1], rows[-2]])
    changed = compare_with_live(template, swapped)
    assert (changed.moved, changed.gone, changed.new) == (True, (), ())
