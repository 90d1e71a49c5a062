"""GitHub's own GraphQL schema, from the package that GitHub's Octokit publishes."""

from __future__ import annotations

import hashlib
import os
import subprocess
import tarfile
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.conftest import REAL_CACHE

if TYPE_CHECKING:
    from graphql import GraphQLSchema

_PACKAGE: Final = "@octokit/graphql-schema"
_VERSION: Final = "15.26.1"
#: SHA-256 of `schema.graphql` in it.
_DIGEST: Final = "3c62d0526d133cee53221c89de9b455ade24db78b9e7ad56d642c4c15bce2654"
#: As it is before a test takes HOME away: npm reads there which registry and proxies to use.
_ENVIRONMENT: Final = dict(os.environ)


def schema_text() -> str:
    """Return the schema, kept between runs beside what contribbot keeps; fetched by npm else.

    Raises:
        AssertionError: npm gave another file than the one this package was written for.
    """
    kept = REAL_CACHE / "schemas" / f"github-{_VERSION}-{_DIGEST[:12]}.graphql"
    if not kept.exists():
        content = _fetch(kept.parent)
        assert hashlib.sha256(content).hexdigest() == _DIGEST, f"{_PACKAGE} {_VERSION} changed"
        with tempfile.NamedTemporaryFile(dir=kept.parent, delete=False) as file:
            file.write(content)
        Path(file.name).replace(kept)
    return kept.read_text(encoding="utf-8")


def _fetch(folder: Path) -> bytes:
    """Let npm fetch the package, and return the schema in it."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as place:
        subprocess.run(
            ["npm", "pack", "--silent", f"--cache={place}/npm", f"{_PACKAGE}@{_VERSION}"],
            cwd=place, env=_ENVIRONMENT, check=True, capture_output=True, timeout=300,
        )  # fmt: skip
        (archive,) = Path(place).glob("*.tgz")
        with tarfile.open(archive) as opened:
            member = opened.extractfile("package/schema.graphql")
            assert member is not None
            return member.read()


@cache
def github_schema() -> GraphQLSchema:
    """Return the schema to execute; built once, which takes about a second."""
    from graphql import build_ast_schema, parse

    document = parse(schema_text(), no_location=True)
    # GitHub has published it: only queries are to be validated.
    return build_ast_schema(document, assume_valid=True, assume_valid_sdl=True)
