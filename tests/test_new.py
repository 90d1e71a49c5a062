"""`contribbot new`: a patch that loads, stands in the order, and says what it lacks."""

from __future__ import annotations

import tomllib

import pytest

from contribbot.errors import QueueError, UsageError
from contribbot.model.patch import PatchSpec
from contribbot.queue.load import load_queue
from contribbot.queue.new import Wish, create
from tests.lifetoy import contribbot, snapshot
from tests.toy import Toy


def new(toy: Toy, name: str, *, depends_on: tuple[str, ...] = (), after: str | None = None) -> None:
    create(load_queue(toy.queue), Wish(name, "A title", depends_on=depends_on, after=after))


def test_it_makes_a_patch_that_loads(toy: Toy) -> None:
    ran = contribbot(toy.queue, "new", "area", "--title", 'Say "area" \\ twice')
    assert ran.code == 0, ran.err
    assert "contribbot edit area" in ran.out
    queue = load_queue(toy.queue)
    assert queue.spec.order == ("area",)
    patch = queue.patch("area")
    assert patch.files == ()
    assert patch.support == ()
    assert patch.spec.title == 'Say "area" \\ twice'
    assert patch.spec.unproved
    assert patch.spec.unwritten == ("problem", "root_cause", "solution")
    assert (patch.folder / "checks").is_dir()


def test_list_show_and_verify_say_what_it_lacks(toy: Toy) -> None:
    new(toy, "area")
    assert "A title [no commits yet, nothing could prove it yet]" in contribbot(
        toy.queue, "list"
    ).out  # fmt: skip
    shown = contribbot(toy.queue, "show", "area").out
    assert "commits   none yet: `contribbot edit area`" in shown
    assert "nothing is stated that could prove it yet" in shown
    ran = contribbot(toy.queue, "verify", "area", "--json")
    assert ran.code == 1
    report = ran.report()
    assert report.verdict == "incomplete"
    assert {one.outcome for one in report.stages} == {"passed", "skipped"}
    assert ran.stages()["apply"].reason.startswith("no commits yet: `contribbot edit area`")


def test_a_patch_that_nothing_proves_is_not_proved(toy: Toy) -> None:
    toy.put_patch(checks="", check_files={})
    toy.put_queue(["area"])
    ran = contribbot(toy.queue, "verify", "area", "--json")
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
    new(toy, "upper", depends_on=("lower",), after="lower")
    assert load_queue(toy.queue).below("upper") == ["lower"]
    assert load_queue(toy.queue).spec.order == ("lower", "upper", "last")
    assert path.read_text().startswith("# mine\n")
    before = snapshot(toy.queue)
    with pytest.raises(UsageError, match="--after lower: before upper, on which top depends"):
        new(toy, "top", depends_on=("upper",), after="lower")
    assert snapshot(toy.queue) == before


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("Area", "--title", "T"), "'Area': not possible here; a patch's name has a-z"),
        (("../x", "--title", "T"), "'../x': not possible here"),
        (("queue.toml", "--title", "T"), "there is a patch queue.toml already"),
        (("there", "--title", "T"), "there is a patch there already"),
        (("notes", "--title", "T"), "there is a patch notes already"),
        (("area", "--title", " "), "' ': not possible here; a title is one line"),
        (("area", "--title", "a\nb"), "not possible here; a title is one line"),
        (("area", "--title", "a\x7fb"), "not possible here; a title is one line"),
        (("area", "--title", "a\x1bb"), "not possible here; a title is one line"),
        (("area", "--title", "T", "--pin", "v9"), "no pin v9 in "),
        (("area", "--title", "T", "--upstream", "tay"), "no pin tay in "),
        (("area", "--title", "T", "--depends-on", "ther"), "no such patch: ther (did"),
        (("area", "--title", "T", "--after", "gone"), "no such patch: gone"),
    ],
)  # fmt: skip
def test_what_cannot_be_begun(toy: Toy, args: tuple[str, ...], said: str) -> None:
    toy.put_patch("there")
    toy.put("patches/notes/notes.txt", "mine")
    toy.put_queue(["there"])
    before = snapshot(toy.queue)
    ran = contribbot(toy.queue, "new", *args)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err
    assert ran.err.count("\n") == 1
    assert snapshot(toy.queue) == before


def test_which_of_several_pins(toy: Toy) -> None:
    toy.put_queue([])
    path = toy.queue / "patches/queue.toml"
    path.write_text(
        path.read_text()
        + '\n[[pins]]\nupstream = "toy"\ntag = "v2.0"\n\n[[pins.sources]]\nkind = "git"\n'
    )
    with pytest.raises(UsageError, match=r"which pin does area stand on\? toy v1.0, toy v2.0"):
        new(toy, "area")
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
