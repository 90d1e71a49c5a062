"""`contribbot body NAME --comment`: what one says at somebody else's pull request."""

from __future__ import annotations

import pytest

from contribbot.contribute.comment import make_comment
from contribbot.contribute.model import Comment
from contribbot.git.touched import patch_id
from contribbot.queue.load import load_queue
from tests.conftest import Program
from tests.contribute.bodytoy import describe
from tests.contribute.gatetoy import edit
from tests.contribute.test_body import HOSTILE, TOML, assert_inert
from tests.contribute.tracked import tracked_queue
from tests.toy import Toy, one_check


def test_it_says_what_was_run_and_how_to_repeat_it(known: Toy, program: Program) -> None:
    # The pull request is somebody else's, and so are its reasons: they need not be told.
    edit(known, 'problem = "Areas are sums."', 'problem = "TODO: what goes wrong"', TOML)
    patch = load_queue(known.queue).patch("area")

    ran = program("body", "area", "--comment")

    assert ran.code == 0, ran.err
    assert "| red | CPU | 2 fail: `AssertionError: assert 5 == 6` | 2 pass |" in ran.out
    assert f"`git patch-id --stable` `{patch_id(patch.files[0].content)[:12]}`" in ran.out
    assert "**Not run** on gfx942." in ran.out
    assert "To repeat: `contribbot verify area`, with the check below." in ran.out
    assert "mulated" not in ran.out
    assert "TODO" not in ran.out
    (check,) = (file for file in patch.support if file.name == "test_red.py")
    assert f"```python\n{check.content.decode().rstrip()}\n```" in ran.out
    shown = Comment.model_validate_json(program("body", "area", "--comment", "--json").out,
                                        strict=False)  # fmt: skip
    assert shown.text == ran.out
    assert shown.words <= 60


@pytest.mark.parametrize("name", ["fp8-softmax-weights", "fp8-hw-convert", "hipify-path"])
def test_it_is_short_and_says_what_was_emulated(name: str) -> None:
    comment = make_comment(load_queue(tracked_queue()), name)
    assert comment.words <= 120
    emulated = "compiled and emulated: not run on a GPU" in comment.text
    assert ("no GPU ran it" in comment.text) is emulated
    assert "maintainers@contribbot" not in comment.text


def test_hostile_output_does_nothing(toy: Toy, program: Program) -> None:
    describe(toy)
    check = (
        "from toy.area import rectangle\n\n\n"
        f'def test_it():\n    assert rectangle(2, 3) == 6, "{HOSTILE}"\n' + "#\n" * 60
    )
    toy.put_patch(
        checks=one_check(reason="^AssertionError: </code>"), check_files={"test_red.py": check}
    )
    toy.put_queue(["area"])
    assert program("verify", "area").code == 0
    text = make_comment(load_queue(toy.queue), "area").text
    assert "onerror" in text
    # The check is too long to be shown.
    assert "To repeat: `contribbot verify area`.\n" in text
    assert_inert(f"# a\n\n# b\n\n{text}")


def test_what_cannot_be_said_is_one_line(known: Toy, program: Program) -> None:
    ran = program("body", "area", "--comment", "--template", "1")
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert "--comment has no --template" in ran.err
    (known.queue / "evidence/area").rename(known.queue / "gone")
    ran = program("body", "area", "--comment")
    assert (ran.code, ran.out, ran.err.count("\n")) == (1, "", 1)
    assert "contribbot verify area" in ran.err
