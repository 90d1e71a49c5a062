"""`verify --leave-one-out`: what each member of a stack contributes to its top."""

from __future__ import annotations

import pytest

from contribbot.model.lifecycle import Share, StackReport
from tests.conftest import Program, Ran, dig
from tests.toy import AREA, CHECKS, PASS_TO_PASS, Toy, git

pytestmark = pytest.mark.usefixtures("outcome_cache")
#: The first adds what the top uses, the second changes a comment.
HELPER = "def product(one, other):\n    return one * other\n"
COMMENTED = AREA.replace('"""Areas."""', '"""Areas of shapes."""')
TOP = COMMENTED.replace(
    "return width + height", "from toy.helper import product\n\n    return product(width, height)"
)
SQUARE = """\
from toy.area import rectangle


def test_rectangle():
    assert rectangle(2, 3) == 6
"""


def files_of(toy: Toy, before: dict[str, str], after: dict[str, str]) -> bytes:
    """Return a change as a patch, made on top of other changes."""
    for path, content in before.items():
        toy.write(path, content)
    git(toy.upstream, "add", "-A")
    git(toy.upstream, "commit", "-q", "--allow-empty", "-m", "Below")
    for path, text in after.items():
        toy.write(path, text)
    git(toy.upstream, "add", "-A")
    git(toy.upstream, "commit", "-q", "-m", "Change")
    made = git(toy.upstream, "format-patch", "-1", "--stdout", "--zero-commit", "--no-signature")
    git(toy.upstream, "reset", "-q", "--hard", toy.commit)
    return made


def put_stack(toy: Toy, *, top: str = TOP, order: str = "helper, comment") -> None:
    """Put `helper` and `comment` into the queue, and `area` on top of both."""
    own = (
        '[[checks]]\nname = "own"\nfile = "test_own.py"\nexpect = "fail-to-pass"\nreason = "own"\n'
    )
    helper = {"src/toy/helper.py": HELPER}
    comment = {"src/toy/area.py": COMMENTED}
    for name, changes in (("helper", helper), ("comment", comment)):
        toy.put_patch(
            name,
            patch=files_of(toy, {}, changes),
            files=tuple(changes),
            checks=own,
            check_files={"test_own.py": "def test_own(): raise AssertionError('own')\n"},
        )
    toy.put_patch(
        patch=files_of(toy, {**helper, **comment}, {"src/toy/area.py": top}),
        extra='depends_on = ["' + order.replace(", ", '", "') + '"]',
        checks=CHECKS,
        check_files={"test_red.py": SQUARE, "test_same.py": PASS_TO_PASS},
    )
    toy.put_queue(["helper", "comment", "area"])


def shares(ran: Ran) -> dict[str, Share]:
    """Return what was told, by member."""
    return {one.without: one for one in StackReport.model_validate_json(ran.out).shares}


def test_what_fails_without_a_member_is_what_it_is_for(toy: Toy, program: Program) -> None:
    put_stack(toy)

    ran = program("verify", "--leave-one-out", "--json")

    assert ran.code == 0, ran.err
    told = shares(ran)
    assert list(told) == ["helper", "comment"]
    assert {loss.what for loss in told["helper"].losses} == {"reproduce red cpu", "witness cpu"}
    assert "No module named 'toy.helper'" in told["helper"].losses[0].reason
    # Style and the other check.
    assert (told["helper"].applies, told["helper"].kept) == (True, 2)
    # The docstring is context of nothing that the top changes.
    assert (told["comment"].applies, told["comment"].losses) == (True, ())
    assert not (toy.queue / "evidence").exists()
    # The same in words.
    rows = program("verify", "area", "--leave-one-out").out.splitlines()
    assert rows[0] == "area  without helper   2 no longer pass, 2 still do"
    broken = "the patched tree imports what is not installed here: "
    assert rows[1].startswith(f"  reproduce red cpu: {broken}")
    assert rows[2].startswith("  witness cpu: 0 of 1 added statements ran")
    assert rows[3] == (
        "area  without comment  all 4 still pass: it contributes nothing that was seen"
    )


@pytest.mark.slow
def test_a_member_without_which_the_rest_does_not_apply(toy: Toy, program: Program) -> None:
    # The top goes on where the comment's patch left off.
    put_stack(toy, top=TOP.replace("Areas of shapes", "Areas of all shapes"))

    ran = program("verify", "area", "--leave-one-out", "--json")

    told = shares(ran)["comment"]
    assert ran.code == 0, ran.err
    assert (told.applies, told.kept) == (False, 0)
    assert [loss.what for loss in told.losses] == ["apply"]
    assert "src/toy/area.py" in told.losses[0].reason


def test_what_stood_on_a_member_stands_on_what_is_below_it(toy: Toy, program: Program) -> None:
    put_stack(toy, order="comment")
    path = toy.queue / "patches/comment/patch.toml"
    path.write_text(path.read_text().replace("files =", 'depends_on = ["helper"]\nfiles =', 1))

    ran = program("verify", "area", "--leave-one-out", "--json")

    told = shares(ran)
    assert {member: one.applies for member, one in told.items()} == {
        "helper": True, "comment": True,
    }  # fmt: skip
    # Without the comment the helper is still there, so nothing fails.
    assert (bool(told["helper"].losses), bool(told["comment"].losses)) == (True, False)


def test_a_stack_that_is_refuted_tells_nothing_of_its_members(toy: Toy, program: Program) -> None:
    put_stack(toy, top=TOP.replace("product(width, height)", "width"))

    ran = program("verify", "area", "--leave-one-out", "--json")

    assert ran.code == 1
    assert dig(ran.json(), "shares") == []
    said = str(dig(ran.json(), "untold", "area"))
    assert said.startswith("the whole stack is refuted by reproduce red cpu: ")


def test_a_pin_that_cannot_be_had_is_this_machines_fault(toy: Toy, program: Program) -> None:
    put_stack(toy)
    toy.upstream.rename(toy.root / "away")

    ran = program("verify", "area", "--leave-one-out", "--json")

    assert (ran.code, dig(ran.json(), "shares")) == (3, [])
    assert str(dig(ran.json(), "untold", "area")).startswith("source: ")


@pytest.mark.parametrize("names", [(), ("helper",)], ids=["all", "one"])
def test_a_queue_without_stacks_is_wrong_usage(
    toy: Toy, program: Program, names: tuple[str, ...]
) -> None:
    put_stack(toy)
    path = toy.queue / "patches/area/patch.toml"
    path.write_text(
        path.read_text().replace("depends_on", "related").replace('"helper", "comment"', "")
    )

    ran = program("verify", *names, "--leave-one-out")

    assert (ran.code, ran.out) == (2, "")
    assert "no patch with depends_on" in ran.err
