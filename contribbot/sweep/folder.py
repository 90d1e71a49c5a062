"""The folder of a sweep: begin and continue the sweep, merge folders, and sum up the results."""

from __future__ import annotations

import contextlib
import itertools
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import filelock
from pydantic import Field, ValidationError

from contribbot.emulate.decode import check_target
from contribbot.emulate.emulation import command_of, run_on_target
from contribbot.emulate.outcomes import Text
from contribbot.errors import ExitCode, UsageError
from contribbot.files import write_atomically
from contribbot.model.base import Many, Model
from contribbot.process import no_space, signal_name
from contribbot.sweep.findings import (
    SESSION,
    UNWRITABLE,
    KernelCode,
    Sweep,
    SweepEvent,
    SweepFinding,
    SweepRow,
    SweepSession,
    TargetSum,
    events_file,
    findings_of,
    outcomes_of,
    read_events,
    write_event,
)

_HEADER: Final = "sweep.json"
_PLUGIN: Final = "contribbot.sweep.pytest_plugin"
_BEGIN: Final = "contribbot emulate gfx942 --report DIR -- pytest tests"
_OURS: Final = frozenset({_HEADER, ".lock", "captures", "report.json", "index.html"})


class SweepHeader(Model):
    """The content of `sweep.json`: the program, and the share of tests that this sweep runs."""

    program: Many[Text]
    shard: str = "1/1"
    unfinished: dict[str, str] = Field(default_factory=dict)  # why tests have not run, by target


def shard_of(text: str) -> tuple[int, int]:
    """Return the numbers of a share such as `2/5`; UsageError: no share."""
    number, _, shards = text.partition("/")
    if not (number.isdigit() and shards.isdigit() and 1 <= int(number) <= int(shards)):
        raise UsageError(f"--shard {text}: no share", hint="the second of five is --shard 2/5")
    return int(number), int(shards)


def run_sweep(
    program: Sequence[str],
    targets: Sequence[str],
    folder: Path,
    *,
    shard: str = "1/1",
    quiet: bool = False,
    started: Callable[[str], None] = lambda _target: None,
) -> bool:
    """Run a pytest program's remaining tests for each target; return whether a user interrupted."""
    for target in targets:
        check_target(target)
    if not any(Path(word).name in {"pytest", "py.test"} for word in program[:3]):
        given = program[0] if program else "nothing"
        raise UsageError(
            f"--report keeps what tests came to, and {given} is no pytest", hint=_BEGIN
        )
    number = shard_of(shard)
    argv = command_of(program)
    with _locked(folder):
        header = SweepHeader(program=(*program,), shard=shard)
        before = _begin(folder, header)
        for target in dict.fromkeys(targets):
            started(target)
            said, interrupted = _on_target(argv, target, folder, number, quiet=quiet)
            unfinished = {name: why for name, why in before.unfinished.items() if name != target}
            before = header.model_copy(
                update={"unfinished": unfinished | ({target: said} if said else {})}
            )
            _write_header(folder, before)
            if interrupted:
                return True
    return False


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder}: not a folder", hint="name a folder for the sweep")
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    if names - _OURS and _HEADER not in names:
        raise UsageError(
            f"{folder}: it has files in it, and none says that they are a sweep's",
            hint="name an empty folder, or a new one",
        )
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with filelock.FileLock(folder / ".lock", timeout=0):
            yield
    except filelock.Timeout as error:
        raise UsageError(
            f"{folder}: another sweep writes into it", hint="wait for it, or name another folder"
        ) from error


def _begin(folder: Path, header: SweepHeader) -> SweepHeader:
    """Return a folder's header, or write a new one; UsageError: of another program or share."""
    path = folder / _HEADER
    if not path.is_file():
        _write_header(folder, header)
        return header
    before = read_header(folder)
    if (before.program, before.shard) != (header.program, header.shard):
        raise UsageError(
            f"{folder}: a sweep of {' '.join(before.program)}, {before.shard}",
            hint="name another folder, or remove this one",
        )
    return before


def _write_header(folder: Path, header: SweepHeader) -> None:
    write_atomically(folder / _HEADER, header.model_dump_json(indent=1).encode())


def read_header(folder: Path) -> SweepHeader:
    """Return the header of the sweep in a folder; UsageError: the folder has no sweep."""
    try:
        return SweepHeader.model_validate_json((folder / _HEADER).read_bytes())
    except FileNotFoundError as error:
        raise UsageError(f"{folder}: no sweep in it", hint=_BEGIN) from error
    except ValidationError as error:
        raise UsageError(
            f"{folder / _HEADER}: not what a sweep writes",
            hint="remove the folder, and sweep again",
        ) from error


def _on_target(
    argv: Sequence[str], target: str, folder: Path, shard: tuple[int, int], *, quiet: bool
) -> tuple[str, bool]:
    """Run the remaining tests; return why tests are left ("": none), and if a user interrupted."""
    path = events_file(folder, target)
    _end_line(path)
    while True:
        before = [*read_events(path)]
        session = _session(before, target, folder, shard)
        with tempfile.TemporaryDirectory(prefix="contribbot-sweep-") as name:
            file = Path(name, "session.json")
            file.write_text(session.model_dump_json(), encoding="utf-8")
            run = run_on_target(
                argv, target, quiet=quiet, plugins=(_PLUGIN,), env={SESSION: str(file)}
            )
        if run.exit_code == UNWRITABLE:
            raise no_space(str(path))
        events = [*read_events(path)][len(before) :]
        if run.interrupted:
            return "it was interrupted", True
        if any(event.finished for event in events):
            return "", False
        rows = {event.row.test for event in events if event.row}
        lost = [event.begun for event in events if event.begun and event.begun not in rows]
        if not lost:
            said = run.error.partition(" and launched no")[0]
            return said or f"pytest ended with status {run.exit_code}", False
        killed = run.exit_code - 128
        how = f"{signal_name(killed)} ended" if killed > 0 else f"status {run.exit_code} ended"
        # faulthandler ends a process with this status if no signal reaches the test.
        late = ", as where it is twice too long" if run.exit_code == 1 else ""
        for test in lost:
            said = f"{how} its process{late}"
            row = SweepRow(target=target, test=test, outcome="crashed", said=said)
            write_event(path, SweepEvent(row=row))


def _end_line(path: Path) -> None:
    """Remove a last line without a newline, which a killed process left unfinished."""
    text = path.read_bytes() if path.is_file() else b""
    if text and not text.endswith(b"\n"):
        with path.open("r+b") as file:
            file.truncate(text.rfind(b"\n") + 1)


def _session(
    events: Sequence[SweepEvent], target: str, folder: Path, shard: tuple[int, int]
) -> SweepSession:
    done = {event.row.test for event in events if event.row}
    counts = Counter(name.partition("::")[0] for name in done)
    wanted = {event.file: event.count for event in events if event.file}
    whole = [file for file, count in wanted.items() if counts[file] >= count]
    whole += [name for name in done if "::" not in name]
    return SweepSession(
        folder=str(folder.absolute()),
        target=target,
        shard=shard,
        done=(*done,),
        done_files=(*dict.fromkeys(whole),),
    )


def read_sweep(folder: Path) -> Sweep:
    """Return the sweep in a folder: each test's outcome, the findings, and kernels' resources."""
    header = read_header(folder)
    rows, code = dict[tuple[str, str], SweepRow](), dict[tuple[str, str, str], KernelCode]()
    versions = dict[str, str]()
    for path in sorted(folder.glob("gfx*.jsonl")):
        for event in read_events(path):
            if event.row:
                rows.setdefault((event.row.target, event.row.test), event.row)
            if each := event.code:
                code.setdefault((each.target, each.kernel, each.variant), each)
            versions |= event.versions or {}
    names = dict.fromkeys([*(target for target, _ in rows), *header.unfinished])
    found = [*rows.values()]
    return Sweep(
        program=header.program,
        shard=header.shard,
        versions=versions,
        targets=tuple(
            TargetSum(
                target=name,
                outcomes=outcomes_of(row for row in found if row.target == name),
                seconds=round(sum(row.seconds for row in found if row.target == name), 1),
                unfinished=header.unfinished.get(name, ""),
            )
            for name in names
        ),
        findings=tuple(_numbered(folder, findings_of(found))),
        code=tuple(code.values()),
        tests=tuple(found),
    )


def _numbered(folder: Path, findings: Sequence[SweepFinding]) -> list[SweepFinding]:
    """Return findings with the numbers of the folder's last report, or with new numbers."""
    try:
        before = Sweep.model_validate_json((folder / "report.json").read_bytes()).findings
    except (FileNotFoundError, ValidationError):
        return [*findings]
    known = {(each.kind, each.kernel, each.line): each.number for each in before}
    fresh = itertools.count(max(known.values(), default=0) + 1)
    numbers = [known.get((each.kind, each.kernel, each.line)) or next(fresh) for each in findings]
    pairs = zip(findings, numbers, strict=True)
    found = [each.model_copy(update={"number": number}) for each, number in pairs]
    return sorted(found, key=lambda each: each.number)


def write_report(folder: Path, sweep: Sweep, page: bytes) -> None:
    """Write the report of a sweep, as JSON and as a page, into the sweep's folder."""
    write_atomically(folder / "report.json", sweep.model_dump_json(indent=1).encode())
    write_atomically(folder / "index.html", page)


def bring_together(folders: Sequence[Path]) -> Sweep:
    """Merge the sweeps of several folders into the first folder, and return the merged sweep."""
    first, others = folders[0], folders[1:]
    for folder in others:
        read_header(folder)
    if others:
        with _locked(first):
            if not (first / _HEADER).is_file():
                header = read_header(others[0])
                _write_header(first, header.model_copy(update={"shard": "1/1"}))
            for folder in others:
                _copy(folder, first)
    return read_sweep(first)


def _copy(source: Path, place: Path) -> None:
    """Copy the events and captures of a folder into another folder, without duplicates."""
    for path in sorted(source.glob("gfx*.jsonl")):
        there = {
            (each.row.test if each.row else each.model_dump_json())
            for each in read_events(place / path.name)
        }
        for event in read_events(path):
            if (event.row.test if event.row else event.model_dump_json()) not in there:
                write_event(place / path.name, event)
    for path in (source / "captures").glob("*.zip"):
        if not (place / "captures" / path.name).exists():
            write_atomically(place / "captures" / path.name, path.read_bytes())
    before, more = read_header(place), read_header(source).unfinished
    if more:
        _write_header(place, before.model_copy(update={"unfinished": before.unfinished | more}))


def sweep_exit_code(sweep: Sweep) -> ExitCode:
    """Return the exit code: 0 tests passed, 1 a test failed, 3 no result."""
    counts = sum((Counter(each.outcomes) for each in sweep.targets), Counter[str]())
    if any(counts[name] for name in ("failed", "fault", "too long", "crashed")):
        return ExitCode.NO
    unsaid = counts["not modelled"] or any(each.unfinished for each in sweep.targets)
    return ExitCode.MACHINE if unsaid or not counts["passed"] else ExitCode.OK
