"""`contribbot runners workflows install`: what it writes, what it leaves alone, what it refuses."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from contribbot.runners.workflows import sealed, templates_folder
from tests.conftest import Program, Ran, dig
from tests.runners import lint
from tests.runners.acting import RUNNERS, build_wheel
from tests.tools import kinds
from tests.toy import Toy, git

ROOT = Path(__file__).parents[2]
VERSION = importlib.metadata.version("contribbot")
PINNED = f"contribbot==0.1.0 \\\n    --hash=sha256:{'a' * 64}\n"
#: Where pip looks for its configuration, before a test takes HOME away.
HOME = os.environ["HOME"]
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
    toy.put("runners.toml", RUNNERS.replace('["ubuntu-24.04"]', '["build", "big-1"]\ncount = 7'))
    assert program("runners", "workflows", "install", "--branch", "on").code == 0

    files = [toy.queue / path for path in PATHS]
    verify = files[0].read_text()
    assert "runs-on: [build, big-1] # filled in: hosted" in verify
    assert "max-parallel: 7 # filled in: count" in verify
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
    assert "-    runs-on: ubuntu-24.04 # filled in: hosted" in checked.out.splitlines()
    assert "+    runs-on: ubuntu-26.04 # filled in: hosted" in checked.out.splitlines()
    assert f"{PATHS[2]}: current" in checked.out.splitlines()

    assert program("runners", "workflows", "install").code == 0
    verify = (toy.queue / PATHS[0]).read_text()
    assert "runs-on: ubuntu-26.04 # filled in: hosted" in verify
    # What was said once is in the file.
    assert "branches: [trunk]" in verify


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


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "no such file"),
        ("contribbot==0.1.0\n", ":1: no --hash"),
        (f"# ours\n\n{PINNED}numpy==2.0.0\n", ":5: no --hash"),
        (f"contribbot>=0.1 --hash=sha256:{'a' * 64}\n", ":1: not one package"),
        (f"contribbot==0.* --hash=sha256:{'a' * 64}\n", ":1: not one package"),
        (f"--index-url https://example.com/simple\n{PINNED}", ":1: not one package"),
        (f"contribbot==1 --hash=md5:{'a' * 32}\n", ":1: no --hash"),
        (f"numpy==2.0.0 --hash=sha256:{'a' * 64}\n", "contribbot is not in it"),
        ("", "contribbot is not in it"),
    ],
)
def test_a_requirement_that_could_become_another_is_refused(
    toy: Toy, program: Program, text: str | None, says: str
) -> None:
    path = toy.queue / ".github/contribbot-requirements.txt"
    path.unlink()
    if text is not None:
        path.write_text(text)
    assert_refused(
        program("runners", "workflows", "install"), toy, "contribbot-requirements.txt", says
    )


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


@pytest.mark.slow
def test_pin_writes_what_pip_takes_and_nothing_else(toy: Toy, program: Program) -> None:
    wheel = f"https://example.com/contribbot-0.1.0-py3-none-any.whl#sha256={'a' * 64}"
    path = toy.queue / ".github/contribbot-requirements.txt"

    ran = program("runners", "workflows", "pin", "--contribbot", wheel, HOME=HOME)

    assert ran.code == 0, ran.err
    said = r"requirements\.txt: \d+ packages; left to the runner's image: pip, torch, triton"
    assert re.search(said, ran.out)
    text = path.read_text()
    assert f"contribbot @ {wheel.partition('#')[0]} \\\n    --hash=sha256:{'a' * 64}\n" in text
    rows = dict(re.findall(r"^([a-z0-9.-]+)==(\S+)", text, re.MULTILINE))
    assert rows["pydantic-core"] == importlib.metadata.version("pydantic-core")
    assert not {"torch", "triton", "pip", "mypy", "sympy"} & set(rows)
    # PyGithub asks for PyJWT with its extra `crypto`.
    assert rows["cryptography"] == importlib.metadata.version("cryptography")
    assert program("runners", "workflows", "install").code == 0

    # pip takes the smallest of them with these very digests, and with no other.
    found = re.search(r"^iniconfig==(?:.*\\\n)*.*\n", text, re.MULTILINE)
    assert found is not None
    for row, code in ((found[0], 0), (re.sub(r"sha256:\w{60}", "sha256:" + "0" * 60, found[0]), 1)):
        path.write_text(row)
        done = subprocess.run(
            [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed",
             "--no-cache-dir", "--no-deps", "--only-binary", ":all:", "--require-hashes",
             "-r", path],
            env={**os.environ, "HOME": HOME}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == code, done.stderr


@pytest.mark.slow
def test_pin_from_a_checkout_puts_a_wheel_beside_the_workflows(
    toy: Toy, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("contribbot.runners.workflows.digests", lambda *_: ["a" * 64])
    monkeypatch.setattr("contribbot.runners.workflows._installed_from", lambda: ROOT)
    wheel = f".github/contribbot-{VERSION}-py3-none-any.whl"
    old = "contribbot-0.0.1-py3-none-any.whl"
    toy.put(f".github/{old}", "an older one")
    path = toy.put(
        ".github/contribbot-requirements.txt", f"./.github/{old} --hash=sha256:{'0' * 64}\n"
    )

    # Without isolation: what builds it is installed here, and no index is asked.
    ran = program(
        "runners", "workflows", "pin", PIP_NO_BUILD_ISOLATION="0", PIP_NO_INDEX="1", HOME=HOME
    )

    assert ran.code == 0, ran.err
    assert f"{wheel}: contribbot as it is installed here; commit it, too\n" in ran.out
    assert not (toy.queue / ".github" / old).exists()
    text = path.read_text()
    digest = hashlib.sha256((toy.queue / wheel).read_bytes()).hexdigest()
    row = f"./{wheel} \\\n    --hash=sha256:{digest}\n"
    assert row in text
    assert "contribbot==" not in text
    assert program("runners", "workflows", "install").code == 0
    # As a job does it: at the top of the queue.
    path.write_text(row)
    done = subprocess.run(
        [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--no-deps",
         "--only-binary", ":all:", "--require-hashes", "-r", path],
        cwd=toy.queue, env={**os.environ, "HOME": HOME}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert f"Would install contribbot-{VERSION}" in done.stdout, done.stderr

    (toy.queue / wheel).write_bytes(b"another")
    assert "not the wheel that" in program("runners", "workflows", "install").err
    (toy.queue / wheel).unlink()
    assert "no such file, and runners install it" in program("runners", "workflows", "install").err


def test_pin_from_a_folder_that_makes_no_wheel(
    toy: Toy, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("contribbot.runners.workflows.digests", lambda *_: ["a" * 64])
    monkeypatch.setattr("contribbot.runners.workflows._installed_from", lambda: toy.root)
    ran = program("runners", "workflows", "pin", PIP_NO_INDEX="1", HOME=HOME)
    assert_refused(ran, toy, "no wheel can be made of it", "name a wheel with --contribbot", code=3)


@pytest.mark.parametrize(
    "url",
    [
        "http://example.com/c.whl",
        "https://example.com/c.whl",
        "c.whl#sha256=0",
        "--all",
        f"https://[example.com/c.whl#sha256={'a' * 64}",
    ],
)
def test_pin_takes_contribbot_from_nowhere_without_a_digest(
    toy: Toy, program: Program, url: str
) -> None:
    assert_refused(
        program("runners", "workflows", "pin", f"--contribbot={url}"), toy, "--contribbot", url
    )
    assert (toy.queue / ".github/contribbot-requirements.txt").read_text() == PINNED


@pytest.mark.parametrize(
    ("place", "says"),
    [
        ("example.com/other-1.0-py3-none-any.whl", "its name says that it is other"),
        ("example.com/newest.whl", "newest.whl is no name of a wheel"),
        ("me:secret@example.com/contribbot-0.1.0-py3-none-any.whl", "a password in the address"),
        ("token@example.com/contribbot-0.1.0-py3-none-any.whl", "a password in the address"),
    ],
)
def test_pin_writes_no_wheel_that_pip_refuses_and_no_password(
    toy: Toy, program: Program, place: str, says: str
) -> None:
    url = f"--contribbot=https://{place}#sha256={'a' * 64}"
    ran = program("runners", "workflows", "pin", url, HOME=HOME)
    assert_refused(ran, toy, "--contribbot", says)
    assert "secret" not in ran.err
    assert "token" not in ran.err
    assert (toy.queue / ".github/contribbot-requirements.txt").read_text() == PINNED


def test_what_no_index_has_cannot_be_pinned(toy: Toy, program: Program) -> None:
    ran = program(
        "runners",
        "workflows",
        "pin",
        PIP_NO_INDEX="1",
        PIP_FIND_LINKS="",
        PIP_CONFIG_FILE=os.devnull,
    )
    assert_refused(ran, toy, "no place announces the digest", code=3)
    assert (toy.queue / ".github/contribbot-requirements.txt").read_text() == PINNED


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


@pytest.mark.parametrize(
    "labels",
    kinds([["123"], ["true"], ["self-hosted", "null", "1e3"], ["0x1F"], ["2026-01-01"],
           ["big.1_x"], ["on", "y"]], lambda labels: labels[0] in {"123", "on"}),
)  # fmt: skip
def test_a_label_stays_a_word(toy: Toy, program: Program, labels: list[str]) -> None:
    listed = ", ".join(f'"{each}"' for each in labels)
    toy.put("runners.toml", RUNNERS.replace('"ubuntu-24.04"', listed))

    assert program("runners", "workflows", "install").code == 0

    wanted = labels[0] if len(labels) == 1 else labels
    assert at(read(toy, "verify.yml"), "jobs", "plan", "runs-on") == wanted
    assert at(read(toy, "rebase.yml"), "jobs", "look", "runs-on") == wanted
    assert lint.against_schema([toy.queue / FOLDER / name for name in NAMES]) == []


@pytest.mark.parametrize("branch", ["production", "on", "1.10", "release/2.1", "v1_x", "null"])
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


@pytest.mark.parametrize(
    "branch", ["a..b", "x/", "refs/heads/main", "x*", "-x", "!x", "ü", "x.", "m]\npermissions: #"]
)
def test_a_branch_that_no_push_would_match_is_refused(
    toy: Toy, program: Program, branch: str
) -> None:
    ran = program("runners", "workflows", "install", f"--branch={branch}")
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert f"--branch {' '.join(branch.split())}" in ran.err
    assert not (toy.queue / FOLDER).exists()


@pytest.mark.parametrize("change", [lambda text: text.replace("\n", "\r\n"), str.rstrip])
def test_other_line_ends_are_said(toy: Toy, program: Program, change: object) -> None:
    assert callable(change)
    assert program("runners", "workflows", "install").code == 0
    place = toy.queue / FOLDER / "verify.yml"
    place.write_bytes(change(place.read_text()).encode())

    checked = program("runners", "workflows", "install", "--check")

    assert (checked.code, len(checked.out.splitlines())) == (1, len(NAMES) + 1)
    assert "line ends" in checked.out


@pytest.mark.parametrize("linked", [".github", ".github/workflows", ".github/workflows/rebase.yml"])
def test_nothing_goes_through_a_link_or_over_a_file(
    toy: Toy, program: Program, linked: str
) -> None:
    assert program("runners", "workflows", "install").code == 0
    place, aside = toy.queue / linked, toy.queue / "aside"
    place.rename(aside)
    place.symlink_to(aside)
    before = {path: path.read_bytes() for path in aside.rglob("*") if path.is_file()}
    toy.put("runners.toml", RUNNERS.replace("ubuntu-24.04", "ubuntu-26.04"))

    for what in ("a link", "a file, where a folder belongs"):
        for args in ((), ("--check",), ("--force",)):
            ran = program("runners", "workflows", "install", *args)
            assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
            assert f"{place}: {what}" in ran.err
        if linked.endswith(".yml"):
            break
        place.unlink()
        place.write_text("mine\n")
    assert {path: path.read_bytes() for path in before} == before
