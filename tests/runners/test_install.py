"""`contribbot runners workflows install`: what it writes, what it leaves alone, what it refuses."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from contribbot.runners.workflows import sealed, templates_folder
from tests.conftest import Program, Ran, dig
from tests.runners import lint
from tests.runners.acting import RUNNERS, build_wheel
from tests.toy import Toy, git

PINNED = f"contribbot==0.1.0 \\\n    --hash=sha256:{'a' * 64}\n"
PATHS = tuple(
    f".github/workflows/{name}.yml" for name in ("verify", "rebase", "open-pr", "emulate")
)


@pytest.fixture(autouse=True)
def _described(toy: Toy) -> None:
    toy.put("runners.toml", RUNNERS)
    toy.put(".github/contribbot-requirements.txt", PINNED)


def assert_refused(ran: Ran, toy: Toy, *words: str, code: int = 2, bare: bool = True) -> None:
    """See that it said why, in one line, and wrote nothing."""
    assert (ran.code, ran.out) == (code, ""), ran.out + ran.err
    assert ran.err.count("\n") == 1
    assert [each for each in words if each not in ran.err] == []
    assert (toy.queue / ".github/workflows").exists() is not bare


def test_workflows_are_written_and_are_current_then(toy: Toy, program: Program) -> None:
    first = program("runners", "workflows", "install")

    assert first.code == 0, first.err
    assert first.out.splitlines() == [f"{path}: written" for path in PATHS]
    for path in PATHS:
        template = (templates_folder() / Path(path).name).read_text()
        assert (toy.queue / path).read_text() == sealed(template)
    checked = program("runners", "workflows", "install", "--check", "--json")
    assert [
        dig(checked.json(), "workflows", number, "standing") for number in range(len(PATHS))
    ] == ["current"] * len(PATHS)
    assert_refused(
        program("runners", "workflows", "install", "--check", "--force"), toy, "--check", bare=False
    )
    before = [(toy.queue / path).stat().st_mtime_ns for path in PATHS]
    assert program("runners", "workflows", "install").out.count("as it was") == len(PATHS)
    assert [(toy.queue / path).stat().st_mtime_ns for path in PATHS] == before


@pytest.mark.tool("node", "npm")
def test_what_is_installed_passes_the_same_tools(toy: Toy, program: Program) -> None:
    toy.put("runners.toml", RUNNERS.replace('["ubuntu-24.04"]', '["build", "big-1"]'))
    assert program("runners", "workflows", "install", "--branch", "on").code == 0

    files = [toy.queue / path for path in PATHS]
    verify = files[0].read_text()
    assert 'runs-on: ["build", "big-1"] # filled in: hosted' in verify
    assert 'branches: ["on"] # filled in: branch' in verify
    assert lint.zizmor(files) == []
    assert lint.against_schema(files) == []
    # It cannot know labels that a queue has chosen.
    unknown = [
        each for each in lint.actionlint(files) if not re.search(r'"(build|big-1)" is', each)
    ]
    assert unknown == []


def test_other_runners_are_a_difference_and_need_no_force(toy: Toy, program: Program) -> None:
    assert program("runners", "workflows", "install", "--branch", "trunk").code == 0
    toy.put("runners.toml", RUNNERS.replace('["ubuntu-24.04"]', '["ubuntu-26.04"]'))

    checked = program("runners", "workflows", "install", "--check")
    assert checked.code == 1
    assert '-    runs-on: ["ubuntu-24.04"] # filled in: hosted' in checked.out.splitlines()
    assert '+    runs-on: ["ubuntu-26.04"] # filled in: hosted' in checked.out.splitlines()
    assert f"{PATHS[2]}: current" in checked.out.splitlines()

    assert program("runners", "workflows", "install").code == 0
    verify = (toy.queue / PATHS[0]).read_text()
    assert 'runs-on: ["ubuntu-26.04"] # filled in: hosted' in verify
    # What was said once is in the file.
    assert 'branches: ["trunk"]' in verify


def test_what_was_changed_by_hand_stays_until_force(toy: Toy, program: Program) -> None:
    assert program("runners", "workflows", "install").code == 0
    changed = toy.queue / PATHS[0]
    text = changed.read_text().replace('cron: "17 2 * * *"', 'cron: "0 5 * * 1"')
    changed.write_text(text)
    toy.put("runners.toml", RUNNERS.replace('["ubuntu-24.04"]', '["ubuntu-26.04"]'))
    others = [(toy.queue / path).read_bytes() for path in PATHS[1:]]

    checked = program("runners", "workflows", "install", "--check")
    assert checked.code == 1
    assert f"{PATHS[0]}: changed by hand" in checked.out.splitlines()
    assert '-    - cron: "0 5 * * 1"' in checked.out.splitlines()
    assert '+    - cron: "17 2 * * *"' in checked.out.splitlines()

    refused = program("runners", "workflows", "install")
    assert refused.code == 2
    assert PATHS[0] in refused.err
    assert "--force" in refused.err
    assert changed.read_text() == text
    # All or none: those that nobody touched are as they were as well.
    assert [(toy.queue / path).read_bytes() for path in PATHS[1:]] == others

    assert program("runners", "workflows", "install", "--force").code == 0
    assert program("runners", "workflows", "install", "--check").code == 0


def test_somebody_elses_workflow_of_that_name_stays(toy: Toy, program: Program) -> None:
    theirs = toy.put(PATHS[1], b"name: nightly\n# not UTF-8: \xff\n")

    assert program("runners", "workflows", "install").code == 2
    assert theirs.read_bytes() == b"name: nightly\n# not UTF-8: \xff\n"
    assert not (toy.queue / PATHS[0]).exists()
    shown = program("runners", "workflows", "install", "--check").out
    assert "-name: nightly" in shown.splitlines()


def test_without_pinned_requirements_nothing_is_written(toy: Toy, program: Program) -> None:
    (toy.queue / ".github/contribbot-requirements.txt").unlink()
    assert_refused(
        program("runners", "workflows", "install"), toy, "contribbot-requirements.txt",
        "no such file", "uv pip compile",
    )  # fmt: skip


def test_a_queue_below_the_top_of_its_repository_is_refused(toy: Toy, program: Program) -> None:
    git(toy.root, "init", "-q")
    assert_refused(program("runners", "workflows", "install"), toy, "not the top", str(toy.root))


def test_an_installed_wheel_brings_its_own_templates(
    toy: Toy, program: Program, tmp_path: Path
) -> None:
    place = tmp_path / "installed"
    # What pip does with a wheel of Python files.
    with zipfile.ZipFile(build_wheel(tmp_path / "wheel")) as wheel:
        wheel.extractall(place)
    template = place / "contribbot/workflows/rebase.yml"
    template.write_text(template.read_text() + "# of the wheel\n")

    ran = program.process("runners", "workflows", "install", PYTHONPATH=str(place))

    assert ran.code == 0, ran.err
    assert (toy.queue / PATHS[1]).read_text().endswith("# of the wheel\n")


FOLDER = Path(".github/workflows")
NAMES = ("verify.yml", "rebase.yml", "open-pr.yml", "emulate.yml")


def read(toy: Toy, name: str) -> object:
    """Return a workflow, read as GitHub does: `on` is a word."""
    return YAML(typ="safe").load(toy.queue / FOLDER / name)


def at(found: object, *keys: str) -> object:
    """Return what is in a workflow below keys."""
    for key in keys:
        assert isinstance(found, dict)
        found = found[key]
    return found


@pytest.mark.parametrize("labels", [["123"], ["self-hosted", "null", "on"]])
def test_a_label_stays_a_word(toy: Toy, program: Program, labels: list[str]) -> None:
    listed = ", ".join(f'"{each}"' for each in labels)
    toy.put("runners.toml", RUNNERS.replace('"ubuntu-24.04"', listed))

    assert program("runners", "workflows", "install").code == 0

    assert at(read(toy, "verify.yml"), "jobs", "plan", "runs-on") == labels
    assert at(read(toy, "rebase.yml"), "jobs", "look", "runs-on") == labels
    assert lint.against_schema([toy.queue / FOLDER / name for name in NAMES]) == []


@pytest.mark.parametrize("branch", ["on", "release/2.1"])
def test_a_branch_that_was_named_once_is_known_afterwards(
    toy: Toy, program: Program, branch: str
) -> None:
    assert program("runners", "workflows", "install", "--branch", branch).code == 0
    assert at(read(toy, "verify.yml"), "on", "push", "branches") == [branch]

    checked = program("runners", "workflows", "install", "--check")
    assert (checked.code, checked.out.count("current")) == (0, len(NAMES)), (
        checked.out + checked.err
    )
    assert program("runners", "workflows", "install").out.count("as it was") == len(PATHS)


@pytest.mark.parametrize("branch", ["refs/heads/main", "x*", "-x", "m]\npermissions: #"])
def test_a_branch_that_no_push_would_match_is_refused(
    toy: Toy, program: Program, branch: str
) -> None:
    ran = program("runners", "workflows", "install", f"--branch={branch}")
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert f"--branch {' '.join(branch.split())}" in ran.err
    assert not (toy.queue / FOLDER).exists()
