"""`contribbot rebase`."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from contribbot.queue.history import versions
from contribbot.queue.load import load_queue
from tests.conftest import Program, dig
from tests.hostile import person
from tests.life.conftest import WRONG
from tests.life.test_status import top
from tests.lifetoy import resolve
from tests.releases import release
from tests.test_refresh import AREA_FILE, series
from tests.toy import AREA, FAIL_TO_PASS, FIXED, Toy, git, one_check, snapshot


def decision(program: Program, *args: str) -> tuple[int, str]:
    ran = program("rebase", *args, "--json")
    return ran.code, str(dig(ran.json(), "patches", 0, "decision"))


def resolving(program: Program) -> Path:
    """Begin the move to v1.3, and return the tree that holds the conflict."""
    ran = program.refused("rebase", "v1.3", "--text-only", "--resolve", "--json", code=1)
    return Path(str(dig(ran.json(), "resolve")))


def test_a_pin_moves_with_its_patch(releases: Toy, program: Program) -> None:
    before = (releases.queue / "patches/area/0001-change.patch").read_bytes()
    ran = program.ok("rebase", "v1.2")
    assert ran.out.splitlines()[-1] == "moved to v1.2; prove it: contribbot verify --all"
    queue = (releases.queue / "patches/queue.toml").read_text()
    assert 'tag = "v1.2"' in queue
    assert "v1.0" not in queue
    patch = releases.queue / "patches/area"
    assert 'pin = "v1.2"' in (patch / "patch.toml").read_text()
    (file,) = patch.glob("*.patch")
    assert b"(width, height=1)" in file.read_bytes()
    assert file.read_bytes() != before
    report = program("verify", "area", "--json")
    assert report.report().verdict == "proved", report.out
    assert "rebase from v1.0 to v1.2" in program("queue", "log", "area").out
    assert versions(releases.queue, "area")[0].files()[0].content == before
    program.ok("queue", "diff", "area", "v1..v2")
    program.ok("rebase", "v1.0", "--pin", "toy v1.2")
    (file,) = patch.glob("*.patch")
    assert file.read_bytes().partition(b"\n@@")[2] == before.partition(b"\n@@")[2]


@pytest.mark.usefixtures("releases")
@pytest.mark.parametrize(
    ("args", "code", "what"),
    [(["v1.1"], 0, "move"), (["v1.3"], 1, "needs work"), (["v1.4"], 1, "superseded"),
     (["v1.5"], 1, "superseded"), (["v1.5", "--text-only"], 1, "superseded"),
     (["v1.1", "--text-only"], 0, "move")],
)  # fmt: skip
def test_a_dry_run_says_what_would_be_and_changes_nothing(
    toy: Toy, program: Program, args: list[str], code: int, what: str
) -> None:
    before = snapshot(toy.queue)
    assert decision(program, *args, "--dry-run") == (code, what)
    assert snapshot(toy.queue) == before


@pytest.mark.usefixtures("releases")
def test_a_conflict_changes_nothing_and_shows_the_three_sides(program: Program) -> None:
    ran = program.refused("rebase", "v1.3", code=1)
    assert "the patch expects:" in ran.out
    assert "      >     return height + width + 0\n" in ran.out
    assert "nothing was changed" in ran.out
    assert "--resolve" in ran.out


def test_what_is_superseded_is_retired_on_demand(releases: Toy, program: Program) -> None:
    releases.put_patch("twin")
    releases.put_queue(["area", "twin"])
    program.ok("rebase", "v1.4", "--superseded", "retire")
    assert not (releases.queue / "patches/area").exists()
    assert load_queue(releases.queue).spec.order == ()
    kept = releases.queue / "history/area"
    assert (kept / "retired/patch.toml").is_file()
    assert (kept / "retired/checks/test_red.py").is_file()
    (file,) = (kept / "retired").glob("*.patch")
    assert b"area = width * height" in file.read_bytes()
    assert "retired" in program("queue", "log", "area").out


def test_all_or_nothing_and_never_stopping_at_the_first(releases: Toy, program: Program) -> None:
    readme = releases.format_patch({"README": "toy, and more\n"}, subject="Say more")
    releases.put_patch("readme", patch=readme, files=("README",))
    releases.put_patch("on-top", patch=top(releases), extra='depends_on = ["area"]')
    releases.put_queue(["area", "on-top", "readme"])
    ran = program.refused("rebase", "v1.3", "--text-only", "--json", code=1)
    decisions = [dig(ran.json(), "patches", place, "decision") for place in range(3)]
    assert decisions == ["needs work", "blocked", "move"]


def test_a_conflict_is_resolved_by_a_person(releases: Toy, program: Program) -> None:
    before = snapshot(releases.queue)
    ran = program.refused("rebase", "v1.3", "--resolve", "--json", code=1)
    tree = Path(str(dig(ran.json(), "resolve")))
    area = tree / "src/toy/area.py"
    assert "<<<<<<<" in area.read_text()
    refused = program("rebase", "--continue")
    assert refused.code in {1, 2}
    assert snapshot(releases.queue) == before
    resolve(tree, AREA.replace("return width + height", "return width * height"))
    program.ok("rebase", "--continue")
    assert not tree.exists()
    assert 'tag = "v1.3"' in (releases.queue / "patches/queue.toml").read_text()
    (file,) = (releases.queue / "patches/area").glob("*.patch")
    assert b"+    return width * height" in file.read_bytes()
    assert program("verify", "area", "--json").report().verdict == "proved"


def test_a_move_that_waits_can_be_given_up(releases: Toy, program: Program) -> None:
    before = snapshot(releases.queue)
    tree = resolving(program)
    for args, said in (
        (["v1.1"], "waits for area; end it: contribbot rebase --continue, or --abort"),
        (["--continue", "v1.2"], "takes no release"),
        (["--abort", "--continue"], "--abort goes with no other option"),
        (["--abort", "v1.1"], "--abort goes with no other option"),
    ):
        ran = program("rebase", *args)
        assert (ran.code, ran.out, said in ran.err, tree.is_dir()) == (2, "", True, True)
    ended = program("rebase", "--abort", "--json")
    assert (ended.code, dig(ended.json(), "new")) == (0, "v1.3")
    assert not (releases.queue / ".contribbot/rebase").exists()
    assert snapshot(releases.queue) == before
    for args, said in (
        (["--abort"], "no move is underway"),
        (["v1.0"], "all patches for toy are on v1.0 already"),
    ):
        assert said in program.refused("rebase", *args).err


def test_renamed_files_are_followed(releases: Toy, program: Program) -> None:
    git(releases.upstream, "mv", "src/toy/area.py", "src/toy/plane.py")
    release(releases, {"README": "moved\n"}, "v2.0")
    program.ok("rebase", "v2.0", "--text-only")
    assert (
        'files = ["src/toy/plane.py"]' in (releases.queue / "patches/area/patch.toml").read_text()
    )


def halved(toy: Toy) -> bytes:
    """Return a patch on top of the toy's own, elsewhere in the file."""
    other = FIXED.replace("base * height / 2", "abs(base * height) / 2")
    return series(toy, {AREA_FILE: FIXED}, {AREA_FILE: other})[1]


HALVED = """\
from toy.area import triangle


def test_it():
    assert triangle(-2, 3) == 3
"""


@pytest.mark.slow
def test_what_stands_on_a_retired_patch_goes_without_it(releases: Toy, program: Program) -> None:
    releases.put_patch(
        "on-top", patch=halved(releases), extra='depends_on = ["area"]',
        checks=one_check(reason="^AssertionError: assert -3"), check_files={"test_red.py": HALVED},
    )  # fmt: skip
    releases.put_queue(["area", "on-top"])
    stopped = program("rebase", "v1.4", "--json")
    assert stopped.code == 1
    program.ok("rebase", "v1.4", "--superseded", "retire")
    assert load_queue(releases.queue).spec.order == ("on-top",)
    assert "depends_on = []" in (releases.queue / "patches/on-top/patch.toml").read_text()
    assert program("verify", "on-top", "--json").report().verdict == "proved"


def test_a_patch_that_was_only_begun_moves_too(releases: Toy, program: Program) -> None:
    program.ok("new", "begun", "--title", "Begun")
    program.ok("rebase", "v1.2", "--text-only")
    begun = dig(program("status", "begun", "--json").json(), "patches", 0)
    assert (dig(begun, "text"), dig(begun, "text_why")) == ("clean", "it has no commits yet")
    assert 'pin = "v1.2"' in (releases.queue / "patches/begun/patch.toml").read_text()


def test_a_resolution_of_what_the_patch_no_longer_is_is_not_taken(
    releases: Toy, program: Program
) -> None:
    resolve(resolving(program))
    other = FIXED.replace("area = width * height", "area = height * width")
    releases.put_patch(patch=releases.format_patch({"src/toy/area.py": other}))
    said = program.refused("rebase", "--continue").err
    assert "area was changed since its conflict was opened" in said


UNSEEN = one_check(reason="^AssertionError: assert 5 == ") + (
    '[[checks]]\nname = "gpu"\nfile = "test_gpu.py"\nexpect = "fail-to-pass"\n'
    'reason = "^AssertionError"\nrequires = ["gfx942"]\n'
)
UNSEEN_FILES = {"test_red.py": FAIL_TO_PASS, "test_gpu.py": FAIL_TO_PASS}


def test_what_could_not_be_asked_here_is_not_retired(releases: Toy, program: Program) -> None:
    releases.put_patch(checks=UNSEEN, check_files=UNSEEN_FILES)
    ran = program.refused("rebase", "v1.4", "--superseded", "retire", "--json", code=1)
    assert dig(ran.json(), "patches", 0, "decision") == "needs work"
    # Its text conflicts: who keeps it resolves that.
    kept = program("rebase", "v1.4", "--resolve", "--json")
    assert dig(kept.json(), "conflicted", 0) == "src/toy/area.py"
    resolve(Path(str(dig(kept.json(), "resolve"))))
    program.ok("rebase", "--continue")
    assert 'pin = "v1.4"' in (releases.queue / "patches/area/patch.toml").read_text()


def test_what_is_upstream_by_its_text_is_retired_unasked(releases: Toy, program: Program) -> None:
    releases.put_patch(checks=UNSEEN, check_files=UNSEEN_FILES)
    program.ok("rebase", "v1.5", "--superseded", "retire")
    assert not (releases.queue / "patches/area").exists()


@pytest.mark.usefixtures("releases")
def test_what_is_resolved_by_memory_alone_is_said(program: Program) -> None:
    resolve(resolving(program))
    program.ok("rebase", "--abort")
    ran = program.refused("rebase", "v1.3", "--text-only", "--resolve", code=1)
    assert "resolve the conflict" not in ran.out
    last = ran.out.splitlines()[-1]
    assert last.startswith("nothing is left to resolve in ")
    assert last.endswith("then: contribbot rebase --continue")
    program.ok("rebase", "--continue")


@pytest.mark.usefixtures("releases")
def test_a_tree_that_is_gone_is_opened_anew(program: Program) -> None:
    shutil.rmtree(resolving(program))
    ran = program("rebase", "--continue")
    assert ran.code == 2
    assert "the work tree with the conflict of area is gone; open it again:" in ran.err
    resolve(resolving(program))
    program.ok("rebase", "--continue")


@pytest.mark.usefixtures("releases")
def test_what_nothing_is_left_of_says_how_to_go_on(program: Program) -> None:
    tree = resolving(program)
    git(tree, "checkout", "-q", "HEAD", "--", ".")
    assert "a git cherry-pick is not finished" in program.refused("rebase", "--continue").err
    git(tree, "cherry-pick", "--skip")
    assert (
        "no commit is left of the patch; carry it again"
        in program.refused("rebase", "--continue").err
    )


def test_what_is_asked_when_it_goes_on_is_heard(releases: Toy, program: Program) -> None:
    releases.put_patch("readme", patch=releases.format_patch({"README": "toys\n"}))
    releases.put_queue(["area", "readme"])
    release(releases, {"src/toy/area.py": WRONG, "README": "toys\n"}, "v1.6")
    ran = program("rebase", "v1.6", "--text-only", "--resolve", "--json")
    resolve(Path(str(dig(ran.json(), "resolve"))))
    ran = program("rebase", "--continue")
    assert (ran.code, "--superseded retire" in ran.out) == (1, True)

    program.ok("rebase", "--continue", "--superseded", "retire")
    assert load_queue(releases.queue).spec.order == ("area",)


def test_a_tree_whose_move_is_forgotten_is_no_dead_end(releases: Toy, program: Program) -> None:
    tree = resolving(program)
    shutil.rmtree(releases.queue / ".contribbot/rebase")
    for args, said in (
        (("edit", "area"), "area is being carried to another base, in "),
        (("rebase", "v1.4", "--text-only", "--resolve"), "area is being carried to "),
    ):
        ran = program(*args)
        assert (ran.code, said in ran.err) == (2, True)
        assert "contribbot edit --abort area" in ran.err
    assert program("edit", "--abort", "area").code == 1
    program.ok("edit", "--abort", "--force", "area")
    assert not tree.exists()
    program.ok("edit", "area")
    # Nor is what a person edits taken for a move.
    ran = program.refused("rebase", "v1.3", "--text-only", "--resolve")
    assert "area is open in " in ran.err
    program.ok("edit", "--abort", "area")


@pytest.mark.usefixtures("releases")
def test_what_was_given_up_by_hand_starts_again(program: Program, home: Path) -> None:
    tree = resolving(program)
    person(tree, "cherry-pick", "--abort", home=home)
    assert resolving(program) == tree
    assert "<<<<<<<" in (tree / AREA_FILE).read_text()


@pytest.mark.usefixtures("releases")
@pytest.mark.parametrize("left", ["forgotten.txt", "what is stashed"])
def test_what_would_go_with_the_tree_is_asked_for(program: Program, home: Path, left: str) -> None:
    tree = resolving(program)
    resolve(tree)
    if left == "forgotten.txt":
        (tree / left).write_text("mine\n")
    else:
        (tree / AREA_FILE).write_text("mine\n")
        person(tree, "stash", home=home)
    assert f"in no commit: {left}; " in program.refused("rebase", "--continue").err


def two_commits(releases: Toy) -> None:
    second = releases.format_patch({"README": "toy\nareas\n"}, subject="Say more")
    releases.put("patches/area/0002-more.patch", second)


def test_what_applies_is_carried_to_the_end(releases: Toy, program: Program) -> None:
    two_commits(releases)
    tree = resolving(program)
    resolve(tree)
    assert git(tree, "log", "--format=%an %s").decode().splitlines() == [
        "Ada Example Say more", "Ada Example Multiply the sides of a rectangle",
        "Ada Example Toy v1.3",
    ]  # fmt: skip
    program.ok("rebase", "--continue")
    files = load_queue(releases.queue).patch("area").files
    assert [file.name for file in files] == [
        "0001-Multiply-the-sides-of-a-rectangle.patch", "0002-Say-more.patch",
    ]  # fmt: skip
    assert b"\nDate: Tue, 14 Nov 2023 23:13:20 +0100\n" in files[0].content


def test_a_commit_that_the_base_has_is_skipped(releases: Toy, program: Program) -> None:
    two_commits(releases)
    release(releases, {AREA_FILE: FIXED, "README": "other\n"}, "v1.6")
    ran = program("rebase", "v1.6", "--text-only", "--resolve", "--json")
    tree = Path(str(dig(ran.json(), "resolve")))
    assert dig(ran.json(), "conflicted") == ["README"]
    resolve(tree, "other\nareas\n", "README")
    program.ok("rebase", "--continue")
    (file,) = load_queue(releases.queue).patch("area").files
    assert b"Say more" in file.content
