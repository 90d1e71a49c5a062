"""What the local GitHub refuses: else a test of the client could show what GitHub does not do."""

from __future__ import annotations

import pytest
from pydantic import JsonValue

from contribbot.errors import GitHubError
from tests.github.models import UndescribedError, described
from tests.github.ours import client
from tests.github.world import World


@pytest.mark.parametrize(
    ("known", "words"),
    [
        ({"nickname": "x"}, "PullRequest has no nickname"),
        ({"number": "1"}, "number: Input should be a valid integer"),
        ({"title": None}, "title: Input should be a valid string"),
        ({"head": {"colour": "red"}}, "PullRequestPropHead has no colour"),
    ],
    ids=["key", "type", "null", "inside"],
)  # fmt: skip
def test_an_answer_is_as_github_describes_it(known: dict[str, JsonValue], words: str) -> None:
    assert described("PullRequest", {"number": 1})["closed_at"] is None
    with pytest.raises(UndescribedError, match=words):
        described("PullRequest", known)


@pytest.mark.parametrize(
    ("sent", "body", "status", "words"),
    [
        ("GET /repos/org/tool/stargazers", None, 501, "not modelled: GET /repos"),
        ("GET /repos/org/tool/pulls?base=main", None, 501, "query ['base']"),
        ("POST /repos/org/tool/issues", {"title": "T", "milestone": 1}, 501,
         "body keys ['milestone']"),
        ("POST /repos/org/tool/issues", {"title": "T", "colour": 1}, 500, "PostBody has no colour"),
        ("POST /graphql", {"query": "{ viewer { login } }", "variables": {}}, 501, "GraphQL"),
    ],
)  # fmt: skip
def test_a_request_that_it_does_not_model_fails_the_test(
    world: World, sent: str, body: JsonValue, status: int, words: str
) -> None:
    verb, path = sent.split()
    with (
        client(world.github, world.ada.tokens[0].text) as ours,
        pytest.raises(GitHubError, match=f"HTTP {status}"),
    ):
        ours.requester.requestJson(verb, path, input=body)
    assert words in world.github.broken[-1]
    world.github.broken.clear()  # it was meant to be there
