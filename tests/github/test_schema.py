"""What contribbot asks, and is answered, is in GitHub's own descriptions, which npm brings."""

from __future__ import annotations

import hashlib
import json
from typing import Final

import pytest
from graphql import GraphQLSchema, build_schema, parse, validate

from contribbot.github.client import THREADS
from contribbot.github.refusals import refusal
from tests.github.npm import brought

pytestmark = pytest.mark.tool("npm")

_PACKAGE: Final = "@octokit/graphql-schema"
_VERSION: Final = "15.26.1"
#: SHA-256 of `schema.graphql` in it.
_DIGEST: Final = "3c62d0526d133cee53221c89de9b455ade24db78b9e7ad56d642c4c15bce2654"


#: GitHub's description of its REST API, and what contribbot writes there.
_REST: Final = "@octokit/openapi"
_REST_VERSION: Final = "23.0.2"
WRITES: Final = (
    ("post", "/forks"), ("post", "/merge-upstream"), ("post", "/git/blobs"), ("post", "/git/trees"),
    ("post", "/git/commits"), ("post", "/git/refs"), ("patch", "/git/refs/{ref}"),
    ("post", "/pulls"), ("patch", "/pulls/{pull_number}"),
    ("post", "/issues/{issue_number}/comments"),
    ("post", "/pulls/{pull_number}/comments/{comment_id}/replies"),
    ("post", "/actions/workflows/{workflow_id}/dispatches"),
)  # fmt: skip


def test_each_refusal_that_github_describes_has_a_next_step() -> None:
    kept = brought(f"{_REST}@{_REST_VERSION}") / "node_modules" / _REST / "generated"
    described = json.loads((kept / "api.github.com.json").read_bytes())
    seen = 0
    for method, path in WRITES:
        answers = described["paths"][f"/repos/{{owner}}/{{repo}}{path}"][method]["responses"]
        for status in (int(text) for text in answers if text >= "400"):
            what = f"{method.upper()} /repos/o/n{path}"
            assert refusal(what, status, {}, '{"message": "No"}', "GH_TOKEN").hint, (what, status)
            seen += 1
    assert seen > 2 * len(WRITES)


SAYINGS: Final = (
    (409, "git/blobs", "Secret detected in content", "take the secret out"),
    (409, "git/trees", "Secret detected in tree", "take the secret out"),
    (404, "git/trees", "Not Found", "still be making the fork"),
    (422, "pulls", "Draft pull requests are not supported in this repository.", "--ready"),
    (422, "pulls", "A pull request already exists for ada:fix.", "in a minute"),
    (403, "forks", "The repository exists, but forking is disabled.", "allows no forks"),
    (403, "pulls", "Pull requests are disabled for this repository.", "where the project takes"),
    (403, "pulls", "Only collaborators can open pull requests.", "ask a maintainer"),
    (403, "pulls", "Interactions on this repository have been restricted", "ask a maintainer"),
    (403, "forks", "At least one email address must be verified to do that.", "/settings/emails"),
    (403, "forks", "Sorry. Your account was suspended.", "support.github.com"),
    (403, "issues/1/comments", "Unable to create comment because issue is locked.", "unlock"),
    (403, "dispatches", "GitHub Actions is disabled on this repository.", "permit Actions"),
    (400, "pulls", "X-GitHub-Api-Version: not a supported version", "contribbot up to date"),
)


@pytest.mark.parametrize(
    ("status", "path", "words", "step"), SAYINGS, ids=[it[2] for it in SAYINGS]
)
def test_what_github_says_has_a_next_step(status: int, path: str, words: str, step: str) -> None:
    body = json.dumps({"message": words})
    error = refusal(f"POST /repos/o/n/{path}", status, {}, body, "GH_TOKEN")
    assert step in error.hint
    assert words in error.message


@pytest.fixture(scope="module")
def real() -> GraphQLSchema:
    """GitHub's own schema, from the package that its Octokit publishes; kept between runs."""
    kept = brought(f"{_PACKAGE}@{_VERSION}")
    content = (kept / "node_modules" / _PACKAGE / "schema.graphql").read_bytes()
    assert hashlib.sha256(content).hexdigest() == _DIGEST, f"{_PACKAGE} {_VERSION} changed"
    # GitHub has published it, so it is not validated itself.
    return build_schema(
        content.decode(), assume_valid=True, assume_valid_sdl=True, no_location=True
    )


#: As PyGithub writes them.
MOVE: Final = (
    "mutation Mutation($input: UpdateRefsInput!) { updateRefs(input: $input) { clientMutationId } }"
)
READY: Final = (
    "mutation Mutation($input: MarkPullRequestReadyForReviewInput!) { markPullRequestReadyForReview"
    "(input: $input) { clientMutationId pullRequest { isDraft } } }"
)


@pytest.mark.parametrize("query", [MOVE, READY, THREADS], ids=["move", "ready", "threads"])
def test_what_contribbot_asks_is_what_github_knows(real: GraphQLSchema, query: str) -> None:
    assert validate(real, parse(query)) == []
