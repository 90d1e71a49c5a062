"""What contribbot asks of GraphQL is in GitHub's own schema, which npm brings."""

from __future__ import annotations

import hashlib
import os
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import Final

import pytest
from graphql import GraphQLSchema, build_schema, parse, validate

from contribbot.github.client import THREADS
from contribbot.github.git_data import texts_query
from tests.conftest import REAL_CACHE

pytestmark = pytest.mark.tool("npm")

_PACKAGE: Final = "@octokit/graphql-schema"
_VERSION: Final = "15.26.1"
#: SHA-256 of `schema.graphql` in it.
_DIGEST: Final = "3c62d0526d133cee53221c89de9b455ade24db78b9e7ad56d642c4c15bce2654"
#: As it is before a test takes HOME away: npm reads there which registry and proxies to use.
_ENVIRONMENT: Final = dict(os.environ)


@pytest.fixture(scope="module")
def real() -> GraphQLSchema:
    """GitHub's own schema, from the package that its Octokit publishes; kept between runs."""
    kept = REAL_CACHE / "schemas" / f"github-{_VERSION}-{_DIGEST[:12]}.graphql"
    if not kept.exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=kept.parent) as place:
            content = _fetch(Path(place))
            assert hashlib.sha256(content).hexdigest() == _DIGEST, f"{_PACKAGE} {_VERSION} changed"
            Path(place, "schema.graphql").write_bytes(content)
            Path(place, "schema.graphql").replace(kept)
    # GitHub has published it, so it is not validated itself.
    return build_schema(
        kept.read_text(encoding="utf-8"), assume_valid=True, assume_valid_sdl=True, no_location=True
    )


def _fetch(folder: Path) -> bytes:
    """Let npm fetch the package, and return the schema in it."""
    subprocess.run(
        ["npm", "pack", "--silent", f"--cache={folder}/npm", f"{_PACKAGE}@{_VERSION}"],
        cwd=folder, env=_ENVIRONMENT, check=True, capture_output=True, timeout=300,
    )  # fmt: skip
    (archive,) = folder.glob("*.tgz")
    with tarfile.open(archive) as opened:
        member = opened.extractfile("package/schema.graphql")
        assert member is not None
        return member.read()


#: As PyGithub writes them.
MOVE: Final = (
    "mutation Mutation($input: UpdateRefsInput!) { updateRefs(input: $input) { clientMutationId } }"
)
READY: Final = (
    "mutation Mutation($input: MarkPullRequestReadyForReviewInput!) { markPullRequestReadyForReview"
    "(input: $input) { clientMutationId pullRequest { isDraft } } }"
)


@pytest.mark.parametrize(
    "query", [MOVE, READY, THREADS, texts_query(["0" * 40])],
    ids=["move", "ready", "threads", "texts"],
)  # fmt: skip
def test_what_contribbot_asks_is_what_github_knows(real: GraphQLSchema, query: str) -> None:
    assert validate(real, parse(query)) == []
