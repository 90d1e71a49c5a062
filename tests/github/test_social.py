"""Talk, reviews, checks, statuses and search, over HTTP and by a client that is not ours."""

from __future__ import annotations

from typing import TypeVar

import pytest
from githubkit_schemas.v2022_11_28.models import (
    IssueComment,
    PullRequestReview,
    PullRequestReviewComment,
    Status,
    TimelineCommentEvent,
)
from githubkit_schemas.v2022_11_28.rest import RestNamespace
from pydantic import JsonValue

from tests.conftest import dig
from tests.github import state_social
from tests.github.handle import GitHub
from tests.github.scene import Scene, make_scene


@pytest.fixture
def scene(github: GitHub) -> Scene:
    return make_scene(github)


Thing = TypeVar("Thing")


def each(found: JsonValue, *keys: str) -> list[JsonValue]:
    """Return the same value of each object in a list."""
    assert isinstance(found, list)
    return [dig(one, *keys) for one in found]


def all_are(kind: type[Thing], found: object) -> list[Thing]:
    """Return a list of the other client's, whose methods named `list` hide the type from mypy."""
    assert isinstance(found, list)
    return [one for one in found if isinstance(one, kind)]


def test_a_conversation_and_what_is_new_in_it(scene: Scene) -> None:
    first = scene.json("POST", f"{scene.issue}/comments", {"body": "First"})
    second = scene.json("POST", f"{scene.issue}/comments", {"body": "2"}, who=scene.reviewer)
    since = dig(second, "updated_at")
    assert isinstance(since, str)
    new = scene.json("GET", f"{scene.issue}/comments", since=since)
    assert each(new, "body") == ["2"]
    assert dig(first, "author_association") == "NONE"
    assert dig(second, "author_association") == "MEMBER"
    path = f"{scene.api}/issues/comments/{dig(first, 'id')}"
    assert (
        scene.ask("PATCH", path, {"body": "no"}, who=scene.github.add_user("x")).status_code == 403
    )
    assert dig(scene.json("PATCH", path, {"body": "1"}), "body") == "1"
    assert dig(scene.json("GET", path), "body") == "1"
    assert dig(scene.json("GET", scene.issue), "comments") == 2


def test_the_conversation_by_githubkit(scene: Scene) -> None:
    kit = scene.kit()
    issues = RestNamespace(kit).issues
    number = scene.pull.number
    made = issues.create_comment("upstream", "project", number, body="Hello").parsed_data
    found = issues.list_comments("upstream", "project", number).parsed_data
    assert [one.id for one in all_are(IssueComment, found)] == [made.id]
    issue = issues.get("upstream", "project", number).parsed_data
    assert issue.comments == 1
    assert issue.pull_request
    events = issues.list_events_for_timeline("upstream", "project", number).parsed_data
    assert [one.body for one in all_are(TimelineCommentEvent, events)] == ["Hello"]


def test_nothing_and_too_much_cannot_be_said(scene: Scene) -> None:
    path = f"{scene.issue}/comments"
    assert scene.ask("POST", path, {"body": " \n"}).status_code == 422
    long = scene.ask("POST", path, {"body": "x" * 65537})
    assert long.status_code == 422
    assert "too long" in long.text
    assert scene.ask("POST", path, {"body": "x" * 65536}).status_code == 201


def test_issues_are_opened_changed_closed_and_listed(scene: Scene) -> None:
    made = scene.json("POST", f"{scene.api}/issues", {"title": "Wrong", "labels": ["bug"]})
    path = f"{scene.api}/issues/{dig(made, 'number')}"
    assert dig(made, "labels") == [], "who may not triage sets no labels"
    labels = scene.json("POST", f"{path}/labels", {"labels": ["rocm"]}, who=scene.reviewer)
    assert dig(labels, 0, "name") == "rocm"
    assert scene.ask("POST", f"{path}/labels", {"labels": ["x"]}).status_code == 404
    scene.json("PATCH", path, {"state": "closed", "state_reason": "not_planned"})
    issue = scene.json("GET", path)
    assert dig(issue, "state_reason") == "not_planned"
    assert dig(issue, "closed_by", "login") == "author"
    events = scene.json("GET", f"{path}/events")
    assert each(events, "event") == ["labeled", "closed"]
    assert dig(scene.json("PATCH", path, {"state": "open"}), "state") == "open"
    assert dig(scene.json("GET", f"{scene.api}/labels"), 0, "name") == "rocm"
    listed = scene.json("GET", f"{scene.api}/issues", labels="rocm")
    assert each(listed, "title") == ["Wrong"]


def test_a_landing_by_a_bot_is_seen_in_the_events(scene: Scene) -> None:
    sha = scene.github.merge(scene.pull, "bot")
    events = scene.json("GET", f"{scene.issue}/events")
    assert each(events, "event") == ["referenced", "closed"]
    assert each(events, "commit_id") == [sha, sha]
    assert dig(scene.json("GET", scene.issue), "state") == "closed"
    assert dig(scene.json("GET", scene.issue), "pull_request", "merged_at") is None


def test_reviews_with_comments_on_lines(scene: Scene) -> None:
    made = scene.json(
        "POST",
        f"{scene.here}/reviews",
        {
            "event": "REQUEST_CHANGES",
            "body": "Please",
            "comments": [{"path": "file.txt", "line": 10, "body": "Why ten?"}],
        },
        who=scene.reviewer,
    )
    assert dig(made, "state") == "CHANGES_REQUESTED"
    assert dig(scene.json("GET", f"{scene.here}/reviews"), 0, "body") == "Please"
    comment = scene.json("GET", f"{scene.here}/comments")
    assert dig(comment, 0, "pull_request_review_id") == dig(made, "id")
    assert dig(comment, 0, "line") == 10
    hunk = dig(comment, 0, "diff_hunk")
    assert isinstance(hunk, str)
    assert hunk.startswith("@@ -7,7 +7,7 @@")
    assert hunk.endswith("\n-line 10\n+ten"), "down to the line and no further"


def test_nobody_approves_their_own(scene: Scene) -> None:
    answer = scene.ask("POST", f"{scene.here}/reviews", {"event": "APPROVE"})
    assert answer.status_code == 422
    assert "Can not approve your own pull request" in answer.text
    blank = scene.ask("POST", f"{scene.here}/reviews", {"event": "COMMENT"}, who=scene.reviewer)
    assert blank.status_code == 422


def test_threads_by_githubkit(scene: Scene) -> None:
    state_social.add_review_comment(
        scene.github.state, scene.pull, scene.reviewer, "Why?", path="file.txt", line=30
    )
    kit = scene.kit()
    pulls = RestNamespace(kit).pulls
    number = scene.pull.number
    listed = pulls.list_review_comments("upstream", "project", number).parsed_data
    (root,) = all_are(PullRequestReviewComment, listed)
    answer = pulls.create_reply_for_review_comment(
        "upstream", "project", number, root.id, body="Because"
    ).parsed_data
    assert answer.in_reply_to_id == root.id
    assert [answer.path, answer.line] == ["file.txt", 30]
    again = pulls.create_review_comment(
        "upstream", "project", number, body="And", commit_id=scene.pull.head_sha,
        path="file.txt", in_reply_to=root.id,
    ).parsed_data  # fmt: skip
    assert again.in_reply_to_id == root.id
    reviews = pulls.list_reviews("upstream", "project", number).parsed_data
    assert [one.state for one in all_are(PullRequestReview, reviews)] == ["COMMENTED"] * 3


def test_an_answer_to_an_answer_is_refused(scene: Scene) -> None:
    body: dict[str, JsonValue] = {
        "body": "x", "commit_id": scene.pull.head_sha, "path": "file.txt", "line": 10,
    }  # fmt: skip
    root = scene.json("POST", f"{scene.here}/comments", {**body})
    path = f"{scene.here}/comments"
    reply = scene.json("POST", f"{path}/{dig(root, 'id')}/replies", {"body": "y"})
    wrong = scene.ask("POST", f"{path}/{dig(reply, 'id')}/replies", {"body": "z"})
    assert wrong.status_code == 404
    again = scene.ask("POST", path, {**body, "in_reply_to": dig(reply, "id")})
    assert again.status_code == 422


@pytest.mark.parametrize(("line", "side"), [(20, "RIGHT"), (999, "RIGHT"), (20, "LEFT")], ids=str)
def test_only_lines_of_the_diff_are_commented_on(scene: Scene, line: int, side: str) -> None:
    answer = scene.ask(
        "POST",
        f"{scene.here}/comments",
        {"body": "x", "commit_id": scene.pull.head_sha, "path": "file.txt", "line": line,
         "side": side},
    )  # fmt: skip
    assert answer.status_code == 422
    assert "must be part of the diff" in answer.text


def test_comments_follow_their_lines_and_become_outdated(scene: Scene) -> None:
    def say(line: int, side: str = "RIGHT") -> None:
        body = {"body": f"{line}", "commit_id": scene.pull.head_sha, "path": "file.txt"}
        scene.json("POST", f"{scene.here}/comments", {**body, "line": line, "side": side})

    before = scene.pull.head_sha
    say(10)
    say(30)
    say(30, "LEFT")
    after = scene.push({10: "TEN\n", 12: "twelve\nand a half\n", 30: "thirty\n"})
    found = scene.json("GET", f"{scene.here}/comments")
    assert [dig(found, at, "line") for at in range(3)] == [None, 31, 30]
    assert [dig(found, at, "original_line") for at in range(3)] == [10, 30, 30]
    assert [dig(found, at, "commit_id") for at in range(3)] == [before, after, after]
    assert dig(found, 0, "position") is None
    assert dig(found, 0, "original_position") == 5
    assert dig(found, 1, "original_commit_id") == before


def test_checks_and_statuses(scene: Scene) -> None:
    state, head = scene.github.state, scene.pull.head_sha
    state_social.add_check_run(state, scene.upstream, head, "build", "failure")
    state_social.add_check_run(state, scene.upstream, head, "build", "success")
    state_social.add_check_run(state, scene.upstream, head, "rocm / test", None)
    kit = scene.kit()
    rest = RestNamespace(kit)
    found = rest.checks.list_for_ref("upstream", "project", head).parsed_data
    assert found.total_count == 2, "the newest of each name"
    assert {one.name: one.conclusion for one in found.check_runs} == {
        "build": "success",
        "rocm / test": None,
    }
    every = rest.checks.list_for_ref("upstream", "project", head, filter_="all").parsed_data
    assert every.total_count == 3


def test_statuses_come_to_one(scene: Scene) -> None:
    head = scene.pull.head_sha
    kit = scene.kit(scene.reviewer)  # must live as long as what it gives
    repos = RestNamespace(kit).repos

    def combined() -> str:
        return repos.get_combined_status_for_ref("upstream", "project", head).parsed_data.state

    assert combined() == "pending"
    for state, context in (("failure", "lint"), ("success", "docs")):
        path = f"{scene.api}/statuses/{head}"
        scene.json("POST", path, {"state": state, "context": context}, who=scene.reviewer)
    assert combined() == "failure"
    scene.json(
        "POST", f"{scene.api}/statuses/{head}", {"state": "success", "context": "lint"},
        who=scene.reviewer,
    )  # fmt: skip
    assert combined() == "success"
    every = repos.list_commit_statuses_for_ref("upstream", "project", head).parsed_data
    assert [one.context for one in all_are(Status, every)] == ["lint", "docs", "lint"]
    assert scene.ask("POST", f"{scene.api}/statuses/{head}", {"state": "error"}).status_code == 404


def test_search(scene: Scene) -> None:
    state, who = scene.github.state, scene.reviewer
    state_social.add_issue(state, scene.upstream, who, "fused_moe is slow", "on gfx942: #77")
    scene.github.commit(scene.fork, "other", {"other.txt": b"changed\n"}, "Other\n")
    other = scene.github.pull(scene.upstream, scene.fork, "other", title="Other", body="a b")
    scene.github.merge(other, "squash")

    def search(query: str) -> list[JsonValue]:
        return each(dig(scene.json("GET", "/search/issues", q=query), "items"), "number")

    repo = "repo:upstream/project"
    assert search(f"{repo} fused_moe") == [2, 1]
    assert search(f"{repo} is:pr fused_moe") == [1]
    assert search(f"{repo} is:issue 77") == [2]
    assert search(f'{repo} is:pr is:open "scale in fused_moe"') == [1]
    assert search(f'{repo} "in scale"') == []
    assert search(f"{repo} is:pr is:merged") == [3]
    assert search(f"{repo} is:pr merged:>=2026-01-01") == [3]
    assert search(f"{repo} is:pr merged:>=2026-01-02") == []
    assert search(f"{repo} author:reviewer") == [2]
    assert search(f"{repo} author:@me is:open") == [1]
    assert search(f"{repo} in:title 7") == []
    assert search(f"{repo} in:title,body 7") == [1]
    answer = scene.ask("GET", "/search/issues", query={"q": repo, "per_page": "2"})
    assert answer.headers["x-ratelimit-resource"] == "search"
    assert answer.json()["total_count"] == 3
    assert 'rel="next"' in answer.headers["Link"]


def test_search_refuses_as_github_does(scene: Scene) -> None:
    for query in ("", "x" * 257, "repo:nobody/nothing x"):
        assert scene.ask("GET", "/search/issues", query={"q": query}).status_code == 422


def test_search_by_githubkit(scene: Scene) -> None:
    kit = scene.kit()
    found = (
        RestNamespace(kit)
        .search.issues_and_pull_requests(q="repo:upstream/project is:pr fused_moe")
        .parsed_data
    )
    assert [one.number for one in found.items] == [1]


def test_what_search_does_not_model_raises(scene: Scene) -> None:
    assert scene.ask("GET", "/search/issues", query={"q": "involves:author"}).status_code == 500
    assert "involves" in scene.github.server.broken.pop()
