"""The workflows: installed, judged by real tools, and the scripts of jobs that may write, run."""

from __future__ import annotations

import json
import os
import re
import subprocess
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import pytest
from pydantic import JsonValue
from ruamel.yaml import YAML

from contribbot.runners.actions import NAMES, templates_folder
from tests.conftest import Program, dig
from tests.github.handle import GitHub
from tests.github.state import Repository, User
from tests.github.world import make_source
from tests.runners.acting import BIN, RUNNERS, build_wheel
from tests.toy import Toy, git


def zizmor(files: Sequence[Path]) -> list[str]:
    """Return what zizmor finds at its most pedantic, without asking GitHub."""
    done = subprocess.run(
        [BIN / "zizmor", "--offline", "--no-progress", "--no-config", "--persona", "pedantic",
         "--format", "json-v1", *files],
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    # 11 to 14: it looked, and found something.
    assert done.returncode in {0, 11, 12, 13, 14}, done.stderr
    return [f"{each['ident']}: {each['desc']}" for each in json.loads(done.stdout)]


def against_schema(files: Sequence[Path]) -> list[str]:
    """Return how files differ from the JSON schema of workflows."""
    done = subprocess.run(
        [BIN / "check-jsonschema", "--builtin-schema", "vendor.github-workflows",
         "--output-format", "json", *files],
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    said = json.loads(done.stdout)
    return [each["message"] for each in (*said.get("errors", ()), *said.get("parse_errors", ()))]


WORKFLOWS: Final = sorted(templates_folder().glob("*.yml"))
TOOLS: Final = (zizmor, against_schema)
#: What each tool must find, so that its silence says something.
BAD: Final = """\
name: bad
on: [pull_request_target]
jobs:
  one:
    runs-on: ubuntu-22.04
    step:
      - run: true
    steps:
      - uses: actions/checkout@v4
      - run: echo "${{ github.event.pull_request.title }}"
"""


def parsed(path: Path) -> dict[str, JsonValue]:
    """Return a workflow as plain JSON; YAML 1.2, so that `on` is a word."""
    found: dict[str, JsonValue] = json.loads(json.dumps(YAML(typ="safe").load(path)))
    return found


def table(value: JsonValue) -> dict[str, JsonValue]:
    """Return a mapping that must be one."""
    assert isinstance(value, dict)
    return value


def jobs(path: Path) -> Iterator[tuple[str, dict[str, JsonValue]]]:
    for name, job in table(parsed(path)["jobs"]).items():
        yield f"{path.stem}/{name}", table(job)


def steps(job: dict[str, JsonValue]) -> list[dict[str, JsonValue]]:
    found = job["steps"]
    assert isinstance(found, list)
    return [table(each) for each in found]


ALL_JOBS: Final = [each for path in WORKFLOWS for each in jobs(path)]
#: Jobs that run code of patches or upstreams.
RUN_CODE: Final = {
    "verify/compile", "verify/gpu", "rebase/look", "emulate/sweep",
}  # fmt: skip


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.__name__)
def test_a_tool_finds_nothing(tool: Callable[[Sequence[Path]], list[str]]) -> None:
    assert tool(WORKFLOWS) == []


@pytest.mark.parametrize(
    ("tool", "finds"),
    [
        (zizmor, "template-injection|dangerous-triggers|unpinned-uses"),
        (against_schema, "step"),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_a_tool_finds_what_is_bad(
    tool: Callable[[Sequence[Path]], list[str]], finds: str, tmp_path: Path
) -> None:
    (tmp_path / "bad.yml").write_text(BAD, encoding="utf-8")
    assert re.search(finds, "\n".join(tool([tmp_path / "bad.yml"])))


def test_what_a_job_said_is_no_command_where_there_is_a_token() -> None:
    shown = [
        (name, step)
        for name, job in ALL_JOBS
        for step in steps(job)
        if '/contribbot" runners collect' in str(step.get("run"))
    ]
    assert [name for name, _ in shown] == ["verify/collect"]
    for _, step in shown:
        script = str(step["run"])
        assert script.index("::stop-commands::$(od") < script.index('contribbot" runners collect')


def test_a_workflow_starts_with_nothing_and_not_for_strangers() -> None:
    assert [path.name for path in WORKFLOWS] == [
        "emulate.yml", "open-pr.yml", "rebase.yml", "verify.yml",
    ]  # fmt: skip
    commits = set()
    for path in WORKFLOWS:
        workflow, text = parsed(path), path.read_text()
        assert workflow["permissions"] == {}
        assert set(table(workflow["on"])) <= {"workflow_dispatch", "schedule", "push"}
        assert "concurrency" in workflow
        # Every permission says why.
        granted = re.findall(r"^ {6}[a-z-]+: (?:read|write)(.*)$", text, re.MULTILINE)
        assert granted
        assert all(re.match(r" # \w.{10,}", why) for why in granted)
        # Every action is one commit, the same everywhere, and its release is named.
        used = re.findall(r"uses: *(.*)", text)
        assert used
        assert all(
            re.fullmatch(r"actions/[a-z-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", it) for it in used
        )
        commits.update(used)
    assert len(commits) == len({each.partition("@")[0] for each in commits})


def test_only_the_main_branch_speaks_for_the_queue() -> None:
    main = "github.ref == format('refs/heads/{0}', github.event.repository.default_branch)"
    guards = {name: " ".join(str(job.get("if", "")).split()) for name, job in ALL_JOBS}
    assert guards["open-pr/open"] == main
    # A schedule's event names no repository; it runs on the main branch alone.
    assert guards["rebase/look"] == f"github.event_name == 'schedule' || {main}"


def test_what_verify_takes_and_what_a_push_ends() -> None:
    (verify,) = (parsed(path) for path in WORKFLOWS if path.stem == "verify")
    inputs = table(table(table(verify["on"])["workflow_dispatch"])["inputs"])
    assert set(inputs) == {"patches", "targets", "everything"}
    concurrency = table(verify["concurrency"])
    assert concurrency["cancel-in-progress"] == "${{ github.event_name == 'push' }}"
    # The night's ref is that of a push to main.
    assert "${{ github.event_name }}" in str(concurrency["group"])


@pytest.mark.parametrize(("name", "job"), ALL_JOBS, ids=[name for name, _ in ALL_JOBS])
def test_what_a_job_may(name: str, job: dict[str, JsonValue]) -> None:
    text, rights = json.dumps(job), table(job["permissions"])
    assert job["timeout-minutes"]
    # No cache that another could poison.
    assert "actions/cache" not in text
    for step in steps(job):
        # Nothing is interpolated into a script.
        assert "${{" not in str(step.get("run", ""))
        assert "cache" not in table(step.get("with", {}))
        if str(step.get("uses", "")).startswith("actions/checkout@"):
            assert table(step["with"])["persist-credentials"] is False
    # Who may write runs no contribbot and no checkout.
    writes = "write" in rights.values()
    assert writes is (name in {"rebase/tell", "verify/attest"})
    assert not (writes and re.search("checkout|contribbot/bin", text))
    # A job that runs code of a patch has nothing to steal: no token by any of its names.
    if name in RUN_CODE:
        assert rights in ({}, {"contents": "read"})
        assert not re.search(r"secrets|github\.token", text)
        assert "environment" not in job
    # The one secret is in one step, behind a person's approval.
    assert ("secrets." in text) is (name == "open-pr/open")
    if name == "open-pr/open":
        assert (job["environment"], job["runs-on"]) == ("contribbot-open-pr", "ubuntu-24.04")
        assert len([step for step in steps(job) if "secrets." in json.dumps(step)]) == 1


REPORT: Final = (
    b"```\r\r</pre><script>\n@everyone /merge\n~~~\n\x1b[2J\xe2\x80\xae[x](http://evil.example)\n"
    b"$(touch gone)`touch gone`\0\n::error::no\n" + b"\n" * 70_000
)


def run_step(
    workflow: str, job: str, name: str, place: Path, env: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run the script of a step as a runner does."""
    parsed = YAML(typ="safe").load(templates_folder() / workflow)
    (step,) = (each for each in parsed["jobs"][job]["steps"] if each["name"] == name)
    plain = {key: value for key, value in step["env"].items() if "${{" not in value}
    common = {"GITHUB_REPOSITORY": "example/queue", "GITHUB_RUN_ID": "7", "GITHUB_SHA": "0" * 40,
              "GITHUB_SERVER_URL": "https://example.org", "PATH": os.environ["PATH"]}  # fmt: skip
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
        cwd=place, env={**common, **plain, **env}, capture_output=True, text=True, check=False,
        timeout=120,
    )  # fmt: skip


LINE = "patch: applies, and is still needed\n"


class Teller:
    """The job that may write issues, on a machine of its own each time."""

    def __init__(self, github: GitHub, root: Path) -> None:
        self.bot: User = github.add_user("github-actions[bot]", kind="Bot")
        self.queue: Repository = github.add_repository(
            "example/queue", make_source(root / "source"), members={self.bot.login: "write"}
        )
        self.github, self.root, self.runs, self.place = github, root, 0, root

    def __call__(
        self, report: str | bytes | Path, token: str = ""
    ) -> subprocess.CompletedProcess[str]:
        self.runs += 1
        self.place = self.root / f"runner-{self.runs}"
        file = self.place / "report/report.txt"
        file.parent.mkdir(parents=True)
        if isinstance(report, Path):
            file.symlink_to(report)
        else:
            file.write_bytes(report.encode() if isinstance(report, str) else report)
        token = token or self.bot.tokens[0].text
        env = {"GITHUB_TOKEN": token, "GITHUB_API_URL": self.github.base}
        return run_step("rebase.yml", "tell", "Open or update the issue", self.place, env)

    def bodies(self) -> list[str]:
        return [each.body or "" for each in self.queue.issues.values()]


@pytest.fixture
def tell(github: GitHub, tmp_path: Path) -> Teller:
    return Teller(github, tmp_path)


@pytest.mark.tool("curl", "jq")
def test_a_link_does_not_read_the_machine(tell: Teller) -> None:
    token = tell.bot.tokens[0].text
    ran = tell(Path("/proc/self/environ"))
    assert token not in "".join(tell.bodies())
    assert (ran.returncode, tell.bodies()) == (1, [])
    assert "no plain file" in ran.stdout


@pytest.mark.tool("curl", "jq")
def test_a_hostile_report_stays_text(tell: Teller) -> None:
    done = tell(REPORT)
    assert done.returncode == 0, done.stdout + done.stderr
    (body,) = tell.bodies()
    assert len(body) < 65536
    # What GitHub makes of it: the first line, one block of code, the last line.
    head, _, rest = body.partition("\n\n")
    block, _, tail = rest.rpartition("\n\n")
    assert "@" not in head + tail
    assert all(re.fullmatch(r" {4}[ -~]*| {0,4}", line) for line in block.split("\n"))
    assert "    @everyone /merge" in block.split("\n")
    assert sorted(each.name for each in tell.place.iterdir()) == [
        "body.md", "issue.json", "open.json", "report", "told.txt",
    ]  # fmt: skip
    # A refusal of GitHub's fails the job.
    done = tell(LINE, "ghp_nobody")
    assert (done.returncode, done.stdout) == (22, "")
    assert "401" in done.stderr
    assert "ghp_nobody" not in done.stderr


@pytest.mark.tool("curl", "jq")
def test_one_issue_which_says_where_it_was_cut(tell: Teller) -> None:
    cut = "This is its beginning; the artifact contribbot-rebase has all of it."
    for report, whole in ((LINE * 3000, False), (LINE, True), (LINE * 3000, False)):
        assert tell(report).returncode == 0
        (body,) = tell.bodies()
        assert (cut in body.splitlines()) is not whole
        assert len(body) < 65536
    # One, whatever people do with its labels.
    (issue,) = tell.queue.issues.values()
    assert issue.labels
    with tell.github.lock:
        issue.labels = []
    assert tell(LINE * 2).returncode == 0
    (body,) = tell.bodies()
    assert body.count("    patch: applies") == 2
    assert "beginning" not in body


PINNED = f"contribbot==0.1.0 \\\n    --hash=sha256:{'a' * 64}\n"
PATHS = tuple(f".github/workflows/{name}" for name in NAMES)
INSTALL = ("runners", "workflows", "install")


@pytest.fixture
def toy(toy: Toy) -> Toy:
    toy.put("runners.toml", RUNNERS)
    toy.put(".github/contribbot-requirements.txt", PINNED)
    return toy


def test_workflows_are_written_and_stay_as_they_are_then(toy: Toy, program: Program) -> None:
    first = program.ok(*INSTALL)
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
    program.ok(*INSTALL)
    files = [toy.queue / path for path in PATHS]
    # A label stays a word, for whoever reads it as YAML.
    assert YAML(typ="safe").load(files[0])["jobs"]["plan"]["runs-on"] == labels
    assert zizmor(files) == []
    assert against_schema(files) == []


def test_the_branch_stays_and_what_is_not_committed_is_not_written_over(
    toy: Toy, program: Program
) -> None:
    program.ok(*INSTALL)
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
