from __future__ import annotations

from urllib.parse import urlencode

import pytest

from contribbot.contribute.publication import state
from contribbot.contribute.reviews import reply, short_id
from contribbot.errors import GitHubError, MovedError
from tests.contribute.following import AREA, LINE, make_post
from tests.github.faults import FORBIDDEN, UNAUTHORIZED, Fault, Faults, primary_limit
from tests.github.handle import GitHub
from tests.github.state_social import add_review_comment
from tests.github.wire import Answer, Request
from tests.toy import Toy


def _moved(_faults: Faults, request: Request) -> Answer | None:
    """Answer as GitHub does for the old name of a repository."""
    target = request.path.replace("/repos/example/toy", "/repos/example/game")
    query = f"?{urlencode(request.query)}" if request.query else ""
    return Answer(301, {"message": "Moved"}, {"Location": f"{request.base}{target}{query}"})


def test_an_answer_reaches_an_upstream_that_was_renamed(toy: Toy, github: GitHub) -> None:
    post = make_post(toy, github)
    pull = post.open()
    root = add_review_comment(github.state, pull, post.reviewer, "Why?", path=AREA, line=LINE)
    with github.state.lock:
        post.upstream.name = "game"
        github.state.repositories["example/game"] = github.state.repositories.pop("example/toy")
    post.faults.arm(Fault("moved", before=_moved), path="^/repos/example/toy", times=0)
    with post.connect() as client:
        done = reply(post.queue, client, "area", short_id(root.id), "It multiplies.")
    assert done.posted
    assert [one.body for one in pull.review_comments if one.user is post.me] == ["It multiplies."]
    known = state(post.events())
    assert known is not None
    assert known.open == ()


@pytest.mark.parametrize("fault", [FORBIDDEN, UNAUTHORIZED, primary_limit(7200)], ids=str)
def test_a_refusal_that_is_no_new_name_stays_what_it_was(
    toy: Toy, github: GitHub, fault: Fault
) -> None:
    post = make_post(toy, github)
    pull = post.open()
    root = add_review_comment(github.state, pull, post.reviewer, "Why?", path=AREA, line=LINE)
    post.faults.arm(fault, method="POST", path="/replies$")
    with post.connect() as client, pytest.raises(GitHubError) as caught:
        reply(post.queue, client, "area", short_id(root.id), "It multiplies.")
    assert not isinstance(caught.value, MovedError)
    assert len(post.faults.struck) == 1
    # After a limit, or with a token that is not taken, every further question makes it worse.
    last = github.requests[-1]
    assert (last.method, last.path.endswith("/replies")) == ("POST", True)
