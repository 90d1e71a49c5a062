from __future__ import annotations

from contribbot.cli.show_contribute import RequestView, request_lines


def test_a_rehearsal_that_would_send_nothing_says_so() -> None:
    assert request_lines([]) == ["nothing was sent, and nothing would be"]


def test_a_rehearsal_lists_what_it_would_send() -> None:
    one = RequestView(method="POST", path="/repos/a/b/git/refs", what="make the branch c\x1b[31m")
    first, second = request_lines([one])
    assert first == "nothing was sent; these requests would be:"
    assert second.startswith("  POST  /repos/a/b/git/refs  make the branch c")
    assert "\x1b" not in second
