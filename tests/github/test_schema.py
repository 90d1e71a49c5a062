"""What contribbot asks of GraphQL is in GitHub's own schema, which npm brings."""

from __future__ import annotations

import hashlib
from typing import Final

import pytest
from graphql import GraphQLSchema, build_schema, parse, validate

from contribbot.github.client import THREADS
from tests.github.npm import brought

pytestmark = pytest.mark.tool("npm")

_PACKAGE: Final = "@octokit/graphql-schema"
_VERSION: Final = "15.26.1"
#: SHA-256 of `schema.graphql` in it.
_DIGEST: Final = "3c62d0526d133cee53221c89de9b455ade24db78b9e7ad56d642c4c15bce2654"


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
