"""`contribbot runners workflows install`: what it writes, what it leaves alone, what it refuses."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from contribbot.runners.actions import NAMES, templates_folder
from tests.conftest import Program, dig
from tests.runners import lint
from tests.runners.acting import RUNNERS, build_wheel
from tests.toy import Toy, git

PINNED = f"contribbot==0.1.0 \\\n    --hash=sha256:{'a' * 64}\n"
PATHS = tuple(f".github/workflows/{name}" for name in NAMES)
INSTALL = ("runners", "workflows", "install")


@pytest.fixture(autouse=True)
def _described(toy: Toy) -> None:
    toy.put("runners.toml", RUNNERS)
    toy.put(".github/contribbot-requirements.txt", PINNED)


def test_workflows_are_written_and_stay_as_they_are_then(toy: Toy, program: Program) -> None:
    first = program(*INSTALL)
    assert first.code == 0, first.err
    assert first.out.splitlines() == [f"{path}: written" for path in PATHS]
    for path in PATHS:
        assert (toy.queue / path).read_text() == (templates_folder() / Path(path).name).read_text()
    again = program(*INSTALL, "--json").json()
    assert [dig(again, "workflows", at, "changed") for at in range(len(PATHS))] == [False] * 4


@pytest.mark.parametrize("labels", [["build", "big-1"], ["123"], ["self-hosted", "null", "on"]])
def test_what_is_installed_passes_the_same_tools(
    toy: Toy, program: Program, labels: list[str]
) -> None:
    toy.put("runners.toml", RUNNERS.replace('["ubuntu-24.04"]', json.dumps(labels)))
    assert program(*INSTALL).code == 0
    files = [toy.queue / path for path in PATHS]
    # A label stays a word, for whoever reads it as YAML.
    assert YAML(typ="safe").load(files[0])["jobs"]["plan"]["runs-on"] == labels
    assert lint.zizmor(files) == []
    assert lint.against_schema(files) == []


def test_the_branch_stays_and_what_is_not_committed_is_not_written_over(
    toy: Toy, program: Program
) -> None:
    assert program(*INSTALL).code == 0
    verify = toy.queue / PATHS[0]
    verify.write_text(verify.read_text().replace('["main"] # filled', '["release/2.1"] # filled'))
    git(toy.queue, "init", "-q")
    toy.put("runners.toml", RUNNERS.replace('["ubuntu-24.04"]', '["ubuntu-26.04"]'))
    refused = program(*INSTALL)
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert "not committed, and would be lost; commit them" in refused.err
    assert "ubuntu-24.04" in verify.read_text()
    git(toy.queue, "add", "-A")
    git(toy.queue, "commit", "-q", "-m", "Workflows")
    rows = program(*INSTALL).out.splitlines()
    assert rows.count(f"{PATHS[2]}: as it was") == 1
    assert f"{PATHS[0]}: written" in rows
    assert 'runs-on: ["ubuntu-26.04"] # filled in: hosted' in verify.read_text()
    assert 'branches: ["release/2.1"]' in verify.read_text()


@pytest.mark.parametrize(
    ("pinned", "words"), [(False, "requirements.txt: no such file"), (True, "not the top")]
)
def test_a_refusal_writes_nothing(toy: Toy, program: Program, *, pinned: bool, words: str) -> None:
    if pinned:
        git(toy.root, "init", "-q")
    else:
        (toy.queue / ".github/contribbot-requirements.txt").unlink()
    ran = program(*INSTALL)
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert words in ran.err
    assert not (toy.queue / ".github/workflows").exists()


def test_an_installed_wheel_brings_its_own_templates(
    toy: Toy, program: Program, tmp_path: Path
) -> None:
    place = tmp_path / "installed"
    # What pip does with a wheel of Python files.
    with zipfile.ZipFile(build_wheel(tmp_path / "wheel")) as wheel:
        wheel.extractall(place)
    template = place / "contribbot/workflows/rebase.yml"
    template.write_text(template.read_text() + "# of the wheel\n")
    ran = program.process(*INSTALL, PYTHONPATH=str(place))
    assert ran.code == 0, ran.err
    assert (toy.queue / PATHS[1]).read_text().endswith("# of the wheel\n")
