"""Each kind of request that contribbot sends, and GitHub's answer, are as GitHub describes them."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from pydantic import JsonValue

from tests.github.handle import GitHub
from tests.github.scene import Scene, make_scene, text
from tests.github.sent import SENT, Sent, alike
from tests.github.state_actions import Storage, actions_of, add_job, add_run, end_job, upload
from tests.github.state_social import add_check_run, add_comment, add_review, add_review_comment

WORKFLOW = b"""\
name: verify
on: {workflow_dispatch: {inputs: {patches: {}, targets: {}, request: {}}}}
"""


@pytest.fixture
def scene(github: GitHub) -> Iterator[Scene]:
    """A pull request with all that can be read of one, and a run of a workflow."""
    made = make_scene(github)
    state, pull, upstream = github.state, made.pull, made.upstream
    github.commit(upstream, "main", {".github/workflows/verify.yml": WORKFLOW}, "Add a workflow\n")
    github.commit(made.fork, "again", {"file.txt": text({20: "twenty\n"})}, "Again\n")
    upstream.members["author"] = "write"
    add_check_run(state, upstream, pull.head_sha, "lint", "success")
    add_comment(state, pull.issue, made.reviewer, "Why?")
    add_review(state, pull, made.reviewer, "CHANGES_REQUESTED", body="No.")
    add_review_comment(state, pull, made.reviewer, "Here", path="file.txt", line=10)
    run = add_run(
        state, upstream, "verify.yml", "main", event="workflow_dispatch", actor=made.author
    )
    end_job(state, add_job(state, run, "plan"), "success")
    upload(state, run, "plan", b"a zip")
    with Storage().running() as storage:
        actions_of(upstream).storage = storage
        yield made


def fill(scene: Scene, words: str) -> str:
    """Put what the scene has into a path or a body."""
    git, pull = scene.upstream.git, scene.pull
    (run,) = actions_of(scene.upstream).runs.values()
    base = git.commit(pull.base_sha)
    known = {
        "number": pull.number, "head": pull.head_sha, "base": base.sha, "tree": base.tree,
        "blob": git.add_blob(b"x"), "comment": pull.review_comments[0].id, "run": run.id,
        "artifact": run.artifacts[0].id,
    }  # fmt: skip
    for name, value in known.items():
        words = words.replace(f"<{name}>", str(value))
    return words


@pytest.mark.parametrize("sent", SENT, ids=str)
def test_each_is_taken_and_answered(scene: Scene, sent: Sent) -> None:
    body: JsonValue = json.loads(fill(scene, json.dumps(sent.body)))
    answer = scene.ask(sent.method, fill(scene, sent.path), body, query=sent.query)
    assert answer.is_success or answer.is_redirect, answer.text


@pytest.mark.parametrize(
    ("sent", "example", "same"),
    [
        ({"a": "x"}, {"a": "y"}, True),
        ({"a": "x"}, {"a": 1}, False),
        ({"a": "x"}, {"a": "y", "b": "z"}, False),
        ({"a": "x", "b": "z"}, {"a": "y"}, False),
        ([{"a": "x"}, {"a": None}], [{"a": None}, {"a": "y"}], True),
        ([{"a": "x"}], [{"b": "x"}], False),
        (True, 1, False),
    ],
)
def test_what_is_alike_has_the_same_keys_and_types(
    sent: JsonValue, example: JsonValue, *, same: bool
) -> None:
    assert alike(sent, example) is same
