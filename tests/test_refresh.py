"""`contribbot refresh`: the commits of a work tree become the patch's files again."""

from __future__ import annotations

import os
import shlex
import shutil
from pathlib import Path

import pytest
from pydantic import JsonValue

from contribbot.queue.arrange import range_diff
from contribbot.queue.history import versions
from contribbot.queue.load import load_queue
from tests.buildtoy import with_sources
from tests.conftest import REAL_CACHE, Program, dig
from tests.hostile import person
from tests.lifetoy import resolve
from tests.toy import AREA, FIXED, Toy, git, one_check, snapshot

ROOT = Path(__file__).parent.parent
AREA_FILE = "src/toy/area.py"
CUBE = "\n\ndef cube(side):\n    return side**3\n"


@pytest.fixture
def queue(area: Toy) -> Path:
    git(area.queue, "init", "-q")
    return area.queue


def opened(program: Program, name: str = "area") -> Path:
    ran = program.ok("edit", name, "--json")
    return Path(str(ran.json()["path"]))


def refreshed(program: Program, name: str = "area") -> dict[str, JsonValue]:
    ran = program.ok("refresh", name, "--json")
    return ran.json()


def series(toy: Toy, *steps: dict[str, str | bytes]) -> list[bytes]:
    """Return changes on top of each other as the patch files of one series."""
    for number, step in enumerate(steps, start=1):
        toy.change(step, f"Step {number}\n\nBody.")
    files = [
        git(toy.upstream, "format-patch", "-1", "--stdout", "--zero-commit", f"HEAD~{back}")
        for back in reversed(range(len(steps)))
    ]
    git(toy.upstream, "reset", "-q", "--hard", toy.commit)
    return files


def put_series(toy: Toy, files: list[bytes], paths: tuple[str, ...] = (AREA_FILE,)) -> Path:
    folder = toy.put_patch(patch=files[0], files=paths)
    for number, content in enumerate(files[1:], start=2):
        toy.put(f"patches/area/000{number}-change.patch", content)
    toy.put_queue(["area"])
    return folder


def amend(tree: Path, changes: dict[str, str], *, words: str = "") -> None:
    """Change files of a tree, and put that into its last commit."""
    for path, content in changes.items():
        (tree / path).write_text(content)
    git(tree, "commit", "-qa", "--amend", *(("-m", words) if words else ("--no-edit",)))


def applied_tree(toy: Toy, queue: Path, *names: str) -> str:
    """Return the tree that `git am` makes of patches."""
    git(toy.upstream, "switch", "-q", "--detach", toy.commit)
    for name in names:
        for file in sorted((queue / "patches" / name).glob("*.patch")):
            git(toy.upstream, "am", "-q", "--keep-cr", stdin=file.read_bytes())
    tree = git(toy.upstream, "rev-parse", "HEAD^{tree}").decode().strip()
    git(toy.upstream, "switch", "-q", "main")
    return tree


def tree_of(tree: Path) -> str:
    return git(tree, "rev-parse", "HEAD^{tree}").decode().strip()


def test_a_changed_commit_is_a_version(program: Program, toy: Toy, queue: Path) -> None:
    tree = opened(program)
    before = snapshot(queue)
    (tree / "forgotten.py").write_text("x = 1\n")
    (tree / "__pycache__").mkdir()
    (tree / "__pycache__/x.pyc").write_bytes(b"")
    ran = program("refresh", "area")
    assert (ran.code, *ran.out.splitlines()) == (
        0,
        "area: forgotten.py is in no commit; to save it: git add, git commit",
        "area: nothing has changed",
    )
    assert snapshot(queue) == before
    (tree / "forgotten.py").unlink()
    old = (queue / "patches/area/0001-change.patch").read_bytes()
    amend(tree, {AREA_FILE: FIXED + CUBE}, words="Multiply, and add cubes")

    said = refreshed(program)

    assert (said["changed"], said["version"]) == (True, 2)
    assert said["patch_files"] == ["0001-Multiply-and-add-cubes.patch"]
    assert [path.name for path in (queue / "patches/area").glob("*.patch")] == said["patch_files"]
    assert applied_tree(toy, queue, "area") == tree_of(tree)
    assert versions(queue, "area")[0].files()[0].content == old
    assert "v2" in program("queue", "log", "area").out
    again = program("refresh", "area", "--json").json()
    assert (again["changed"], again["version"]) == (False, None)
    program.ok("edit", "--abort", "area")


def test_a_commit_that_is_as_it_was_keeps_its_bytes(program: Program, toy: Toy, home: Path) -> None:
    # As no git writes it any more: another abbreviation, a signature, a header more.
    first, second = series(toy, {AREA_FILE: FIXED}, {AREA_FILE: FIXED + CUBE})
    first = first.replace(b"Subject: ", b"X-Mailer: pine\nSubject: ", 1)
    folder = put_series(toy, [first, second])
    tree = opened(program)
    (tree / "README").write_text("more\n")
    git(tree, "commit", "-qam", "Third")

    said = refreshed(program)

    names = ["0001-change.patch", "0002-change.patch", "0003-Third.patch"]
    assert said["patch_files"] == names
    assert [(folder / name).read_bytes() for name in names[:2]] == [first, second]
    assert said["files_added"] == ["README"]
    # Once more, now that the tree's own commits stand for the files.
    amend(tree, {"README": "more still\n"})
    assert refreshed(program)["version"] == 3
    assert [(folder / name).read_bytes() for name in names[:2]] == [first, second]
    # One that is reworded leaves those above it alone.
    person(tree, "checkout", "-q", "HEAD~2", home=home)
    person(tree, "commit", "-q", "--amend", "-m", "Other words", home=home)
    person(tree, "cherry-pick", "contribbot/area~2..contribbot/area", home=home)
    assert refreshed(program)["patch_files"] == ["0001-Other-words.patch", *names[1:]]
    assert (folder / names[1]).read_bytes() == second


def test_files_of_patch_toml_follow(program: Program, queue: Path) -> None:
    stated = queue / "patches/area/patch.toml"
    stated.write_text("# Why: sums.\n" + stated.read_text())
    tree = opened(program)
    git(tree, "mv", AREA_FILE, "src/toy/areas.py")
    git(tree, "commit", "-qa", "--amend", "--no-edit")

    ran = program.ok("refresh", "area")
    assert "added to `files` of patch.toml: src/toy/areas.py" in ran.out
    assert load_queue(queue).patch("area").spec.files == (AREA_FILE, "src/toy/areas.py")
    assert stated.read_text().startswith("# Why: sums.\n")
    (tree / "src/toy/areas.py").rename(tree / AREA_FILE)
    git(tree, "add", "-A")
    git(tree, "commit", "-qa", "--amend", "--no-edit")
    assert refreshed(program)["files_removed"] == ["src/toy/areas.py"]
    program.ok("verify", "area")


def test_bytes_of_all_kinds_survive(program: Program, toy: Toy, home: Path) -> None:
    latin = b"caf\xe9\r\n" * 3 + b"end"
    with_sources(toy, {"old.py": AREA, "run.sh": "#!/bin/sh\n", "latin.txt": latin})
    toy.put_area()
    program.env["HOME"] = str(home)
    tree = opened(program)
    (tree / "latin.txt").write_bytes(b"caf\xe9\r\n" * 2 + b"th\xe9\r\nend")
    (tree / "binary.bin").write_bytes(bytes(range(256)) * 9)
    (tree / "empty").write_bytes(b"")
    (tree / "link").symlink_to("README")
    person(tree, "mv", "old.py", "new name.py", home=home)
    (tree / "run.sh").chmod(0o755)
    person(tree, "add", "-A", "-f", home=home)
    author = "J\xf6rg M\xfcller <j@example.com>"
    person(tree, "commit", "-q", "--author", author, "-m", "Über all\n\nFür.", home=home)

    said = refreshed(program)

    assert said["files_added"] == [
        "binary.bin", "empty", "latin.txt", "link", "new name.py", "old.py", "run.sh",
    ]  # fmt: skip
    assert applied_tree(toy, toy.queue, "area") == tree_of(tree)
    second = (toy.queue / "patches/area/0002-ber-all.patch").read_bytes()
    assert b"rename from old.py\nrename to new name.py" in second
    assert b"old mode 100644\nnew mode 100755" in second
    assert b"GIT binary patch" in second
    assert b"+th\xe9\r\n" in second
    before = snapshot(toy.queue)
    assert refreshed(program)["changed"] is False
    assert snapshot(toy.queue) == before
    program.ok("edit", "--abort", "area")
    opened(program)
    assert refreshed(program)["changed"] is False
    assert snapshot(toy.queue) == before
    assert not (home / "hook-ran").exists()


def test_a_commit_in_latin_1_or_of_another_branch_is_taken(program: Program, queue: Path) -> None:
    tree = opened(program)
    (tree / "README").write_text("more\n")
    git(tree, "switch", "-qc", "try")
    git(tree, "-c", "i18n.commitEncoding=ISO-8859-1", "commit", "-qaF", "-", stdin=b"Caf\xe9\n")

    refreshed(program)

    content = (queue / "patches/area/0002-Caf.patch").read_bytes()
    assert b"Subject: [PATCH 2/2] =?UTF-8?q?Caf=C3=A9?=\n" in content


RETIRE = "to take the patch out of the queue: contribbot queue retire area --why WHY"
#: Commands of git that spoil a tree, and what refresh says of it.
SPOILT = {
    "merge": (
        "switch -qc side HEAD~1; commit -q --allow-empty -m Side; merge -q -m Join contribbot/area",
        "the commit 'Join' is a merge",
    ),
    "empty": ("commit -q --allow-empty -m None", "'None' changes"),
    "submodule": (
        f"update-index --add --cacheinfo 160000,{'1' * 40},third/party; commit -qm 'Add third'",
        "'Add third' changes the submodule 'third/party'",
    ),
    "zero": ("reset -q --hard HEAD~1", RETIRE),
    "lost base": ("checkout -q --orphan new; commit -qm New", "does not stand on"),
    "undone": ("revert --no-edit HEAD", RETIRE),
    "odd path": ("add -A; commit -qm Odd", "not UTF-8, or not printable"),
    "bisect": ("bisect start", "a git bisect is not finished"),
}


@pytest.mark.usefixtures("queue")
@pytest.mark.parametrize("how", SPOILT)
def test_what_cannot_be_taken_is_refused_and_nothing_is_written(program: Program, how: str) -> None:
    commands, said = SPOILT[how]
    tree = opened(program)
    (tree / "third/party").mkdir(parents=True)
    if how == "odd path":
        Path(os.fsdecode(bytes(tree / "caf") + b"\xe9")).write_text("new\n")
    for command in commands.split(";"):
        git(tree, *shlex.split(command))
    ran = program.refused("refresh", "area")
    assert said in ran.err
    assert ran.err.count("\n") == 1
    # Force is for what somebody may want, not for this.
    program.refused("refresh", "--force", "area")


@pytest.mark.usefixtures("queue")
@pytest.mark.parametrize("what", ["rebase", "cherry-pick", "am", "merge"])
def test_an_unfinished_operation_is_named(program: Program, home: Path, what: str) -> None:
    tree = opened(program)
    git(tree, "switch", "-qc", "side", "HEAD~1")
    (tree / AREA_FILE).write_text(AREA.replace("width + height", "height + width"))
    git(tree, "commit", "-qam", "Side")
    patch = git(tree, "format-patch", "-1", "--stdout")
    git(tree, "switch", "-q", "contribbot/area")
    args = {"rebase": ["side"], "cherry-pick": ["side"], "am": ["-3"],
            "merge": ["--no-ff", "side"]}[what]  # fmt: skip
    stdin = patch if what == "am" else b""
    code = 128 if what == "am" else 1
    person(tree, what, *args, home=home, stdin=stdin, code=code)
    said = program.refused("refresh", "area").err
    assert f"a git {what} is not finished" in said
    assert f"git {what} --continue" in said


@pytest.mark.usefixtures("queue")
@pytest.mark.parametrize("style", ["diff3", "merge"])
def test_marks_that_git_left_in_a_conflict_are_refused(
    program: Program, home: Path, style: str
) -> None:
    tree = opened(program)
    git(tree, "switch", "-qc", "side", "HEAD~1")
    (tree / AREA_FILE).write_text(AREA.replace("width + height", "height + width"))
    git(tree, "commit", "-qam", "Side")
    git(tree, "switch", "-q", "contribbot/area")
    person(tree, "cherry-pick", "side", home=home, code=1)
    git(tree, "checkout", f"--conflict={style}", AREA_FILE)
    git(tree, "commit", "-qam", "Pick\n\n+++ b/is no file")
    ran = program.refused("refresh", "area", code=1)
    assert " Pick adds the marks of a conflict, as git leaves them" in ran.out
    # Somebody may want just that; from then on the marks are the patch's own.
    program.ok("refresh", "--force", "area")
    # Lines that only look like marks are none.
    amend(tree, {"README": "Areas\n=======\n<<<<<<< is no link\n>>>>>>> nor this\n"})
    assert refreshed(program)["changed"] is True


def put_stack(toy: Toy) -> None:
    """Put `cube`, and `square` above it, on top of `area`."""
    squares = FIXED.replace("return side * side", "return side**2")
    one, two, three = series(
        toy, {AREA_FILE: FIXED}, {AREA_FILE: FIXED + CUBE}, {AREA_FILE: squares + CUBE}
    )
    toy.put_patch(patch=one)
    toy.put_patch("cube", patch=two, extra='depends_on = ["area"]', checks=one_check())
    toy.put_patch("square", patch=three, extra='depends_on = ["cube"]', checks=one_check())
    toy.put_queue(["area", "cube", "square"])
    git(toy.queue, "init", "-q")


def put_three(toy: Toy) -> None:
    """Put `area` of two commits, `cube` above it, and `readme` beside them into a queue in git."""
    one, two, three = series(
        toy, {AREA_FILE: FIXED}, {"NEW": "new\n", "docs/area.txt": "areas\n"},
        {AREA_FILE: FIXED + CUBE},
    )  # fmt: skip
    put_series(toy, [one, two], (AREA_FILE, "NEW", "docs/area.txt"))
    toy.put_patch("cube", patch=three, extra='depends_on = ["area"]', checks=one_check())
    readme = toy.format_patch({"README": "mine\n"}, subject="Say more")
    toy.put_patch("readme", patch=readme, files=("README",))
    toy.put_queue(["area", "cube", "readme"])
    git(toy.queue, "init", "-q", "-b", "main")


HALF = FIXED.replace("base * height / 2", "base * height * 0.5")


def halve(program: Program) -> Path:
    """Change `area` in a way that what `cube` stands on is another line; return its tree."""
    tree = opened(program)
    (tree / AREA_FILE).write_text(HALF)
    return tree


def test_patches_above_that_conflict_wait_for_a_person(program: Program, toy: Toy) -> None:
    put_stack(toy)
    halve(program)
    said = program.refused("refresh", "area", "--json", code=1).json()
    assert [dig(said, "broken", at, "patch") for at in (0, 1)] == ["cube", "square"]
    assert AREA_FILE in str(dig(said, "broken", 0, "why"))
    assert (said["changed"], said["version"]) == (False, None)
    # Whoever resolves it goes on in the tree with the conflict.
    tree = Path(str(said["resolve"]))
    assert program("refresh", cwd=tree).code == 2
    resolve(tree, HALF + CUBE)
    ran = program("refresh", "--json", cwd=tree)
    assert (ran.code, ran.json()["carried"], ran.json()["broken"]) == (0, ["cube"], [])
    assert not tree.exists()
    squares = HALF.replace("return side * side", "return side**2") + CUBE
    applied_tree(toy, toy.queue, "area", "cube", "square")
    assert git(toy.upstream, "show", f"HEAD@{{1}}:{AREA_FILE}").decode() == squares
    assert [one.event.why for one in versions(toy.queue, "cube")] == [
        "before refresh of area", "refresh of area",
    ]  # fmt: skip
    assert range_diff(load_queue(toy.queue), "cube", 1, 2).range_diff


def test_a_conflict_above_may_be_given_up_or_ignored(program: Program, toy: Toy) -> None:
    put_stack(toy)
    tree = halve(program)
    assert program("refresh", cwd=tree).code == 1
    assert program("edit", "cube").code == 2
    for _ in range(2):
        program.ok("edit", "--abort", "--force", "cube")
        assert program("refresh", cwd=tree).code == 1
        # It is opened anew.
        assert (toy.queue / ".contribbot/edit/cube").is_dir()
    program.ok("edit", "--abort", "--force", "cube")
    forced = program.ok("refresh", "--force", "area")
    assert "cube: no longer applies" in forced.out
    assert applied_tree(toy, toy.queue, "area") == tree_of(tree)


def test_patches_above_are_merged_onto_what_is_below(program: Program, toy: Toy) -> None:
    """What is below makes one of the changes itself: git apply says no, and a merge is clean."""
    one, two = series(toy, {AREA_FILE: FIXED}, {AREA_FILE: HALF.replace("side * side", "side**2")})
    toy.put_patch(patch=one)
    toy.put_patch("power", patch=two, extra='depends_on = ["area"]', checks=one_check())
    toy.put_queue(["area", "power"])
    tree = halve(program)

    ran = program("refresh", cwd=tree)

    assert (ran.code, "power: carried along" in ran.out) == (0, True)
    (file,) = (toy.queue / "patches/power").glob("*.patch")
    assert b"side**2" in file.read_bytes()
    assert b"0.5" not in file.read_bytes()
    applied_tree(toy, toy.queue, "area", "power")


def test_a_resolution_of_an_older_state_is_merged_anew(program: Program, toy: Toy) -> None:
    one, two = series(toy, {AREA_FILE: FIXED}, {AREA_FILE: HALF.replace("side * side", "side**2")})
    toy.put_patch(patch=one)
    toy.put_patch("power", patch=two, extra='depends_on = ["area"]', checks=one_check())
    toy.put_queue(["area", "power"])
    tree, older = opened(program), FIXED.replace("base * height / 2", "base / 2 * height")
    (tree / AREA_FILE).write_text(older)
    resolution = Path(str(program.refused("refresh", "area", "--json", code=1).json()["resolve"]))
    resolve(resolution, FIXED.replace("side * side", "side**2"))
    (tree / AREA_FILE).write_text(HALF)

    assert "power: carried along" in program.ok("refresh", cwd=tree).out
    assert not resolution.exists()
    applied_tree(toy, toy.queue, "area", "power")


def test_the_daily_loop_is_edit_and_refresh(program: Program, area: Toy, tmp_path: Path) -> None:
    # A queue that is named by where it is from here; a tree that is somewhere else.
    at = ("edit", "area", "--at", tmp_path / "tree", "--json")
    ran = program.ok("--queue", area.queue.name, *at, cwd=area.queue.parent)
    tree = Path(str(ran.json()["path"]))
    (tree / AREA_FILE).write_text(FIXED + CUBE)
    (tree / "NEW").write_text("new\n")
    git(tree, "add", "NEW")

    done = program("refresh", "--json", cwd=tree / "src").json()
    assert done["amended"] == ["NEW", AREA_FILE]

    assert (done["version"], done["files_added"]) == (2, ["NEW"])
    assert applied_tree(area, area.queue, "area") == tree_of(tree)
    assert (
        git(tree, "log", "-1", "--format=%an %s").decode()
        == "Ada Example Multiply the sides of a rectangle\n"
    )
    assert program("refresh", cwd=tree).out == "area: nothing has changed\n"


def test_patches_above_that_still_apply_or_never_did_are_left_alone(
    program: Program, toy: Toy
) -> None:
    put_stack(toy)
    tree = opened(program, "cube")
    above = snapshot(toy.queue / "patches/square")
    amend(tree, {"README": "cubes\n"})
    said = refreshed(program, "cube")
    assert (said["changed"], said["broken"]) == (True, [])
    assert snapshot(toy.queue / "patches/square") == above
    assert applied_tree(toy, toy.queue, "area", "cube") == tree_of(tree)
    toy.edit("patches/square/0001-change.patch", "-    return side * side", "-    return 1")
    amend(tree, {}, words="Other words")
    assert refreshed(program, "cube")["broken"] == []


def test_what_the_queue_got_meanwhile_is_not_overwritten(
    program: Program, toy: Toy, queue: Path
) -> None:
    tree = opened(program)
    git(tree, "commit", "-q", "--amend", "-m", "Mine")
    toy.put_patch(patch=toy.format_patch({AREA_FILE: FIXED}, subject="Theirs"))
    assert "changed since" in program.refused("refresh", "area", code=1).out
    program.ok("refresh", "--force", "area")
    assert [path.name for path in (queue / "patches/area").glob("*.patch")] == ["0001-Mine.patch"]
    # What was there is not lost: it is a version.
    assert b"Theirs" in versions(queue, "area")[0].files()[0].content
    program.ok("edit", "area")


def test_a_tree_below_which_a_dependency_changed_is_taken_only_by_force(
    program: Program, toy: Toy
) -> None:
    put_stack(toy)
    tree = opened(program, "cube")
    amend(tree, {"README": "cubes\n"})
    toy.put_patch(patch=toy.format_patch({AREA_FILE: FIXED}, subject="Other words"))
    ran = program("refresh", "cube")
    assert (ran.code, "what cube stands on" in ran.out) == (1, True)
    program.ok("refresh", "--force", "cube")
    assert applied_tree(toy, toy.queue, "area", "cube") == tree_of(tree)
    # Neither where its commits do not fit any more.
    amend(tree, {}, words="Other words")
    toy.put_patch(patch=toy.format_patch({AREA_FILE: HALF.replace("square", "quadrat")}))
    for args in (("refresh", "cube"), ("refresh", "--force", "cube")):
        said = program.refused(*args).err
        assert "git am -3" in said
        assert "do not fit the queue as it is now: 0001-Other-words.patch: hunk 1" in said


def test_a_patch_begins_in_a_tree(program: Program, toy: Toy, queue: Path) -> None:
    (queue / "patches/area/0001-change.patch").unlink()
    tree = opened(program)
    assert git(tree, "rev-parse", "HEAD").decode().strip() == toy.commit
    assert program("refresh", "area").code == 2
    (tree / AREA_FILE).write_text(FIXED)
    # There is no commit to put it into but the pin's.
    assert "not committed: src/toy/area.py; `git commit" in program.refused("refresh", "area").err
    git(tree, "commit", "-qam", "Begin")

    ran = program("refresh", "area", "--json", cwd=tree)

    assert (ran.code, ran.json()["version"]) == (0, 1)
    assert applied_tree(toy, queue, "area") == tree_of(tree)


@pytest.mark.usefixtures("sglang_archive")
def test_the_real_rmsnorm_is_not_changed_at_all(tmp_path: Path, home: Path) -> None:
    shutil.copytree(ROOT / "patches", tmp_path / "queue/patches")
    program = Program(tmp_path / "queue", {"CONTRIBBOT_CACHE": str(REAL_CACHE), "HOME": str(home)})
    before = snapshot(tmp_path / "queue")

    tree = opened(program, "rmsnorm")
    said = refreshed(program, "rmsnorm")

    assert said["changed"] is False
    assert snapshot(tmp_path / "queue") == before
    assert b"_to_aiter_layout" in git(tree, "show", "HEAD", "--", "python")
    # And taken from what git writes, it is the same patch still.
    person(tree, "commit", "-q", "--amend", "--no-edit", home=home)
    assert refreshed(program, "rmsnorm")["changed"] is False
    program.ok("edit", "--abort", "rmsnorm")


def test_a_message_with_a_line_that_ends_mails_is_kept(program: Program, queue: Path) -> None:
    tree = opened(program)
    words = "Cut\n\nabove\n---\ndiff -u is no diff\nbelow\n"
    git(tree, "commit", "-q", "--amend", "--cleanup=verbatim", "-m", words)

    for changed in (True, False):
        assert refreshed(program)["changed"] is changed

    assert b"\nabove\n ---\n diff -u is no diff\nbelow\n---\n" in b"".join(
        path.read_bytes() for path in (queue / "patches/area").glob("*.patch")
    )
    program.ok("edit", "--abort", "area")
    assert " ---" in git(opened(program), "log", "-1", "--format=%B").decode()
