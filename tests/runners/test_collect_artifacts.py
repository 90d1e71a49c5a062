"""Artifacts that are not what a job of the plan leaves: foreign, too large, hostile."""

from __future__ import annotations

import io
import struct
import time
import zipfile
from pathlib import Path

import pytest

from contribbot.runners.model import CellState, Collected
from tests.github.server import Hook
from tests.github.state_actions import upload
from tests.github.wire import Request
from tests.runners.homing import (
    COMPILED,
    RAN,
    Home,
    Json,
    assert_refused,
    packed,
    states,
    unpacked,
    why,
)

MIB = 1024 * 1024


class _Expires(Hook):
    """An artifact is let go after it was listed."""

    def __init__(self, home: Home, number: int) -> None:
        self.home, self.number = home, number

    def before(self, request: Request) -> None:
        """Let it go when it is asked for."""
        if request.path.endswith(f"/artifacts/{self.number}/zip"):
            for one in self.home.run.artifacts:
                one.expired = one.expired or one.id == self.number


def test_an_artifact_of_another_run(home: Home) -> None:
    first = home.send(RAN)
    home.begin()
    ghost = home.send(RAN, unpacked(first.stored))
    ghost.run_id = first.run_id
    assert_refused(home, f"it is of run {first.run_id}")


def test_the_content_of_another_run(home: Home) -> None:
    first = home.send(RAN)
    home.begin()
    home.send(RAN, unpacked(first.stored))
    assert_refused(home, f"job.json: it is of run {first.run_id}, not {home.run.id}")


def test_the_artifact_of_another_job(home: Home) -> None:
    home.send(RAN, home.files(COMPILED))
    assert_refused(home, "it is of job compile-rocm7.1-1, not gfx942-rocm7.1-1")


def test_sent_twice(home: Home) -> None:
    home.send(RAN)
    home.send(RAN)
    assert_refused(home, "it came twice")


def test_dropped(home: Home) -> None:
    home.send(RAN)
    home.run.artifacts.pop()
    found = home.collected()
    assert states(found)["gpu area gfx942"] is CellState.MISSING
    assert why(found) == "its job ended well, and what it sent is not there"


def test_expired(home: Home) -> None:
    home.send(RAN).expired = True
    assert_refused(home, "it expired")


def test_expired_between_two_requests(home: Home) -> None:
    one = home.send(RAN)
    home.github.hooks.append(_Expires(home, one.id))
    assert_refused(home, "Artifact has expired")


def test_a_foreign_artifact(home: Home) -> None:
    for job in (COMPILED, RAN):
        home.send(job)
    one = upload(home.github.state, home.run, "contribbot-gfx90a-rocm7.1-1", b"x")
    upload(home.github.state, home.run, "build-logs", b"")
    found = home.collected()
    assert set(states(found).values()) == {CellState.PROVED}
    refused = {one.name: one.refused for one in found.artifacts if one.refused}
    assert refused == {
        "contribbot-gfx90a-rocm7.1-1": "no job of the run is called gfx90a-rocm7.1-1"
    }
    assert not any(f"/{one.id}.zip" in path for path, _ in home.storage.seen)
    assert "left alone, as no job of contribbot names one so: 'build-logs'" in found.notes
    assert not found.complete


def test_an_artifact_whose_name_leads_elsewhere(home: Home, tmp_path: Path) -> None:
    upload(home.github.state, home.run, "contribbot-../../../x", packed({}))
    found = home.collected("--from", tmp_path)
    assert "no job of contribbot is called so" in {one.refused for one in found.artifacts}


@pytest.mark.parametrize(
    ("created", "reason"),
    [
        ("2026-01-01T09:00:00Z", f"it came after job {RAN} had ended"),
        ("2025-12-31T23:00:00Z", f"it came before job {RAN} had begun"),
    ],
)
def test_another_job_put_it_there(home: Home, created: str, reason: str) -> None:
    """Any job can add and replace any artifact of its run; not while another one runs."""
    home.send(RAN).created_at = created
    assert_refused(home, reason)


def test_more_than_can_be_held(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is within its limits, and all of them together are not."""
    monkeypatch.setattr("contribbot.runners.artifacts._MOST_BYTES", 8 * MIB)
    home.send(COMPILED)
    home.send(RAN, {**home.files(RAN), "records/other/x.json": b" " * (8 * MIB)})
    found = assert_only_compiled(home)
    assert why(found) == "with it, the run's artifacts have more than 8 MiB"


def assert_only_compiled(home: Home) -> Collected:
    """Collect, and see that the other job's artifact was taken."""
    found = home.collected()
    assert states(found) == {
        "compile area gfx942": CellState.PROVED, "gpu area gfx942": CellState.REFUSED
    }  # fmt: skip
    return found


def test_two_gigabytes_are_not_even_fetched(home: Home) -> None:
    one = home.send(RAN)
    one.size = 2 * 1024 * MIB
    assert_refused(home, "2,048 MiB; at most 64")
    assert not any(f"/{one.id}.zip" in path for path, _ in home.storage.seen)


def test_more_comes_than_was_announced(home: Home) -> None:
    one = home.send(RAN)
    one.stored = b"\0" * (65 * MIB)
    assert_refused(home, "more than 67108864 bytes came")


def zipped(*entries: tuple[str, bytes]) -> bytes:
    """Return a zip of odd entries."""
    place = io.BytesIO()
    with zipfile.ZipFile(place, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in entries:
            archive.writestr(name, content)
    return place.getvalue()


def claiming(size: int) -> bytes:
    """Return a zip that says that its file has such a size."""
    content = zipped(("job.json", b"{}"))
    place = content.index(b"PK\x01\x02") + 24
    return content[:place] + struct.pack("<L", size) + content[place + 4 :]


HOSTILE = {
    "many": (zipped(*((f"records/a/{number}.json", b"") for number in range(5000))),
             "5000 files; at most 4096"),
    "bomb": (zipped(("job.json", bytes(20 * MIB))), "20 MiB; at most 16"),
    "bombs": (zipped(*((f"records/a/{number}.json", bytes(15 * MIB)) for number in range(20))),
              "unpacks to more than 256 MiB"),
    "header": (claiming(2 * 1024 * MIB), "2,048 MiB; at most 16"),
    "liar": (claiming(1), "not a sound zip"),
    "absolute": (zipped(("/etc/passwd", b"")), "'/etc/passwd', which no job leaves"),
    "up": (zipped(("records/../../x.json", b"")), "which no job leaves"),
    "backslash": (zipped(("records\\..\\x", b"")), "which no job leaves"),
    "escape": (zipped(("records/a/\x1b[2J.json", b"")), r"\\x1b\[2J.json', which no job leaves"),
    "nul": (zipped(("job.json", b"{}")).replace(b"job.json", b"job\0json"), "no job leaves"),
    "program": (zipped(("job.json", b"{}"), ("run.sh", b"")), "'run.sh', which no job leaves"),
    "hidden": (zipped((".git/config", b"")), "which no job leaves"),
    "no zip": (b"hello", "not a sound zip"),
    "twice": (zipped(("job.json", b"{}"), ("jobxjson", b"{}")).replace(b"jobxjson", b"job.json"),
              "'job.json' twice"),
}  # fmt: skip


@pytest.mark.parametrize("which", HOSTILE)
def test_a_hostile_zip(home: Home, which: str) -> None:
    upload(home.github.state, home.run, f"contribbot-{RAN}", HOSTILE[which][0])
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
