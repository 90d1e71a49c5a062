"""`contribbot new`: a patch that loads, stands in the order, and says what it lacks."""

from __future__ import annotations

import tomllib

import pytest

from contribbot.errors import QueueError, UsageError
from contribbot.model.patch import PatchSpec
from contribbot.queue.load import load_queue
from contribbot.queue.new import Wish, create, settle
from contribbot.queue.transaction import transaction
from tests.conftest import Program
from tests.toy import FIXED, Toy, git, snapshot


def new(toy: Toy, name: str, *, pin: str | None = None, depends_on: tuple[str, ...] = ()) -> None:
    create(load_queue(toy.queue), Wish(name, "A title", pin, depends_on))


def test_it_makes_a_patch_that_loads(toy: Toy, program: Program) -> None:
    ran = program.ok("new", "area", "--title", 'Say "area" \\ twice')
    assert "contribbot edit area" in ran.out
    queue = load_queue(toy.queue)
    assert list(queue.specs) == ["area"]
    patch = queue.patch("area")
    assert patch.files == ()
    assert patch.support == ()
    assert patch.spec.title == 'Say "area" \\ twice'
    assert patch.spec.unproved
    assert patch.spec.unwritten == ("problem", "root_cause", "solution")
    # A folder for checks, which git keeps, goes with the patch, and comes back with the patch.
    made = [".gitkeep", "checks", "patch.toml"]
    assert sorted(path.name for path in patch.folder.rglob("*")) == made
    git(toy.queue, "init", "-q")
    program.ok("queue", "retire", "area", "--why", "done")
    assert not patch.folder.exists()
    program.ok("undo")
    assert sorted(path.name for path in patch.folder.rglob("*")) == made


def test_the_empty_folder_for_checks_stays_while_the_patch_does(toy: Toy, program: Program) -> None:
    new(toy, "area")
    program.ok("queue", "mv", "area", "plane")
    folder = toy.queue / "patches/plane"
    assert [path.name for path in (toy.queue / "patches").rglob("checks")] == ["checks"]
    assert (folder / "checks").is_dir()
    for name in ("0001-one.patch", "0001-other.patch"):
        with transaction(toy.queue) as change:
            for old in folder.glob("*.patch"):
                change.delete(f"patches/plane/{old.name}")
            change.write(f"patches/plane/{name}", b"")
    assert (folder / "checks").is_dir()


def test_list_show_and_verify_say_what_it_lacks(toy: Toy, program: Program) -> None:
    new(toy, "area")
    assert program("queue", "list").out == "1  area  no commits  A title\n"
    shown = program("show", "area").out
    assert "commits   none yet: `contribbot edit area`" in shown
    assert "nothing is stated that could prove it yet" in shown
    ran = program("verify", "area", "--json")
    assert ran.code == 1
    report = ran.report()
    assert report.verdict == "incomplete"
    assert {one.outcome for one in report.stages} == {"passed", "skipped"}
    assert ran.stages()["apply"].reason.startswith("no commits yet: `contribbot edit area`")


def test_a_patch_that_nothing_proves_is_not_proved(toy: Toy, program: Program) -> None:
    toy.put_patch(checks="", check_files={})
    toy.put_queue(["area"])
    ran = program("verify", "area", "--json")
    assert ran.code == 1
    assert ran.report().verdict == "incomplete"
    assert ran.stages()["apply"].outcome == "passed"
    assert ran.stages()["reproduce"].reason.startswith("nothing is stated that could prove it")


def test_the_example_in_it_is_right(toy: Toy) -> None:
    new(toy, "area")
    text = (toy.queue / "patches/area/patch.toml").read_text()
    head, marker, example = text.partition("# [[checks]]")
    rows = [row.removeprefix("# ") for row in (marker + example).splitlines()]
    spec = PatchSpec.model_validate(tomllib.loads(head + "\n".join(rows)))
    assert [check.name for check in spec.checks] == ["red"]


def test_a_stack(toy: Toy) -> None:
    path = toy.queue / "patches/queue.toml"
    path.write_text("# mine\n" + path.read_text())
    new(toy, "lower")
    new(toy, "last")
    new(toy, "an-upper", depends_on=("lower",))
    assert load_queue(toy.queue).below("an-upper") == ["lower"]
    assert [*load_queue(toy.queue).specs] == ["lower", "an-upper", "last"]
    assert path.read_text().startswith("# mine\n")


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("../x", "--title", "T"), "'../x': not possible here"),
        (("queue.toml", "--title", "T"), "there is a patch queue.toml already"),
        (("notes", "--title", "T"), "there is a patch notes already"),
        (("area", "--title", "a\nb"), "not possible here; a title is one line"),
        (("area", "--title", "a\x7fb"), "not possible here; a title is one line"),
        (("area", "--title", "a\x1bb"), "not possible here; a title is one line"),
        (("area", "--title", "T", "--pin", "v9"), "no pin v9 in "),
    ],
)  # fmt: skip
def test_what_cannot_be_begun(toy: Toy, program: Program, args: tuple[str, ...], said: str) -> None:
    toy.put("patches/notes/notes.txt", "mine")
    ran = program.refused("new", *args)
    assert (ran.out, ran.err.count("\n")) == ("", 1)
    assert said in ran.err


def test_which_of_several_pins(toy: Toy, program: Program) -> None:
    toy.put_queue([])
    toy.add_pin()
    with pytest.raises(UsageError, match=r"which pin does area stand on\? toy v1.0, toy v2.0"):
        new(toy, "area")
    assert "gone.patch: no such file" in program("new", "area", "gone.patch").err
    for pin in ("v2.0", "toy v2.0"):
        assert settle(load_queue(toy.queue), Wish("area", "T", pin=pin)).pin.tag == "v2.0"
    with pytest.raises(UsageError, match="which pin") as caught:
        new(toy, "area", pin="toy")
    assert caught.value.hint == "name one of them with --pin"
    create(load_queue(toy.queue), Wish("area", "T", pin="v2.0"))
    new(toy, "upper", depends_on=("area",))
    assert load_queue(toy.queue).specs["upper"].pin == "v2.0"


def test_an_invalid_queue_stays_as_it_is(toy: Toy) -> None:
    queue = load_queue(toy.queue)
    toy.put_queue(["gone"])
    before = snapshot(toy.queue)
    with pytest.raises(QueueError, match="order names gone"):
        create(queue, Wish("area", "T"))
    assert snapshot(toy.queue) == before


def started(toy: Toy, program: Program, *args: str) -> str:
    """Begin a patch from commits on a branch of a clone; return what is printed."""
    toy.write("src/toy/area.py", FIXED)
    git(toy.upstream, "checkout", "-qb", "mend")
    message = 'Multiply the sides\n\nAreas are "sums" \\ here.\n\nSigned-off-by: A <a@b.c>\n'
    git(toy.upstream, "commit", "-qaF", "-", stdin=message.encode())
    mail = git(toy.upstream, "format-patch", "-1", "--stdout")
    toy.put("mend.patch", mail)
    ran = program("new", "area", *args)
    assert (ran.code, ran.err) == (0, "")
    return ran.out


@pytest.mark.parametrize(
    "args",
    [
        ("../upstream", "mend~..mend"),
        ("../upstream", "main..mend"),
        ("../upstream", "mend"),
        ("mend.patch",),
    ],
)
def test_a_start_fills_in_what_its_message_says_and_begins_a_check(
    toy: Toy, program: Program, args: tuple[str, ...]
) -> None:
    said = started(toy, program, *args)
    assert "write the check patches/area/checks/test_red.py" in said
    patch = load_queue(toy.queue).patch("area")
    assert patch.spec.title == "Multiply the sides"
    assert patch.spec.problem.strip() == 'Areas are "sums" \\ here.'
    assert patch.spec.unwritten == ("root_cause", "solution")
    assert [(check.name, check.file) for check in patch.spec.checks] == [("red", "test_red.py")]
    (check,) = patch.support
    assert b'module = import_file("src/toy/area.py")' in check.content


def test_the_begun_check_runs_and_says_that_it_is_to_be_written(toy: Toy, program: Program) -> None:
    started(toy, program, "mend.patch", "--title", "Mine")
    ran = program("verify", "area", "--json")
    assert (ran.code, ran.report().verdict) == (3, "incomplete")
    assert "UnwrittenCheckError: write the check: call" in ran.stages()["reproduce red"].reason
    assert load_queue(toy.queue).specs["area"].title == "Mine"


SHORTEST = """\
title = "Multiply the sides"
upstream = "toy"
pin = "v1.0"
[[checks]]
file = "test_red.py"
reason = "^AssertionError: assert 5 == "
"""


def test_a_patch_toml_of_six_lines_proves_a_fix(area: Toy, program: Program) -> None:
    area.put("patches/area/patch.toml", SHORTEST)
    ran = program("verify", "area", "--json")
    assert (ran.code, ran.report().verdict) == (0, "proved")
    assert ran.stages()["reproduce red"].outcome == "passed"
    assert "files     src/toy/area.py\n" in program("show", "area").out
    assert load_queue(area.queue).specs["area"].unwritten == ("problem", "root_cause", "solution")
    # What is not stated is not written by a command that changes the patch.
    program.ok("edit", "area")
    (area.queue / ".contribbot/edit/area/README").write_text("more\n")
    program.ok("refresh", "area")
    assert (area.queue / "patches/area/patch.toml").read_text() == SHORTEST
    assert load_queue(area.queue).patch("area").paths == ("README", "src/toy/area.py")


def test_a_queue_inside_a_checkout_of_the_upstream(area: Toy, program: Program) -> None:
    inside = area.upstream / "fixes"
    area.queue.rename(inside)
    head = git(area.upstream, "rev-parse", "HEAD")
    program.ok("new", "more", "--title", "More", cwd=inside)
    program.ok("undo", cwd=inside)
    assert [*load_queue(inside).specs] == ["area"]
    program.ok("edit", "area", cwd=inside)
    assert git(area.upstream, "rev-parse", "HEAD") == head
    program.ok("verify", "area", cwd=inside)
    # The tree is open there alone: another clone knows nothing of it, and loses nothing.
    other = area.root / "other"
    git(area.upstream, "add", "fixes/patches", "fixes/upstreams")
    git(area.upstream, "commit", "-qm", "The queue")
    git(area.root, "clone", "-q", str(area.upstream), str(other))
    assert (
        "area is not open; open it with `contribbot edit area`"
        in Program(other / "fixes").refused("refresh", "area").err
    )
