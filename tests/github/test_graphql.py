"""POST /graphql is executed against our part of GitHub's schema; nothing is null by accident."""

from __future__ import annotations

import pytest
from pydantic import JsonValue

from contribbot.github.client import THREADS
from contribbot.github.git_data import texts_query
from tests.conftest import dig
from tests.github import state_social
from tests.github.graphql import TEXT_LIMIT
from tests.github.handle import GitHub
from tests.github.scene import Scene, make_scene, text
from tests.github.state import User, node_id

PROJECT = 'repository(owner: "upstream", name: "project")'
MOVE = """mutation($input: UpdateRefsInput!) { updateRefs(input: $input) { clientMutationId } }"""


@pytest.fixture
def scene(github: GitHub) -> Scene:
    return make_scene(github)


def ask(
    scene: Scene, query: str, variables: dict[str, JsonValue] | None = None, who: User | None = None
) -> JsonValue:
    """Send a query and return the whole answer."""
    body: JsonValue = {"query": query, "variables": variables or {}}
    return scene.json("POST", "/graphql", body, who=who)


def test_files_by_their_ids(scene: Scene) -> None:
    git = scene.upstream.git
    contents = (text(), b"\x7fELF\0\0", b"x" * (TEXT_LIMIT + 1))
    ids = [*map(git.add_blob, contents), "0" * 40]
    found = dig(ask(scene, texts_query(ids), {"owner": "upstream", "name": "project"}), "data")
    known = [dig(found, "repository", f"b{number}") for number in range(4)]
    assert known[0] == {"text": text().decode(), "isTruncated": False}
    assert dig(known[1], "text") is None
    assert (dig(known[2], "isTruncated"), len(str(dig(known[2], "text")))) == (True, TEXT_LIMIT)
    assert known[3] is None


def test_threads_are_outdated_and_come_in_pages(scene: Scene) -> None:
    state, pull = scene.github.state, scene.pull
    for line in (10, 30) * 12:
        state_social.add_review_comment(
            state, pull, scene.reviewer, f"{line}", path="file.txt", line=line
        )
    pull.resolved.add(pull.review_comments[0].id)
    scene.push({10: "TEN\n", 30: "thirty\n"})
    query = THREADS.replace("first: 100", "first: 20")
    asked: dict[str, JsonValue] = {"owner": "upstream", "name": "project", "number": pull.number}
    pages = []
    for _ in range(2):
        said = dig(ask(scene, query, asked), "data", "repository", "pullRequest", "reviewThreads")
        pages.append(said)
        asked["after"] = dig(said, "pageInfo", "endCursor")
    assert [dig(one, "pageInfo", "hasNextPage") for one in pages] == [True, False]
    assert [dig(pages[0], "nodes", at, "isResolved") for at in (0, 1)] == [True, False]
    assert [dig(pages[0], "nodes", at, "isOutdated") for at in (0, 1)] == [True, False]
    many = ask(scene, query.replace("first: 20", "first: 101"), asked)
    assert dig(many, "errors", 0, "type") == "EXCESSIVE_PAGINATION"


@pytest.mark.parametrize(
    ("old", "who", "kind"),
    [
        ("base", "author", ""),
        ("head", "author", "UNPROCESSABLE"),
        ("base", "reviewer", "FORBIDDEN"),
    ],
)
def test_a_branch_moves_only_from_what_it_is_said_to_have(
    scene: Scene, old: str, who: str, kind: str
) -> None:
    known = {"base": scene.pull.base_sha, "head": scene.pull.head_sha}
    scene.fork.git.set_ref("refs/heads/again", known["base"])
    update: JsonValue = {
        "name": "refs/heads/again", "beforeOid": known[old], "afterOid": known["head"],
        "force": True,
    }  # fmt: skip
    asked: JsonValue = {
        "repositoryId": node_id("Repository", scene.fork.id),
        "refUpdates": [update],
    }
    said = ask(scene, MOVE, {"input": asked}, scene.author if who == "author" else scene.reviewer)
    assert kind == (dig(said, "errors", 0, "type") if kind else "")
    assert scene.fork.git.ref("refs/heads/again") == known["base" if kind else "head"]


def test_a_private_repository_is_hidden_and_nobody_is_asked_to_sign_in(scene: Scene) -> None:
    scene.github.add_repository("upstream/secret", private=True)
    found = ask(scene, '{ repository(owner: "upstream", name: "secret") { id } }')
    assert dig(found, "errors", 0, "type") == "NOT_FOUND"
    body: JsonValue = {"query": f"{{ {PROJECT} {{ id }} }}"}
    nobody = {"Authorization": "Bearer x"}
    assert scene.ask("POST", "/graphql", body, headers=nobody).status_code == 401


@pytest.mark.parametrize(
    ("query", "words"),
    [
        (f"{{ {PROJECT} {{ stars }} }}", "Cannot query field 'stars'"),
        (f"{{ {PROJECT} {{ id }}", "cannot be read"),
        (f"query($n: Int!) {{ {PROJECT} {{ pullRequest(number: $n) {{ isDraft }} }} }}", "$n"),
        (f'{{ {PROJECT} {{ object(oid: "{"0" * 40}") {{ oid }} }} }}', ""),
    ],
)  # fmt: skip
def test_what_is_not_modelled_fails_the_test(scene: Scene, query: str, words: str) -> None:
    status = scene.ask("POST", "/graphql", {"query": query}).status_code
    assert status == (500 if words else 200)
    assert not words or words in scene.github.server.broken.pop()
