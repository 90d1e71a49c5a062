"""What a user's labels, branch and folders become in workflows, and what would become of none."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from ruamel.yaml import YAML

from tests.runners import lint
from tests.runners.acting import RUNNERS

if TYPE_CHECKING:
    from tests.conftest import Program
    from tests.toy import Toy

PINNED = f"contribbot==0.1.0 \\\n    --hash=sha256:{'a' * 64}\n"
FOLDER = Path(".github/workflows")
NAMES = ("verify.yml", "rebase.yml", "open-pr.yml")


@pytest.fixture(autouse=True)
def _described(toy: Toy) -> None:
    toy.put("runners.toml", RUNNERS)
    toy.put(".github/contribbot-requirements.txt", PINNED)


def read(toy: Toy, name: str) -> object:
    """Return a workflow, read as GitHub does: `on` is a word."""
    return YAML(typ="safe").load(toy.queue / FOLDER / name)


def at(found: object, *keys: str) -> object:
    """Return what is in a workflow below keys."""
    for key in keys:
        assert isinstance(found, dict)
        found = found[key]
    return found


@pytest.mark.parametrize(
    "labels",
    [["123"], ["true"], ["self-hosted", "null", "1e3"], ["0x1F"], ["2026-01-01"], ["big.1_x"],
     ["on", "y"]],
)  # fmt: skip
def test_a_label_stays_a_word(toy: Toy, program: Program, labels: list[str]) -> None:
    listed = ", ".join(f'"{one}"' for one in labels)
    toy.put("runners.toml", RUNNERS.replace('"ubuntu-24.04"', listed))

    assert program("workflows", "install").code == 0

    wanted = labels[0] if len(labels) == 1 else labels
    assert at(read(toy, "verify.yml"), "jobs", "plan", "runs-on") == wanted
    assert at(read(toy, "rebase.yml"), "jobs", "look", "runs-on") == wanted
    assert lint.against_schema([toy.queue / FOLDER / name for name in NAMES]) == []


@pytest.mark.parametrize("branch", ["production", "on", "1.10", "release/2.1", "v1_x", "null"])
def test_a_branch_that_was_named_once_is_known_afterwards(
    toy: Toy, program: Program, branch: str
) -> None:
    assert program("workflows", "install", "--branch", branch).code == 0
    assert at(read(toy, "verify.yml"), "on", "push", "branches") == [branch]

    checked = program("workflows", "install", "--check")
    assert (checked.code, checked.out.count("current")) == (0, 3), checked.out + checked.err
    assert program("workflows", "install").out.count("as it was") == 3


@pytest.mark.parametrize(
    "branch", ["a..b", "x/", "a//b", "refs/heads/main", "rel+1", "x*", "-x", "!x", "a b", "ü", "x."]
)
def test_a_branch_that_no_push_would_match_is_refused(
    toy: Toy, program: Program, branch: str
) -> None:
    ran = program("workflows", "install", f"--branch={branch}")
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert f"--branch {branch}" in ran.err
    assert not (toy.queue / FOLDER).exists()


def test_branches_that_a_person_added_are_shown_and_no_error(toy: Toy, program: Program) -> None:
    assert program("workflows", "install").code == 0
    place = toy.queue / FOLDER / "verify.yml"
    place.write_text(place.read_text().replace("branches: [main]", "branches: [main, next]"))

    checked = program("workflows", "install", "--check")

    assert checked.code == 1
    assert "-    branches: [main, next] # filled in: branch" in checked.out.splitlines()
    assert "+    branches: [main] # filled in: branch" in checked.out.splitlines()
    assert program("workflows", "install", "--force").code == 0
    assert at(read(toy, "verify.yml"), "on", "push", "branches") == ["main"]


@pytest.mark.parametrize("change", [lambda text: text.replace("\n", "\r\n"), str.rstrip])
def test_other_line_ends_are_said(toy: Toy, program: Program, change: object) -> None:
    assert callable(change)
    assert program("workflows", "install").code == 0
    place = toy.queue / FOLDER / "verify.yml"
    place.write_bytes(change(place.read_text()).encode())

    checked = program("workflows", "install", "--check")

    assert (checked.code, len(checked.out.splitlines())) == (1, 4)
    assert "line ends" in checked.out


@pytest.mark.parametrize("linked", [".github", ".github/workflows", ".github/workflows/rebase.yml"])
def test_nothing_goes_through_a_link(toy: Toy, program: Program, linked: str) -> None:
    assert program("workflows", "install").code == 0
    place, aside = toy.queue / linked, toy.queue / "aside"
    place.rename(aside)
    place.symlink_to(aside)
    before = {path: path.read_bytes() for path in aside.rglob("*") if path.is_file()}
    toy.put("runners.toml", RUNNERS.replace("ubuntu-24.04", "ubuntu-26.04"))

    for args in ((), ("--check",), ("--force",)):
        ran = program("workflows", "install", *args)
        assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
        assert f"{place}: a link" in ran.err
    assert {path: path.read_bytes() for path in before} == before


@pytest.mark.parametrize("path", [".github", ".github/workflows"])
def test_a_file_in_the_place_of_the_folder_is_named(toy: Toy, program: Program, path: str) -> None:
    if path == ".github":
        (toy.queue / ".github/contribbot-requirements.txt").unlink()
        (toy.queue / ".github").rmdir()
    toy.put(path, "mine\n")
    for args in ((), ("--check",), ("--force",)):
        ran = program("workflows", "install", *args)
        assert (ran.code, ran.out) == (2, "")
        assert f"{toy.queue / path}: a file" in ran.err
    assert (toy.queue / path).read_text() == "mine\n"


def test_windows_is_no_runner_with_linux(toy: Toy, program: Program) -> None:
    toy.put("runners.toml", RUNNERS.replace('"ubuntu-24.04"', '"self-hosted", "Windows"'))
    ran = program("workflows", "install")
    assert (ran.code, "Windows is a label that no runner" in ran.err) == (2, True)


def test_a_pin_that_is_not_there_says_which_command_makes_it(toy: Toy, program: Program) -> None:
    (toy.queue / ".github/contribbot-requirements.txt").unlink()
    ran = program("workflows", "install")
    assert ran.code == 2
    assert "contribbot workflows pin" in ran.err


def test_a_folder_that_cannot_be_written_is_left_as_it_was(toy: Toy, program: Program) -> None:
    assert program("workflows", "install").code == 0
    toy.put("runners.toml", RUNNERS.replace("ubuntu-24.04", "ubuntu-26.04"))
    before = (toy.queue / FOLDER / "verify.yml").read_bytes()
    # Nobody may make a file there, root neither.
    (toy.queue / ".contribbot").rename(toy.queue / ".aside")
    (toy.queue / ".contribbot").write_text("in the way")

    ran = program("workflows", "install")

    assert (ran.code, ran.out) == (3, "")
    assert "the queue is as it was" in ran.err
    assert (toy.queue / FOLDER / "verify.yml").read_bytes() == before
