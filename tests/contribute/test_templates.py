from __future__ import annotations

import re
from pathlib import Path

import pytest

from contribbot.contribute.body import (
    Template,
    compare_with_live,
    outline,
    rules_of,
    template_of,
)
from contribbot.contribute.model import Rules
from contribbot.errors import QueueError
from contribbot.queue.load import UPSTREAMS, load_queue, read_model, upstream_files
from tests.contribute.bodytoy import OWN, describe
from tests.contribute.place import edit
from tests.toy import Toy

NOWHERE = Path("/nonexistent")
NAMES = sorted(upstream_files(NOWHERE, "contributing"))


@pytest.mark.parametrize("name", NAMES)
def test_the_rules_that_come_along_name_a_template_and_none_hides_anything(name: str) -> None:
    assert set(upstream_files(NOWHERE)) <= set(NAMES)
    rules = read_model(upstream_files(NOWHERE, "contributing")[name], Rules)
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
    rules = read_model(upstream_files(NOWHERE, "contributing")["vllm"], Rules)
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
    rules = read_model(upstream_files(NOWHERE, "contributing")[upstream], Rules)
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
    rules = read_model(upstream_files(NOWHERE, "contributing")[name], Rules)
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
