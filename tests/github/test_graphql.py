"""POST /graphql is executed against our part of GitHub's schema; nothing is null by accident."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from pydantic import JsonValue

from tests.conftest import dig
from tests.github import nodes, state_social
from tests.github.handle import GitHub
from tests.github.scene import Scene, make_scene, text
from tests.github.state import User

BLOBS = """query($owner: String!, $name: String!, $a: GitObjectID!, $b: GitObjectID!) {
  repository(owner: $owner, name: $name) {
    a: object(oid: $a) { __typename ... on Blob { oid text isBinary isTruncated byteSize } }
    b: object(oid: $b) { __typename ... on Blob { oid text isBinary isTruncated byteSize } }
  }
}"""
PROJECT = 'repository(owner: "upstream", name: "project")'
LAST_FIVE = "pullRequest(number: 1) { reviewThreads(last: 5) { totalCount } }"
THREADS = """query($number: Int!, $after: String, $first: Int) {
  repository(owner: "upstream", name: "project") {
    pullRequest(number: $number) {
      reviewThreads(first: $first, after: $after) {
        pageInfo { hasNextPage endCursor }
        totalCount
        nodes {
          id isResolved isOutdated path line
          comments(first: 10) { nodes { databaseId body author { login } } }
        }
      }
    }
  }
}"""


@pytest.fixture
def scene(github: GitHub) -> Scene:
    return make_scene(github)


def ask(
    scene: Scene,
    query: str,
    variables: Mapping[str, JsonValue] | None = None,
    who: User | None = None,
) -> JsonValue:
    """Send a query and return the whole answer."""
    body: JsonValue = {"query": query, "variables": dict(variables or {})}
    return scene.json("POST", "/graphql", body, who=who)


def assert_breaks(scene: Scene, query: str, words: str) -> None:
    """See that a query is refused and would fail the test."""
    assert scene.ask("POST", "/graphql", {"query": query}).status_code == 500
    assert words in scene.github.server.broken.pop()


def test_files_by_their_ids(scene: Scene) -> None:
    git = scene.upstream.git
    binary = git.add_blob(b"\x7fELF\0\0")
    file = git.text("rev-parse", "main:file.txt")
    variables = {"owner": "upstream", "name": "project", "a": file, "b": binary}
    found = dig(ask(scene, BLOBS, variables), "data", "repository")
    assert dig(found, "a") == {
        "__typename": "Blob",
        "oid": file,
        "text": text().decode(),
        "isBinary": False,
        "isTruncated": False,
        "byteSize": len(text()),
    }
    assert dig(found, "b", "text") is None
    assert dig(found, "b", "isBinary") is True


def test_a_large_file_is_cut(scene: Scene) -> None:
    large = scene.upstream.git.add_blob(b"x" * (nodes.TEXT_LIMIT + 1))
    variables = {"owner": "upstream", "name": "project", "a": large, "b": "0" * 40}
    found = dig(ask(scene, BLOBS, variables), "data", "repository")
    assert dig(found, "a", "isTruncated") is True
    assert len(str(dig(found, "a", "text"))) == nodes.TEXT_LIMIT
    assert dig(found, "a", "byteSize") == nodes.TEXT_LIMIT + 1
    assert dig(found, "b") is None, "there is no such object"


def test_files_by_expression(scene: Scene) -> None:
    query = """{ repository(owner: "upstream", name: "project") {
        file: object(expression: "main:file.txt") { ... on Blob { text } }
        tree: object(expression: "main:") { __typename oid }
        commit: object(expression: "main") { __typename oid }
        gone: object(expression: "main:gone.txt") { __typename }
        odd: object(expression: "--help") { __typename }
    } }"""
    found = dig(ask(scene, query), "data", "repository")
    assert dig(found, "file", "text") == text().decode()
    assert dig(found, "tree", "__typename") == "Tree"
    assert dig(found, "commit", "oid") == scene.upstream.git.ref("refs/heads/main")
    assert dig(found, "gone") is None
    assert dig(found, "odd") is None


def test_threads_are_resolved_outdated_and_come_in_pages(scene: Scene) -> None:
    state, pull = scene.github.state, scene.pull
    roots = [
        state_social.add_review_comment(
            state, pull, scene.reviewer, f"{line}", path="file.txt", line=line
        )
        for line in (10, 30, 31)
    ]
    reply = state_social.add_reply(state, pull, scene.author, roots[0], "Because")
    scene.push({10: "TEN\n", 30: "thirty\n"})
    first = ask(scene, THREADS, {"number": pull.number, "first": 2})
    found = dig(first, "data", "repository", "pullRequest", "reviewThreads")
    assert dig(found, "totalCount") == 3
    assert [dig(found, "nodes", at, "isOutdated") for at in range(2)] == [True, False]
    assert [dig(found, "nodes", at, "line") for at in range(2)] == [None, 30]
    assert dig(found, "nodes", 0, "comments", "nodes") == [
        {"databaseId": roots[0].id, "body": "10", "author": {"login": "reviewer"}},
        {"databaseId": reply.id, "body": "Because", "author": {"login": "author"}},
    ]
    assert dig(found, "pageInfo", "hasNextPage") is True
    after = dig(found, "pageInfo", "endCursor")
    second = ask(scene, THREADS, {"number": pull.number, "first": 2, "after": after})
    rest = dig(second, "data", "repository", "pullRequest", "reviewThreads")
    assert dig(rest, "nodes", 0, "line") == 31
    assert dig(rest, "pageInfo", "hasNextPage") is False

    settle = """mutation($id: ID!) { resolveReviewThread(input: {threadId: $id}) {
        thread { isResolved } } }"""
    thread = dig(found, "nodes", 1, "id")
    done = ask(scene, settle, {"id": thread})
    assert dig(done, "data", "resolveReviewThread", "thread", "isResolved") is True
    again = ask(scene, THREADS, {"number": pull.number, "first": 100})
    threads = dig(again, "data", "repository", "pullRequest", "reviewThreads", "nodes")
    assert [dig(threads, at, "isResolved") for at in range(3)] == [False, True, False]
    other = scene.github.add_user("passer-by")
    refused = ask(scene, settle, {"id": thread}, who=other)
    assert dig(refused, "errors", 0, "type") == "FORBIDDEN"


MOVE = """mutation($repository: ID!, $old: GitObjectID!, $new: GitObjectID!) {
  updateRefs(input: {repositoryId: $repository, refUpdates: [
    {name: "refs/heads/again", beforeOid: $old, afterOid: $new, force: true}]}) {
    clientMutationId } }"""


def test_a_branch_moves_only_from_what_it_is_said_to_have(scene: Scene) -> None:
    old, new = scene.pull.base_sha, scene.pull.head_sha
    scene.fork.git.set_ref("refs/heads/again", old)
    name, owner = scene.fork.name, scene.fork.owner.login
    found = ask(scene, f'{{ repository(owner: "{owner}", name: "{name}") {{ id }} }}')
    fork = dig(found, "data", "repository", "id")
    refused = ask(scene, MOVE, {"repository": fork, "old": new, "new": old})
    assert dig(refused, "errors", 0, "type") == "UNPROCESSABLE"
    other = scene.github.add_user("passer-by")
    refused = ask(scene, MOVE, {"repository": fork, "old": old, "new": new}, who=other)
    assert dig(refused, "errors", 0, "type") == "FORBIDDEN"
    assert scene.fork.git.ref("refs/heads/again") == old
    done = ask(scene, MOVE, {"repository": fork, "old": old, "new": new})
    assert dig(done, "data", "updateRefs", "clientMutationId") is None
    assert scene.fork.git.ref("refs/heads/again") == new


def test_who_asks_and_how_often(scene: Scene) -> None:
    query = "{ viewer { login } rateLimit { limit remaining used cost resetAt } }"
    found = dig(ask(scene, query), "data")
    assert dig(found, "viewer", "login") == "author"
    assert dig(found, "rateLimit", "remaining") == 4999
    answer = scene.ask("POST", "/graphql", {"query": query})
    assert answer.headers["x-ratelimit-resource"] == "graphql"


def test_refusals_come_with_status_200(scene: Scene) -> None:
    found = ask(scene, '{ repository(owner: "no", name: "body") { id } }')
    assert dig(found, "data", "repository") is None
    assert dig(found, "errors", 0, "type") == "NOT_FOUND"
    assert dig(found, "errors", 0, "path") == ["repository"]
    unbound = ask(scene, THREADS, {"number": scene.pull.number})
    assert dig(unbound, "errors", 0, "type") == "MISSING_PAGINATION_BOUNDARIES"
    many = ask(scene, THREADS, {"number": scene.pull.number, "first": 101})
    assert dig(many, "errors", 0, "type") == "EXCESSIVE_PAGINATION"


def test_a_private_repository_is_hidden(scene: Scene) -> None:
    scene.github.add_repository("upstream/secret", private=True)
    found = ask(scene, '{ repository(owner: "upstream", name: "secret") { id } }')
    assert dig(found, "errors", 0, "type") == "NOT_FOUND"


def test_nobody_is_asked_to_sign_in(scene: Scene) -> None:
    answer = scene.ask(
        "POST", "/graphql", {"query": "{ viewer { login } }"}, headers={"Authorization": "Bearer x"}
    )
    assert answer.status_code == 401


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("{ viewer { bio } }", "Cannot query field 'bio'"),
        ("{ viewer { login }", "cannot be read"),
        ('{ node(id: "x") { id } }', "Cannot query field 'node'"),
        (f"query($n: Int!) {{ {PROJECT} {{ pullRequest(number: $n) {{ id }} }} }}", "invalid"),
        (f"{{ {PROJECT} {{ {LAST_FIVE} }} }}", "Unknown argument 'last'"),
        ('mutation { addStar(input: {starrableId: "x"}) { clientMutationId } }', "addStar"),
    ],
)  # fmt: skip
def test_what_is_not_modelled_fails_the_test(scene: Scene, query: str, words: str) -> None:
    assert_breaks(scene, query, words)


def test_a_client_that_is_not_ours(scene: Scene) -> None:
    kit = scene.kit()
    assert kit.graphql("query { viewer { login } }") == {"viewer": {"login": "author"}}
