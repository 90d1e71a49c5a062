"""Queries and answers fit GitHub's own schema, which npm brings; refusals have a next step."""

from __future__ import annotations

import hashlib
import json
from typing import Final

import pytest
from graphql import GraphQLSchema, build_schema, graphql_sync, parse, validate

from contribbot.github.client import refusal
from contribbot.github.pull_state import QUERY
from tests.github import graph
from tests.github.npm import brought
from tests.github.state import CheckSuite, Json
from tests.github.world import World

pytestmark = pytest.mark.tool("npm")

_PACKAGE: Final = "@octokit/graphql-schema"
_VERSION: Final = "15.26.1"
#: The SHA-256 of the package's `schema.graphql`.
_DIGEST: Final = "3c62d0526d133cee53221c89de9b455ade24db78b9e7ad56d642c4c15bce2654"

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
    # These had a wrong next step once, or none.
    (451, "pulls", "Repository access blocked", "for legal reasons"),
    (403, "pulls", "Repository has been locked for migration.", "GitHub moves the repository"),
    (422, "merge-upstream", "Not all refs are readable", "run it again in a minute"),
    (422, "pulls", "No commits between org:main and ada:fix", "the upstream has all of it"),
    (422, "pulls", "You have reached the limit of open pull requests.", "close one there"),
    (403, "issues/1/comments", "Comment was submitted too quickly", "wait some minutes"),
    (403, "pulls", "your IP address is not permitted by its IP allow list", "from an address"),
    (403, "forks", "You must enable two-factor authentication", "/settings/security"),
    (403, "forks", "the org has enabled OAuth App access restrictions", "ask an owner"),
    (403, "pulls", "Repository was archived so is read-only.", "its owners take no changes"),
    (403, "issues/1/comments", "Please verify your email address.", "/settings/emails"),
    (418, "pulls", "Something new", "see on its page"),
    (406, "pulls/1", "Sorry, the diff exceeded the maximum number of lines", "from a clone"),
    (403, "pulls", "Resource not accessible by integration", "give the token that permission"),
    (403, "pulls", "`org` forbids access via a personal access token (classic).", "--handoff"),
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
    # GitHub has published the schema: the schema itself needs no validation.
    return build_schema(
        content.decode(), assume_valid=True, assume_valid_sdl=True, no_location=True
    )


#: The mutations that PyGithub sends.
MOVE: Final = (
    "mutation Mutation($input: UpdateRefsInput!) { updateRefs(input: $input) { clientMutationId } }"
)
READY: Final = (
    "mutation Mutation($input: MarkPullRequestReadyForReviewInput!) { markPullRequestReadyForReview"
    "(input: $input) { clientMutationId pullRequest { isDraft } } }"
)


@pytest.mark.parametrize("query", [MOVE, READY, QUERY], ids=["move", "ready", "state"])
def test_what_contribbot_asks_is_what_github_knows(real: GraphQLSchema, query: str) -> None:
    assert validate(real, parse(query)) == []


def test_the_local_github_answers_as_the_schema_describes(
    real: GraphQLSchema, world: World
) -> None:
    state, pull = world.github, world.pull
    state.add_review_comment(pull, world.mia, "Why?", path="core.py", line=2)
    state.add_review(pull, world.mia, "APPROVED")
    state.add_check(pull, "lint", "success")
    world.upstream.check_suites.append(CheckSuite(pull.head_sha, "CI", "action_required"))
    world.upstream.required[:] = ["unit"]
    for kind in ("added_to_merge_queue", "removed_from_merge_queue"):
        state.add_event(pull.issue, kind)
    sha = world.github.merge(pull)
    state.add_event(pull.issue, "referenced", commit=sha)
    state.add_event(pull.issue, "closed", commit=sha)
    asked: Json = {"head": "ada:fix", "compared": True}
    variables = {"owner": "org", "name": "tool", "number": pull.number, **asked}
    answer = graph.pull_state(state, pull, {**asked})
    # The local GitHub's answer has the aliases of the query as names.
    found = graphql_sync(
        real, QUERY, answer, variable_values=variables,
        field_resolver=lambda source, info, **_: source.get(info.path.key),
    )  # fmt: skip
    assert found.errors is None
