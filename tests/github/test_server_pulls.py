"""Pull requests of the local GitHub: what they show is git's, and how they end."""

from __future__ import annotations

import re
import threading
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection

import pytest
from pydantic import JsonValue

from tests.github.rawclient import Raw
from tests.github.server import Hook
from tests.github.state import Pull
from tests.github.wire import Answer, HangUpError, Request
from tests.github.world import FIXED, World, run_git

PULLS = "/repos/org/tool/pulls"


@pytest.fixture
def pull(world: World) -> Pull:
    world.change("fix")
    return world.github.pull(world.upstream, world.fork, "fix", title="Add", body="Why")


def test_the_same_head_is_never_opened_twice(world: World) -> None:
    world.change("fix")
    ask = world.raw(world.ada)
    body: JsonValue = {"title": "Add", "head": "ada:fix", "base": "main", "draft": True}
    assert ask("POST", PULLS, body).at("number") == 1
    again = ask("POST", PULLS, body)
    assert again.status == 422
    assert again.at("errors", 0, "message") == "A pull request already exists for ada:fix."


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"head": "ada:nothing"}, "'head'"),
        ({"head": "carl:fix"}, "'head'"),
        ({"base": "nothing"}, "'base'"),
        ({"head": "ada:main"}, "No commits between org:main and ada:main"),
        ({"title": " "}, "'missing_field'"),
        ({"body": "x" * 65537}, "body is too long (maximum is 65536 characters)"),
        ({"title": "x" * 257}, "title is too long (maximum is 256 characters)"),
    ],
)
def test_a_pull_request_that_is_refused(world: World, change: dict[str, str], words: str) -> None:
    world.change("fix")
    body: JsonValue = {"title": "Add", "head": "ada:fix", "base": "main", **change}
    answer = world.raw(world.ada)("POST", PULLS, body)
    assert answer.status == 422
    assert words in answer.words()
    assert world.upstream.issues == {}


def test_its_files_and_diff_are_gits(world: World, pull: Pull) -> None:
    world.github.commit(world.upstream, "main", {"NEWS": b"new\n"})
    path = f"{PULLS}/{pull.number}"
    diff = world.raw()("GET", path, Accept="application/vnd.github.v3.diff").body.decode()
    range_ = f"{world.tip()}...{pull.head_sha}"
    git = run_git(world.upstream.git.path, "diff", range_)
    assert diff.strip() == git
    file = world.raw()("GET", f"{path}/files")
    assert file.at(0, "filename") == "src/core.py"
    assert str(file.at(0, "patch")).strip() == git[git.index("@@") :]
    ids = [
        run_git(world.source, "patch-id", "--stable", stdin=text.encode()) for text in (diff, git)
    ]
    assert ids[0] == ids[1]
    assert ids[0]


def test_a_new_head_is_followed(world: World, pull: Pull) -> None:
    sha = world.change("fix", FIXED + "\n# more\n")
    path = f"{PULLS}/{pull.number}"
    assert world.raw()("GET", path).at("head", "sha") == sha
    assert world.raw()("GET", path).at("commits") == 2
    assert run_git(world.upstream.git.path, "rev-parse", f"refs/pull/{pull.number}/head") == sha
    world.raw(world.ada)("DELETE", "/repos/ada/tool/git/refs/heads/fix")
    assert world.raw()("GET", path).at("state") == "closed"


def test_mergeability_is_gits_and_may_take_a_second_look(world: World, pull: Pull) -> None:
    world.github.state.mergeable_at_once = False
    path = f"{PULLS}/{pull.number}"
    look = [world.raw()("GET", path) for _ in range(2)]
    assert [one.at("mergeable") for one in look] == [None, True]
    test_merge = str(look[1].at("merge_commit_sha"))
    assert run_git(world.upstream.git.path, "rev-parse", f"{test_merge}^2") == pull.head_sha
    clash = {"src/core.py": b"def add(a, b):\n    return sum((a, b))\n"}
    world.github.commit(world.upstream, "main", clash)
    look = [world.raw()("GET", path) for _ in range(2)]
    assert [one.at("mergeable") for one in look] == [None, False]
    assert look[1].at("mergeable_state") == "dirty"
    refused = world.raw(world.mia)("PUT", f"{path}/merge")
    assert (refused.status, refused.words()) == (405, "Pull Request is not mergeable")


@pytest.mark.parametrize("how", ["merge", "squash", "rebase"])
def test_merged_by_a_person(world: World, pull: Pull, how: str) -> None:
    world.change("fix", FIXED + "\n# more\n")
    world.github.commit(world.upstream, "main", {"NEWS": b"new\n"})
    path = f"{PULLS}/{pull.number}"
    done = world.raw(world.mia)("PUT", f"{path}/merge", {"merge_method": how})
    assert done.at("merged") is True
    after = world.raw()("GET", path)
    assert after.at("merge_commit_sha") == done.at("sha") == world.tip()
    assert after.at("merged_by", "login") == "mia"
    assert run_git(world.upstream.git.path, "show", "main:src/core.py").endswith("# more")
    assert run_git(world.upstream.git.path, "show", "main:NEWS") == "new"
    compared = world.raw()("GET", f"/repos/org/tool/compare/main...{pull.head_sha}")
    assert compared.at("status") == ("behind" if how == "merge" else "diverged")
    parents = world.upstream.git.commit(world.tip()).parents
    assert len(parents) == (2 if how == "merge" else 1)
    if how != "merge":
        assert world.upstream.git.commit(world.tip()).author.email == "ada@example.org"


def test_landed_by_a_bot(world: World, pull: Pull) -> None:
    sha = world.github.merge(pull, "bot")
    after = world.raw()("GET", f"{PULLS}/{pull.number}")
    assert (after.at("state"), after.at("merged"), after.at("merged_at")) == ("closed", False, None)
    words = run_git(world.upstream.git.path, "log", "-1", "--format=%B", "main")
    assert f"Pull Request resolved: https://github.com/org/tool/pull/{pull.number}" in words
    assert [(one.event, one.commit_id) for one in pull.issue.events] == [
        ("referenced", sha),
        ("closed", sha),
    ]
    compared = world.raw()("GET", f"/repos/org/tool/compare/main...{sha}")
    assert compared.at("status") == "identical"


def test_commits_that_are_pushed_to_the_base_merge_it(world: World, pull: Pull) -> None:
    run_git(world.upstream.git.path, "update-ref", "refs/heads/main", pull.head_sha)
    assert world.raw()("GET", f"{PULLS}/{pull.number}").at("merged") is True


def test_tokens_and_who_may_what(world: World, pull: Pull) -> None:
    github, path = world.github, "/repos/org/tool/git/refs"
    ref: JsonValue = {"ref": "refs/heads/x", "sha": world.tip()}
    assert Raw(github.base, "ghp_wrong")("GET", "/user").words() == "Bad credentials"
    assert world.raw()("GET", "/user").status == 401
    assert world.raw()("POST", PULLS, {"title": "t", "head": "x:y", "base": "main"}).status == 401
    assert world.raw(world.ada)("POST", path, ref).status == 404, "no push access"
    assert world.raw(world.mia)("POST", path, ref).status == 201
    reader = github.add_user("reader", scopes=["read:user"])
    refused = world.raw(reader)("POST", "/repos/org/tool/forks")
    assert refused.status == 403
    assert refused.headers["x-oauth-scopes"] == "read:user"
    assert refused.headers["x-accepted-oauth-scopes"] == "public_repo, repo"
    narrow = Raw(github.base, github.add_token(world.ada, repositories=["ada/tool"]))
    mine = narrow("POST", "/repos/ada/tool/git/refs", ref)
    assert mine.status == 201
    assert "x-oauth-scopes" not in mine.headers
    body: JsonValue = {"title": "t", "head": "ada:fix", "base": "main"}
    theirs = narrow("POST", PULLS, body)
    assert theirs.words() == "Resource not accessible by personal access token"
    assert theirs.headers["x-accepted-github-permissions"] == "pull_requests=write"
    hidden = github.add_repository("org/hidden", world.source, private=True)
    assert world.raw(world.ada)("GET", "/repos/org/hidden").status == 404
    hidden.members["ada"] = "read"
    assert world.raw(world.ada)("GET", "/repos/org/hidden").at("private") is True
    world.upstream.archived = True
    archived = world.raw(world.mia)("PATCH", f"{PULLS}/{pull.number}", {"title": "t"})
    assert (archived.status, "archived" in archived.words()) == (403, True)


def test_conditional_requests_cost_nothing(world: World, pull: Pull) -> None:
    path, ask = f"{PULLS}/{pull.number}", world.raw(world.ada)
    first = ask("GET", path)
    used = world.ada.used["core"]
    same = ask("GET", path, If_None_Match=first.headers["etag"])
    assert (same.status, same.body, world.ada.used["core"]) == (304, b"", used)
    pull.issue.title = "Another"
    changed = ask("GET", path, If_None_Match=first.headers["etag"])
    assert (changed.status, changed.at("title")) == (200, "Another")
    assert world.github.requests[-2].conditional
    world.github.state.rate_limits["core"] = world.ada.used["core"]
    limited = ask("GET", path)
    assert (limited.status, limited.headers["x-ratelimit-remaining"]) == (403, "0")


def test_pages_are_linked(world: World) -> None:
    for number in range(5):
        world.change(f"fix{number}")
        world.github.pull(world.upstream, world.fork, f"fix{number}")
    url: str | None = f"{world.github.base}{PULLS}?per_page=2&state=all&direction=asc"
    seen: list[JsonValue] = []
    while url is not None:
        reply = world.raw()("GET", url.removeprefix(world.github.base))
        rows = reply.json
        assert isinstance(rows, list)
        seen += [row["number"] for row in rows if isinstance(row, dict)]
        found = re.search(r'<([^>]*)>; rel="next"', reply.headers.get("link", ""))
        url = found.group(1) if found else None
    assert seen == [1, 2, 3, 4, 5]
    assert world.github.count("GET", PULLS) == 3


class Fault(Hook):
    """Slow for one path, and a reset or a cut for others."""

    def __init__(self) -> None:
        self.release = threading.Event()

    def before(self, request: Request) -> Answer | None:
        if request.path == "/user":
            self.release.wait(10)
        if request.path.endswith("/before"):
            raise HangUpError
        return None

    def after(self, request: Request, answer: Answer) -> Answer:
        if request.method == "POST":
            raise HangUpError
        if "commits" in request.path:
            answer.cut = 10
        return answer


def test_hooks_slow_down_cut_and_hang_up(world: World) -> None:
    fault = Fault()
    world.github.hooks.append(fault)
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(world.raw(world.ada), "GET", "/user")
        assert world.raw()("GET", "/repos/org/tool").status == 200, "another is not blocked"
        assert not slow.done()
        fault.release.set()
        assert slow.result().status == 200
    with pytest.raises(ConnectionResetError, match="reset by peer"):
        world.raw()("GET", "/repos/org/tool/branches/before")
    ref: JsonValue = {"ref": "refs/heads/new", "sha": world.tip()}
    with pytest.raises(ConnectionResetError, match="reset by peer"):
        world.raw(world.ada)("POST", "/repos/ada/tool/git/refs", ref)
    assert world.tip("new", world.fork) == world.tip(), "it acted, and then hung up"
    with pytest.raises(Exception, match="IncompleteRead"):
        world.raw()("GET", "/repos/org/tool/commits/main")
    assert [one.status for one in world.github.requests] == [200, 200, 0, 0, 200]


def test_what_is_not_modelled_raises(world: World) -> None:
    for method, path in (
        ("GET", "/repos/org/tool/traffic/views"),
        ("GET", f"{PULLS}?sort=popularity"),
        ("GET", "/repos/org/tool?what=this"),
    ):
        answer = world.raw()(method, path)
        assert answer.status == 500
        assert path.split("?")[0].rpartition("/")[2] in answer.words()
    assert len(world.github.server.broken) == 3
    world.github.server.broken.clear()


def test_a_connection_is_kept_alive_and_parallel_ones_work(world: World) -> None:
    host, port = world.github.base.removeprefix("http://").split(":")
    connection = HTTPConnection(host, int(port), timeout=30)
    try:
        for _ in range(3):
            connection.request("GET", "/repos/org/tool", headers={"User-Agent": "one"})
            assert connection.getresponse().read()
        assert len(world.github.server.connections) == 1
    finally:
        connection.close()
    ask = world.raw(world.ada)
    with ThreadPoolExecutor(8) as pool:
        blobs = list(
            pool.map(
                lambda number: ask("POST", "/repos/ada/tool/git/blobs", {"content": str(number)}),
                range(24),
            )
        )
    assert len({str(one.at("sha")) for one in blobs}) == 24
