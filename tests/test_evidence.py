"""Evidence: what a record holds, and how stale, tampered and foreign ones are told apart."""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import socket
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import jsonschema
import pytest
from pydantic import JsonValue

from contribbot.machine import installed_digest, owners
from contribbot.model.evidence import RAN, Outcome, seal_of
from contribbot.model.record import BenchDetails
from contribbot.queue.load import Queue, load_queue
from contribbot.verify.evidence import Record, State, judge_record
from tests.buildtoy import with_sources
from tests.conftest import Program, dig
from tests.contribute.tracked import tracked_queue
from tests.sources.conftest import record_hash
from tests.test_verify import put
from tests.toy import AREA, FAIL_TO_PASS, FIXED, Toy, git

pytestmark = pytest.mark.usefixtures("outcome_cache")
SCHEMA = Path(__file__).parent.parent / "contribbot/schemas/evidence-v2.json"


def install(site: Path, name: str, version: str, files: dict[str, bytes]) -> None:
    """Install a release of a distribution in place of another."""
    for info in site.glob(f"{name}-*.dist-info"):
        shutil.rmtree(info)
    info = site / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    for path, content in files.items():
        (site / path).parent.mkdir(exist_ok=True)
        (site / path).write_bytes(content)
    rows = (f"{path},{record_hash(content)},9\n" for path, content in files.items())
    (info / "RECORD").write_text("".join(rows))
    (info / "METADATA").write_text(f"Name: {name}\nVersion: {version}\n")
    importlib.invalidate_caches()


@pytest.fixture
def record(toy: Toy, program: Program) -> Path:
    toy.put_area()
    program.ok("verify", "area")
    (path,) = (toy.queue / "evidence/area").glob("*.json")
    return path


def check(program: Program) -> tuple[int, str, str]:
    """Return exit code, and state and reason of the first record."""
    ran = program("evidence", "check")
    state, _, rest = ran.out.splitlines()[0].partition(" ")
    return ran.code, state, rest


def test_a_record_is_a_valid_statement(record: Path, toy: Toy) -> None:
    document = json.loads(record.read_text())
    schema = json.loads(SCHEMA.read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(document, schema)

    assert document["_type"] == "https://in-toto.io/Statement/v1"
    assert document["predicateType"] == "https://in-toto.io/attestation/test-result/v0.1"
    predicate = document["predicate"]
    assert predicate["result"] == "PASSED"
    assert predicate["passedTests"] == [
        "source@any", "apply@any", "style@any", "reproduce/red@cpu", "reproduce/same@cpu",
    ]  # fmt: skip
    details = predicate["contribbot"]
    assert details["command"] == "contribbot verify area"
    assert details["base_commit"] == toy.commit
    assert details["machine"]["packages"]["pytest"]
    (patched,) = (kept["details"] for kept in details["stages"] if kept["stage"] == "apply")
    assert document["subject"][1]["digest"] == {"gitTree": patched["trees"]["patched_tree"]}


def test_a_fresh_record(record: Path, program: Program) -> None:
    assert check(program)[:2] == (0, "fresh")
    shown = program("evidence", "show", "area").out
    assert "fresh (proved on " in shown
    assert "again    contribbot verify area" in shown
    assert not {"  run", "  in "} & {row[:5] for row in shown.splitlines()}
    document = program("evidence", "show", "area", "--json").json()
    assert document["missing"] == []
    # Prose is no part of what was proved.
    path = record.parents[2] / "patches/area/patch.toml"
    path.write_text(path.read_text().replace("Areas are sums.", "Areas were sums."))
    assert check(program)[:2] == (0, "fresh")


def test_a_moved_tag_makes_a_record_stale(area: Toy, program: Program) -> None:
    path = area.queue / "patches/queue.toml"
    path.write_text(path.read_text().replace(f'commit = "{area.commit}"\n', ""))
    program.ok("verify", "area")
    assert check(program)[:2] == (0, "fresh")
    moved = area.change({}, "Another 1.0")
    git(area.upstream, "tag", "-f", "v1.0")
    code, state, rest = check(program)
    assert (code, state) == (1, "stale")
    assert f"toy v1.0 is commit {moved[:12]} now" in rest
    assert rest.partition(": ")[2] in program("body", "area").err
    # Offline, what the store knows stands.
    area.upstream.rename(area.root / "gone")
    assert check(program)[:2] == (0, "fresh")


def test_a_record_is_fresh_beside_another_build_of_the_same_wheel(
    toy: Toy, program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_sources(toy, {"toy/area.py": AREA})
    toy.put_patch(patch=toy.format_patch({"toy/area.py": FIXED}), files=("toy/area.py",))
    toy.put("upstreams/toy.toml", 'name = "toy"\nrepository = "example/toy"\n')
    toy.put_queue(["area"])
    queue = toy.queue / "patches/queue.toml"
    queue.write_text(queue.read_text().partition("commit =")[0] + (
        '[[pins.sources]]\nkind = "installed"\ndistribution = "toy-dist"\nversion = "1.0"\n'
        'packages = ["toy"]\n'
    ))  # fmt: skip
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    for build in ("cpu", "cu130"):
        install(tmp_path / "site", "toy_dist", f"1.0+{build}", {
            "toy/__init__.py": b"", "toy/area.py": AREA.encode(), "toy/version.py": build.encode(),
        })  # fmt: skip
        where = () if build == "cpu" else ("--evidence", str(tmp_path / "elsewhere"))
        program.ok("verify", "area", *where)
        assert check(program)[:2] == (0, "fresh")


def test_an_edited_editable_install_and_path_are_in_the_key_of_outcomes(tmp_path: Path) -> None:
    site, editable, path = (tmp_path / name for name in ("site", "editable", "path"))
    info = site / "toolbox-1.0.dist-info"
    for folder in (info, editable, path / "deep"):
        folder.mkdir(parents=True)
    told = {"url": editable.as_uri(), "dir_info": {"editable": True}}
    (info / "direct_url.json").write_text(json.dumps(told))
    digests = []
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(site))
        patch.setenv("PYTHONPATH", str(path))
        latin = Path(os.fsdecode(os.fsencode(path) + b"/deep/caf\xe9.py"))
        for file in (None, editable / "tool.py", latin, path / "deep/notes.txt"):
            if file:
                file.write_text("x = 1\n")
            installed_digest.cache_clear()
            digests.append(installed_digest())
        installed_digest.cache_clear()
    assert len(set(digests)) == 3
    assert digests[2] == digests[3]


#: Imports a package, and looks for another in vain.
IMPORTS = """\
import toolbox
try:
    import maybe
except ImportError:
    pass
{more}
"""


@pytest.mark.parametrize("more", ["", "import os, sys; os.spawnl(0, sys.executable, 'x', '-V')"])
def test_what_is_remembered_depends_on_the_packages_that_a_check_imports(
    toy: Toy, program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: str
) -> None:
    site, all_of_them = tmp_path / "site", bool(more)
    text = IMPORTS.format(more=more) + FAIL_TO_PASS
    put(toy, text)
    install(site, "toolbox", "1.0", {"toolbox.py": b""})
    monkeypatch.syspath_prepend(str(site))
    for package, version, cached in (
        ("toolbox", "1.0", False),
        ("other", "1.0", not all_of_them),
        ("toolbox", "1.1", False),
        ("maybe", "1.0", False),
    ):
        install(site, package, version, {f"{package}.py": b""})
        owners.cache_clear()
        installed_digest.cache_clear()
        ran = program.ok("verify", "area", "--json")
        assert ran.stages()["reproduce red"].cached is cached
    owners.cache_clear()
    installed_digest.cache_clear()


def test_a_queue_without_records_says_so(toy: Toy, program: Program) -> None:
    toy.put_queue([])
    ran = program("evidence", "check")
    assert (ran.code, ran.out) == (0, "no records\n")
    document = program("evidence", "check", "--json").json()
    assert (document["records"], document["missing"]) == ([], [])
    toy.put_area()
    ran = program("evidence", "check")
    assert (ran.code, ran.out) == (1, "missing  area: no fresh record\n")
    assert "no record; make one with" in program("evidence", "show", "area").out


def test_a_record_names_no_folder_of_this_machine_nor_its_host(toy: Toy, program: Program) -> None:
    telling = (
        "import os, sys, pathlib\nfrom toy.area import rectangle\n\n\ndef test_it():\n"
        "    tree, home = os.environ['CONTRIBBOT_TREE'], pathlib.Path.home()\n"
        "    where = [tree, sys.prefix, os.getcwd(), home]\n"
        "    assert rectangle(2, 3) == 6, f'red at {where}'\n"
    )
    put(toy, telling, reason="red at")
    program.ok("verify", "area")
    (path,) = (toy.queue / "evidence/area").glob("*.json")
    text = path.read_text().replace(toy.upstream.as_uri(), "")
    assert "red at ['<tree>', '<python>'" in text
    own = (str(toy.root.parent), sys.prefix, str(Path(__file__).parents[1]), socket.gethostname())
    assert [name for name in own if name in text] == []


DESCRIBED = "the pin or the upstream's description has changed since"


def replaced(path: str, old: str, new: str) -> Callable[[Toy], object]:
    return lambda toy: toy.put(path, (toy.queue / path).read_text().replace(old, new))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (replaced("patches/area/checks/test_red.py", "== 4", "== 4  # more"),
         "the checks have changed since"),
        (replaced("patches/area/0001-change.patch", "Adding", "Putting"),
         "the patch has changed since"),
        (lambda toy: toy.put_queue(["area"], commit="2" * 40), DESCRIBED),
        (lambda toy: toy.put("upstreams/toy.toml", toy.upstream_toml("sign_off = true")),
         DESCRIBED),
    ],
    ids=["checks", "patch", "pin", "upstream"],
)  # fmt: skip
def test_a_stale_record(
    record: Path, toy: Toy, program: Program, change: Callable[[Toy], object], said: str
) -> None:
    change(toy)
    ran = program("evidence", "check")
    assert ran.code == 1
    assert ran.out.splitlines() == [
        f"stale    {record.relative_to(toy.queue)}: {said}",
        "missing  area: no fresh record",
    ]


Json = dict[str, JsonValue]
Stages = dict[str, Json]
#: Where (an outcome, the record's OWN part, or what in-toto reads: OUTER), a path, another value.
Edit = tuple[str, str, JsonValue]
OWN, OUTER = "own", "outer"


def at(value: JsonValue, *path: str | int) -> Json:
    found = dig(value, *path)
    assert isinstance(found, dict)
    return found


def forged(content: bytes, *edits: Edit) -> bytes:
    document: Json = json.loads(content)
    kept = dig(document, "predicate", "contribbot", "stages")
    assert isinstance(kept, list)
    places: Stages = {OUTER: document, OWN: at(document, "predicate", "contribbot")}
    for result in kept:
        assert isinstance(result, dict)
        label = result["label"] or result["target"]
        places[f"{result['stage']} {label}"] = result
    for where, path, value in edits:
        *keys, last = (int(key) if key.isdecimal() else key for key in path.split("."))
        at(places[where], *keys)[str(last)] = value
    document["contribbot_seal"] = seal_of(document)
    return json.dumps(document).encode()


OTHER = "0" * 40
RED, SAME = "reproduce red", "reproduce same"
SOURCE, APPLY, STYLE = "source any", "apply any", "style any"
GPU: JsonValue = {"vendor": "amd", "target": "gfx942", "name": "MI300X", "driver": "6.12"}
#: What is forged in a record of the toy's proof, and sealed again.
FORGERIES: dict[str, list[Edit]] = {
    "another verdict": [(OWN, "verdict", "refuted")],
    "an open target": [(OWN, "open", ["gfx942"])],
    "another result": [(OUTER, "predicate.result", "FAILED")],
    "another passed test": [(OUTER, "predicate.passedTests", ["reproduce/x@gfx942"])],
    "a failed test": [(OUTER, "predicate.failedTests", ["reproduce/x@cpu"])],
    "a warned test": [(OUTER, "predicate.warnedTests", ["reproduce/x@cpu"])],
    "no configuration": [(OUTER, "predicate.configuration", [])],
    "another commit": [(OUTER, "predicate.configuration.0.digest.gitCommit", OTHER)],
    "another subject's name": [(OUTER, "subject.0.name", "patches/other")],
    "another subject": [(OUTER, "subject.0.digest.sha256", "0" * 64)],
    "another tree": [(OUTER, "subject.1.digest.gitTree", OTHER)],
    "a key of its own": [(OWN, "extra", 1)],
    "it ended before it began": [(OWN, "finished", "2020-01-01T00:00:00Z")],
    "it began earlier": [(OWN, "started", "2020-01-01T00:00:00Z")],
    "another command": [(OWN, "command", "contribbot verify --all")],
    "another base": [(OWN, "base_commit", OTHER)],
    "seen before it began": [(RED, "seen", "2020-01-01T00:00:00+00:00")],
    "seen in the future": [
        (SAME, "seen", "2071-01-01T00:00:00+00:00"),
        (OWN, "finished", "2071-01-01T00:00:00Z"),
    ],
    "seen in no time zone": [(RED, "seen", "2026-01-01T00:00:00")],
    "seconds below zero": [(RED, "seconds", -1.0)],
    "endless seconds": [(RED, "seconds", 1e400)],
    "a target that is not stated": [(SAME, "target", "any")],
    "a GPU that nobody stated": [(SAME, "target", "gfx942"), (OWN, "machine.gpus", [GPU])],
    "a check that the patch does not state": [(SAME, "label", "more")],
    "a check twice": [(SAME, "label", "red"), (SAME, "reason", "red: 1 test")],
    "a stage skipped though nothing was in its way": [
        (STYLE, "outcome", "skipped"), (STYLE, "details", {})
    ],
    "a stage skipped and passed": [(STYLE, "outcome", "skipped")],
    "an incomplete check in a proof": [(RED, "outcome", "unavailable")],
    "applied on another tree": [(APPLY, "details.trees.base_tree", OTHER)],
    "a patched tree that is the base": [
        (APPLY, "details.trees.base_tree", OTHER), (APPLY, "details.trees.patched_tree", OTHER),
        (SOURCE, "details.tree", OTHER),
    ],
    "nothing that came back in a proof": [(RED, "details.proof", False)],
    "no facts": [(RED, "details", {"expect": "fail-to-pass"})],
}  # fmt: skip


@pytest.fixture(scope="module")
def proved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    toy = Toy(tmp_path_factory.mktemp("proved"))
    toy.put_area()
    assert Program(toy.queue)("verify", "area").code == 0
    return next((toy.queue / "evidence/area").glob("*.json"))


def judged(path: Path, content: bytes, queue: Queue) -> Record:
    before = path.read_bytes()
    path.write_bytes(content)
    try:
        return judge_record(queue, path)
    finally:
        path.write_bytes(before)


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forged_record_is_tampered(proved: Path, name: str) -> None:
    queue, content = load_queue(proved.parents[2]), proved.read_bytes()
    assert judged(proved, forged(content), queue).state is State.FRESH
    # A GPU more is another machine, whose record has another name.
    state = judged(proved, forged(content, *FORGERIES[name]), queue).state
    assert state in {State.TAMPERED, State.FOREIGN}


OLDER: Edit = (OWN, "tool_sha256", "0" * 64)
AHEAD = (
    r"^dated in the future, \S+\+00:00: see to this clock and the one that it was made by, then "
    r"contribbot verify --force area$"
)


def made_ahead(seconds: int) -> list[Edit]:
    """Return the edits of a record that is dated so many seconds in the future."""
    when = datetime.now(UTC) + timedelta(seconds=seconds)
    return [(SAME, "seen", f"{when:%Y-%m-%dT%H:%M:%S}+00:00"),
            (OWN, "finished", f"{when:%Y-%m-%dT%H:%M:%SZ}")]  # fmt: skip


@pytest.mark.parametrize(
    ("edits", "state", "why"),
    [
        ([OLDER], State.FRESH, ""),
        ([OLDER, (OUTER, "predicate.passedTests", ["reproduce/red@gfx942"])], State.TAMPERED, ""),
        ([OLDER, (RED, "details.proof", False)], State.STALE, "^another contribbot made it"),
        # A number of seconds by which the record is ahead.
        (60, State.FRESH, ""),
        (3600, State.TAMPERED, AHEAD),
        ([(OWN, "type", "contribbot/evidence/v1"), (RED, "details", {"x": 1})], State.STALE,
         "make it anew: contribbot verify area"),
    ],
    ids=["older", "older, forged", "older, judged otherwise", "minute", "hour", "older schema"],
)  # fmt: skip
def test_a_record_of_another_release_or_time(
    proved: Path, edits: list[Edit] | int, state: State, why: str
) -> None:
    edits = made_ahead(edits) if isinstance(edits, int) else edits
    queue, content = load_queue(proved.parents[2]), forged(proved.read_bytes(), *edits)
    record = judged(proved, content, queue)
    assert (record.state, bool(re.search(why, record.why))) == (state, True), record.why
    # Content that does not match its seal is tampered, whatever else is true of the record.
    unsealed = judged(proved, content.replace(b"Linux", b"Minix"), queue)
    assert unsealed.state is State.TAMPERED
    assert why.startswith("make it") or "its content does not match its seal" in unsealed.why


@pytest.mark.parametrize("content", ["{", "[" * 100_000, "9" * 5000, '{"a": "\\ud800"}', None])
def test_a_record_that_cannot_be_read(record: Path, program: Program, content: str | None) -> None:
    if content is not None:
        record.write_text(content)
        assert check(program)[:2] == (1, "tampered")
        return
    record.unlink()
    os.mkfifo(record)
    code, state, rest = check(program)
    assert (code, state) == (1, "foreign")
    assert "not a file" in rest


def test_foreign_records(record: Path, toy: Toy, program: Program) -> None:
    other = toy.queue / "evidence/volume/x.json"
    other.parent.mkdir()
    record.rename(other)
    code, state, rest = check(program)
    assert (code, state) == (1, "foreign")
    assert f"its place is area/{record.name}" in rest
    toy.put_patch("volume")
    toy.put_queue(["volume"])
    (toy.queue / "patches/area/patch.toml").unlink()
    assert "about area, which is no patch of this queue" in check(program)[2]
    other.write_text(json.dumps({"_type": "https://in-toto.io/Statement/v1", "predicate": {}}))
    assert check(program)[1:] == (
        "foreign",
        " evidence/volume/x.json: not a record that contribbot writes",
    )


def test_a_repaired_patch_replaces_its_refuted_record(toy: Toy, program: Program) -> None:
    toy.put_area(patch=toy.format_patch({"src/toy/area.py": FIXED.replace("*", "-")}))
    assert program("verify", "area").code == 1
    (path,) = (toy.queue / "evidence/area").glob("*.json")
    predicate = json.loads(path.read_text())["predicate"]
    assert (predicate["result"], predicate["failedTests"][0]) == ("FAILED", "reproduce/red@cpu")
    toy.put_patch()
    program.ok("verify", "area")
    assert check(program)[:2] == (0, "fresh")


def test_the_shipped_schema_is_the_models() -> None:
    from contribbot.schemas import evidence_schema

    assert json.loads(SCHEMA.read_text()) == evidence_schema()


def test_a_committed_record_of_an_earlier_judge_reads() -> None:
    committed = sorted((tracked_queue() / "evidence").glob("*/*.json"))
    assert committed
    for path in committed:
        found = judge_record(load_queue(tracked_queue()), path)
        assert found.state is State.FRESH, f"{path.name}: {found.why}"
        assert found.statement is not None
        results = found.statement.predicate.contribbot.stages
        ran = (row for row in results if row.stage in RAN and row.outcome is Outcome.PASSED)
        shown = [(row.stated, row.details) for row in ran]
        assert shown, path
        for stated, details in shown:
            cases = details.cases if isinstance(details, BenchDetails) else ()
            assert cases or (stated and (stated.base.passed or stated.base.failed)), path


def test_the_kernels_triton_is_shown_and_not_the_installed_one(program: Program) -> None:
    ran = program("--queue", tracked_queue(), "evidence", "show", "resample-race")
    assert re.findall(r"^  with .* triton ([0-9.]+)$", ran.out, re.MULTILINE) == ["3.8.0"]
