"""Whatever a job sends, collect takes only what answers what was asked, as it was sent."""

from __future__ import annotations

import io
import json
import struct
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import JsonValue
from pydantic_core import from_json

from contribbot.runners.collect import written
from contribbot.runners.documents import CellState
from tests.conftest import dig
from tests.github.state_actions import upload
from tests.runners.homing import (
    COMPILED,
    RAN,
    Home,
    Json,
    assert_refused,
    details,
    packed,
    sealed,
    states,
    unpacked,
    why,
)

MIB = 1024 * 1024
Act = Callable[[Home], None]


def sent(job: str = RAN, **changed: object) -> Act:
    """Return what sends an artifact of which GitHub then says something else."""

    def act(home: Home) -> None:
        artifact = home.send(job)
        for key, value in changed.items():
            setattr(artifact, key, value)

    return act


def damaged(change: Callable[[bytes], bytes]) -> Act:
    """Return what changes the bytes on their way."""

    def act(home: Home) -> None:
        artifact = home.send(RAN)
        artifact.stored = change(artifact.stored)

    return act


def altered(content: bytes) -> bytes:
    """Return an artifact whose record was changed and sealed again."""
    files = unpacked(content)
    (path,) = (name for name in files if name != "job.json")
    document = json.loads(files[path])
    document.pop("contribbot_seal")
    details(document)["command"] = "contribbot verify area --force"
    return packed({**files, path: sealed(document)})


def of_another_run(home: Home) -> None:
    first = home.send(RAN)
    home.begin()
    home.send(RAN, unpacked(first.stored))


def altered_by_hand(home: Home) -> None:
    path, document = home.record(RAN)
    details(document)["command"] = "another"
    home.send(RAN, {"job.json": home.done(RAN), path: json.dumps(document).encode()})


def twice(home: Home) -> None:
    home.send(RAN)
    home.send(RAN)


def two_records(home: Home) -> None:
    home.send(RAN, {**home.files(RAN, cores=16), **home.files(RAN)})


@pytest.mark.parametrize(
    ("act", "reason"),
    [
        (of_another_run, r"job.json: it is of run \d+, not \d+"),
        (lambda home: home.send(RAN, home.files(COMPILED)),
         "it is of job compile-rocm7.1-1, not gfx942-rocm7.1-1"),
        (twice, "it came twice"),
        (two_records, "it has two records of area"),
        (altered_by_hand, "tampered: its content does not match its seal"),
        (sent(expired=True), "it expired"),
        # Any job can add and replace any artifact of its run; not while another one runs.
        (sent(created_at="2026-01-01T09:00:00Z"), f"it came after job {RAN} had ended"),
        (sent(created_at="2025-12-31T23:00:00Z"), f"it came before job {RAN} had begun"),
        (sent(size=2048 * MIB), "2,048 MiB; at most 64"),
        (sent(stored=bytes(65 * MIB)), "more than 67108864 bytes came"),
        (damaged(altered), "what came is not what was sent: GitHub saw [0-9a-f]{12}…, this is"),
        (damaged(lambda content: content[: len(content) // 2]), "what came is not what was sent"),
        (damaged(lambda _: b""), "what came is not what was sent"),
    ],
)  # fmt: skip
def test_what_is_not_the_artifact_of_the_job(home: Home, act: Act, reason: str) -> None:
    act(home)
    assert_refused(home, reason)


def test_a_foreign_artifact(home: Home) -> None:
    for job in (COMPILED, RAN):
        home.send(job)
    upload(home.github.state, home.run, "contribbot-gfx90a-rocm7.1-1", b"x")
    upload(home.github.state, home.run, "contribbot-../../../x", packed({}))
    upload(home.github.state, home.run, "build-logs", b"")
    found = home.collected()
    assert set(states(found).values()) == {CellState.PROVED}
    assert {each.name: each.refused for each in found.artifacts if each.refused} == {
        "contribbot-gfx90a-rocm7.1-1": "no job of the run is called gfx90a-rocm7.1-1",
        "contribbot-../../../x": "no job of contribbot is called so",
    }
    assert "left alone, as no job of contribbot names one so: 'build-logs'" in found.notes
    assert not found.complete


def test_more_than_can_be_held(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is within its limits, and all of them together are not."""
    monkeypatch.setattr("contribbot.runners.actions._MOST_BYTES", 8 * MIB)
    home.send(COMPILED)
    home.send(RAN, {**home.files(RAN), "records/other/x.json": b" " * (8 * MIB)})
    found = home.collected()
    assert states(found)["compile area gfx942"] is CellState.PROVED
    assert why(found) == "with it, the run's artifacts have more than 8 MiB"


def zipped(*entries: tuple[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """Return a zip of odd entries."""
    place = io.BytesIO()
    with zipfile.ZipFile(place, "w", method) as archive:
        for name, content in entries:
            archive.writestr(name, content)
    return place.getvalue()


def claiming(size: int) -> bytes:
    """Return a zip that says that its file has such a size."""
    content = zipped(("job.json", b"{}"))
    place = content.index(b"PK\x01\x02") + 24
    return content[:place] + struct.pack("<L", size) + content[place + 4 :]


#: What makes a zip, and why it is refused.
HOSTILE: dict[str, tuple[Callable[[], bytes], str]] = {
    "many": (lambda: zipped(*((f"records/a/{number}.json", b"") for number in range(5000))),
             "5000 files; at most 4096"),
    "bomb": (lambda: zipped(("job.json", bytes(20 * MIB))), "20 MiB; at most 16"),
    "bombs": (lambda: zipped(*((f"records/a/{n}.json", bytes(15 * MIB)) for n in range(20))),
              "unpacks to more than 256 MiB"),
    "header": (lambda: claiming(2 * 1024 * MIB), "2,048 MiB; at most 16"),
    "liar": (lambda: claiming(1), "not a sound zip"),
    "absolute": (lambda: zipped(("/etc/passwd", b"")), "'/etc/passwd', which no job leaves"),
    "up": (lambda: zipped(("records/../../x.json", b"")), "which no job leaves"),
    "backslash": (lambda: zipped(("records\\..\\x", b"")), "which no job leaves"),
    "escape": (lambda: zipped(("records/a/\x1b[2J.json", b"")),
               r"\\x1b\[2J.json', which no job leaves"),
    "nul": (lambda: zipped(("job.json", b"{}")).replace(b"job.json", b"job\0json"),
            "no job leaves"),
    "program": (lambda: zipped(("job.json", b"{}"), ("run.sh", b"")),
                "'run.sh', which no job leaves"),
    "hidden": (lambda: zipped((".git/config", b"")), "which no job leaves"),
    "no zip": (lambda: b"hello", "not a sound zip"),
    "lzma": (lambda: zipped(("job.json", b"{}"), method=zipfile.ZIP_LZMA), "not a sound zip"),
    "no job": (lambda: zipped(("records/a/b.json", b"{}")), "it has no job.json"),
    "twice": (lambda: zipped(("job.json", b"{}"), ("job-json", b"{}")).replace(b"b-j", b"b.j"),
              "'job.json' twice"),
}  # fmt: skip


@pytest.mark.parametrize("which", HOSTILE)
def test_a_hostile_zip(home: Home, which: str) -> None:
    upload(home.github.state, home.run, f"contribbot-{RAN}", HOSTILE[which][0]())
    home.end(RAN, "success")
    started = time.monotonic()
    assert_refused(home, HOSTILE[which][1])
    assert time.monotonic() - started < 20


def test_text_that_would_be_more_than_text(home: Home, tmp_path: Path) -> None:
    error = "\x1b[2J\x9b31m](javascript:x) | <img src=x> @everyone\n# heading\r\n::error::no \u202e"
    patch: Json = {"patch": "area", "exit_code": 3, "error": error}
    home.send(RAN, {"job.json": home.done(RAN, 3, {"patches": [patch]})}, "failure")
    upload(home.github.state, home.run, "x\x1b[2J](y)", b"")
    home.finish()
    summary = tmp_path / "summary.md"
    said = home.command("collect", str(home.run.id), GITHUB_STEP_SUMMARY=str(summary))
    text = summary.read_text(encoding="utf-8")
    for shown in (said.out, text):
        assert all(char.isprintable() for line in shown.splitlines() for char in line)
        assert not any(line.startswith(("#  heading", "::", "# ")) for line in shown.splitlines())
    row = next(line for line in text.splitlines() if "gfx942 | 7.1 | failed" in line)
    assert "\\](javascript" not in row
    assert "\\]\\(javascript:x\\) \\| &lt;img src=x&gt; &#64;everyone" in row


# Records with a sound seal, from the right run.

Change = Callable[[Json], None]


def put(*keys: str, value: JsonValue) -> Change:
    """Return what changes a key of contribbot's part of a record."""

    def change(document: Json) -> None:
        table: JsonValue = details(document)
        for key in keys[:-1]:
            table = dig(table, key)
        assert isinstance(table, dict)
        table[keys[-1]] = value

    return change


def gpus(*targets: str) -> JsonValue:
    """Return GPUs as a record has them."""
    return [{"vendor": "amd", "target": target, "name": "made up", "driver": ""}
            for target in targets]  # fmt: skip


def speak(stage: str) -> Change:
    """Return what says that a stage passed on a GPU that the job was not asked about."""

    def change(document: Json) -> None:
        put("machine", "gpus", value=gpus("gfx942", "gfx950"))(document)
        stages = details(document)["stages"]
        assert isinstance(stages, list)
        passed = next(each for each in stages if dig(each, "stage") == "reproduce")
        assert isinstance(passed, dict)
        stages.append({**passed, "stage": stage, "target": "gfx950"})

    return change


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (put("patch_sha256", value="1" * 64), "subject.* is not|the patch has changed"),
        (put("checks_sha256", value="1" * 64), "the checks have changed|configuration.* is not"),
        (put("pin_sha256", value="1" * 64), "stale: the pin or"),
        (put("pin", value="v9"), "tampered: subject.* is not"),
        (put("below", value={"other": "1" * 64}), "stale: what it depends on"),
        (put("upstream", value="other"), "foreign: about a patch for other|subject.* is not"),
        (put("base_commit", value="1" * 40), "on another commit|configuration.* is not"),
        (put("patch", value="other"), "job gfx942-rocm7.1-1 was not asked for other"),
        (put("run", value=None), "it names no run"),
        (put("run", "run_id", value=7), r"it is of run 7, not \d+"),
        (put("run", "attempt", value=2), "attempt 2, which was not yet"),
        (put("run", "job", value=COMPILED), "it is of job compile-rocm7.1-1"),
        (put("run", "repository", value="evil/queue"), "it is of evil/queue"),
        (put("run", "commit", value="1" * 40), "it is of commit 111111111111"),
        (put("container", value=None), "its container is not the plan's: none"),
        (put("container", value={"image": f"evil.example/x@sha256:{'1' * 64}", "flags": []}),
         "its container is not the plan's: evil"),
        (put("machine", "gpus", value=gpus("gfx1100")), "made on gfx1100, and gfx942 was asked"),
        (put("machine", "gpus", value=[]), "what ran on gfx942, and its machine has none"),
        (put("machine", "rocm", value="6.4.1-83"), "ROCm 6.4.1-83, and 7.1 was asked"),
        (put("machine", "system", value="../../../../home"), "a name that cannot be a file's"),
        (put("machine", "system", value=""), "a name that cannot be a file's"),
        (put("machine", "cores", value=9), "foreign: its place is area/"),
        (put("started", value="2026-01-01T00:00:00"), "started is not what its outcomes say"),
        (put("verdict", value="proved"), "tampered: .*result is not"),
        (put("stages", value=[]), "tampered"),
        (put("surprise", value=1), "not a record that contribbot writes"),
        (speak("reproduce"), "it says what ran on gfx950, and gfx942 was asked"),
        (speak("witness"), "it says what ran on gfx950, and gfx942 was asked"),
    ],
)  # fmt: skip
def test_a_sound_seal_around_something_else(home: Home, change: Change, reason: str) -> None:
    path, document = home.record(RAN)
    document.pop("contribbot_seal")
    change(document)
    home.send(RAN, {"job.json": home.done(RAN), path: sealed(document)})
    found = assert_refused(home, reason)
    assert [each.merged for each in found.records] == ["refused"]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "not a record"),
        (b"\xff\xfe", "not a record"),
        (b"[" * 100_000, "recursion limit exceeded"),
        (b'{"predicate": NaN}', "not a record"),
        (b'{"a": "\\ud800"}', "not a record"),
        (b"1" * 5000, "not a record"),
    ],
)
def test_what_is_no_record(home: Home, content: bytes, reason: str) -> None:
    path, _ = home.record(RAN)
    home.send(RAN, {"job.json": home.done(RAN), path: content})
    assert_refused(home, reason)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"job": COMPILED}, "it is of job compile-rocm7.1-1"),
        ({"run": None}, "it names no run"),
        ({"asked": [{"patch": "area", "require": ["bench:gfx942"]}]}, "was asked something else"),
        ({"exit_code": 1}, "it says exit code 1, and GitHub says success"),
        ({"exit_code": 256}, "exit_code"),
        ({"surprise": 1}, "surprise"),
    ],
)
def test_what_a_job_says_of_itself(home: Home, changed: Json, reason: str) -> None:
    home.send(RAN, {**home.files(RAN), "job.json": home.done(RAN, changed=changed)})
    assert_refused(home, reason)


def test_records_that_were_not_asked_for(home: Home) -> None:
    files = home.files(RAN)
    extra = next(content for name, content in files.items() if name != "job.json")
    home.send(RAN, {**files, "records/other/x86_64-gfx942-00000000.json": extra})
    found = home.collected()
    assert states(found)["gpu area gfx942"] is CellState.PROVED
    assert {each.path: each.merged for each in found.records if "other" in each.path} == {
        "evidence/other/x86_64-gfx942-00000000.json": "refused"
    }
    assert not found.complete


def test_the_same_base_became_different_trees(home: Home) -> None:
    home.send(COMPILED)
    path, document = home.record(RAN)
    document.pop("contribbot_seal")
    other: Json = json.loads(json.dumps(document).replace("1" * 40, "2" * 40))
    home.send(RAN, {"job.json": home.done(RAN), path: sealed(other)})
    found = home.collected()
    assert set(states(found).values()) == {CellState.REFUSED}
    assert "two records say that the same base became different trees" in why(found)
    assert home.evidence() == []


def test_what_is_kept_of_a_record_moves_no_terminal_and_stays_small() -> None:
    # 1e999 is JSON; what Python would write of it is not.
    with pytest.raises(ValueError, match="not JSON compliant"):
        written(from_json(b'{"seconds": 1e999}'))
    # Indents would make a gigabyte of a megabyte that is nested deeply.
    deep = b"[" * 190 + b"1," * 200_000 + b"1" + b"]" * 190
    with pytest.raises(ValueError, match="written out it has more than 16777216 characters"):
        written(from_json(deep))
    text = "a\x9b31mb\u202ec\U000e0001d\u2028é…"
    content = written({"reason": text})
    assert json.loads(content) == {"reason": text}
    assert content.decode().replace("\n", "").isprintable()
