from __future__ import annotations

import pytest

from contribbot.errors import GitHubError
from contribbot.github.pull_state import Landing, judge_landing, read_pull_state
from tests.contribute.following import AREA, Post, make_post
from tests.github.faults import NOT_FOUND
from tests.github.handle import GitHub
from tests.github.state import How
from tests.toy import AREA as BROKEN
from tests.toy import FIXED, Toy


@pytest.fixture
def post(post: Post) -> Post:
    post.open()
    return post


PAGE = "https://github.com/example/toy/pull/1"


def judged(post: Post) -> Landing:
    with post.connect() as github:
        pull = read_pull_state(github, "example/toy", post.pull.number)
        return judge_landing(github, "example/toy", pull)


def name_it(post: Post, message: str, content: str = BROKEN, branch: str = "main") -> str:
    """Push a commit to the upstream that names the pull request, and return it."""
    sha = post.github.commit(post.upstream, branch, {AREA: content.encode()}, message)
    post.event("referenced", commit=sha)
    return sha


RESOLVED = f"Pull Request resolved: {PAGE}"


@pytest.mark.parametrize("how", ["merge", "bot"])
def test_a_merge_that_not_all_of_github_knows_yet_is_not_told_as_closed(
    post: Post, how: How
) -> None:
    sha = post.github.merge(post.pull, how)
    post.faults.arm(NOT_FOUND, path="/compare/", times=0)
    with pytest.raises(GitHubError, match=f"whether main has {sha[:12]} is not known"):
        judged(post)
    assert post.followed().error
    assert post.states() == ["open"]
    post.faults.clear()
    assert judged(post).commit == sha


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("message", ["A fix (#1)", f"A fix\n\nPull Request resolved: {PAGE}"])
def test_a_commit_that_a_person_lands_by_hand_names_the_pull_request(
    post: Post, message: str, *, late: bool
) -> None:
    if not late:
        post.event("closed")
        assert judged(post).fate == "closed"
    sha = name_it(post, f"{message}\n", FIXED)
    if late:
        # A pull request may be closed days after its landing.
        post.event("closed")
    assert judged(post) == Landing("landed", sha)
    assert post.followed().state == "landed"


def test_a_commit_that_only_a_fork_has_lands_nothing(post: Post) -> None:
    stranger = post.github.add_user("mallory")
    fork = post.github.fork(post.upstream, stranger)
    sha = post.github.commit(fork, "land", {AREA: FIXED.encode()}, f"A fix (#1)\n\n{RESOLVED}\n")
    with post.connect() as github:
        # The upstream shows a fork's commit, because forks share their objects.
        upstream = github.repository("example/toy")
        assert upstream.get_git_commit(sha).sha == sha
        assert upstream.compare("main", sha).status == "ahead"
    post.event("referenced", commit=sha)
    post.event("closed", commit=sha)
    assert judged(post) == Landing("closed")


def test_what_was_merged_into_another_branch_is_not_merged(toy: Toy, github: GitHub) -> None:
    post = make_post(toy, github)
    github.commit(post.upstream, "release/2.9", {"README": b"2.9\n"}, "Release\n")
    sha = github.merge(post.open(base="release/2.9"))
    found = judged(post)
    assert found == Landing("merged", sha, elsewhere="release/2.9")
    assert not found.upstream
    assert found.words == f"merged into release/2.9 as {sha[:12]}"
    seen = post.followed()
    assert (seen.state, seen.into) == ("merged", "release/2.9")
    assert "release/2.9 has it: open one against the default branch" in seen.next[0].what
    # After main has the commit, the pull request is merged.
    github.commit(post.upstream, "main", {"README": b"3.0\n"}, "Next\n")
    post.upstream.git.set_ref("refs/heads/main", sha)
    assert judged(post) == Landing("merged", sha)


@pytest.mark.parametrize(
    ("message", "branch"),
    [
        (RESOLVED, "viable/strict"),
        ("Pull Request resolved: https://github.com/example/toy/pull/11", "main"),
        ("Pull Request resolved: https://github.com/example/toys/pull/1", "main"),
        ("Pull Request resolved: https://github.com/other/toy/pull/1", "main"),
        ("Pull Request resolved: example/toy#1", "main"),
        ("See https://github.com/example/toy/pull/1", "main"),
        (f"{RESOLVED}\nPull Request resolved: https://github.com/example/toy/pull/9", "main"),
    ],
)
def test_a_commit_that_resolves_something_else_or_is_elsewhere_lands_nothing(
    post: Post, message: str, branch: str
) -> None:
    name_it(post, f"Other\n\n{message}\n", FIXED, branch)
    post.event("closed")
    assert judged(post).fate == "closed"


GITS = "Revert\n\nThis reverts commit {}.\n"
BOTS = f'Revert "A fix (#1)"\n\nThis reverts commit {{}}.\n\n{RESOLVED}\n'
BUTTONS = 'Revert "A fix" (#2)\n\nReverts example/toy#1\n'


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("merge", GITS),
        ("bot", GITS),
        ("squash", BOTS),
        ("bot", BOTS),
        ("squash", BUTTONS),
    ],
)
def test_a_landing_of_each_kind_and_its_revert_are_told(post: Post, how: How, message: str) -> None:
    sha = post.github.merge(post.pull, how)
    assert judged(post) == Landing("landed" if how == "bot" else "merged", sha)
    back = name_it(post, message.format(sha))
    landing = judged(post)
    assert landing == Landing("reverted", sha, back)
    assert landing.words == f"merged as {sha[:12]}, then reverted by {back[:12]}"


def test_a_revert_that_is_on_no_branch_or_of_something_else_is_none(post: Post) -> None:
    sha = post.github.merge(post.pull, "squash")
    name_it(post, f"This reverts commit {sha}.\n", branch="try-a-revert")
    name_it(post, f"This reverts commit {'0' * 40}.\n", FIXED + "# more\n")
    assert judged(post) == Landing("merged", sha)


def test_what_lands_again_after_a_revert_has_landed(post: Post) -> None:
    sha = post.github.merge(post.pull, "bot")
    name_it(post, f"Revert\n\nThis reverts commit {sha}.\n")
    again = name_it(post, f"A fix, again (#1)\n\n{RESOLVED}\nApproved by: someone\n", FIXED)
    assert judged(post) == Landing("landed", again)


def test_a_reverted_revert_is_landed_again(post: Post) -> None:
    sha = post.github.merge(post.pull, "squash")
    message = "Revert\n\nReverts example/toy#1\n"
    post.github.commit(post.fork, "revert", {AREA: BROKEN.encode()}, message)
    post.opened["revert"] = post.github.pull(post.upstream, post.fork, "revert", title="Revert")
    back = post.github.merge(post.opened["revert"], "squash")
    post.event("referenced", commit=back)
    assert judged(post) == Landing("reverted", sha, back)
    # GitHub's button names the pull request of the revert alone.
    message = "Revert the revert (#3)\n\nReverts example/toy#2\n"
    again = post.github.commit(post.upstream, "main", {AREA: FIXED.encode()}, message)
    post.event("referenced", commit=again, patch="revert")
    assert judged(post) == Landing("landed", again)


def test_what_was_pushed_before_the_landing_is_not_asked_about(post: Post) -> None:
    # ghstack pushes commits that name the pull request to branches of the upstream.
    for number in range(40):
        name_it(post, f"Try {number}\n\n{RESOLVED}\n", f"x = {number}\n", branch="gh/ada/1/orig")
    sha = post.github.merge(post.pull, "bot")
    before = len(post.github.requests)
    assert judged(post) == Landing("landed", sha)
    # A query of the pull request, and a comparison with the commit that landed.
    assert len(post.github.requests) - before == 2


def test_follow_tells_of_a_revert(post: Post) -> None:
    sha = post.github.merge(post.pull, "bot")
    assert post.followed().state == "landed"
    back = name_it(post, f"Revert\n\nThis reverts commit {sha}.\n")
    found = post.followed()
    assert (found.state, found.commit, found.reverted) == ("reverted", sha, back)
    assert found.change == "merged"
    assert "reverted by" in found.why
    # PyTorch reopens a reverted pull request.
    post.event("reopened")
    found = post.followed()
    assert (found.state, found.change) == ("open", "reverted")
    assert "then reverted by" in found.why
    assert post.states() == ["open", "merged", "reverted", "open"]
