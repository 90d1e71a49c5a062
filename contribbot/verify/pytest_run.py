"""One run of one check on one tree: start the process, read its report, return the result."""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import ConfigDict, Field, ValidationError

from contribbot import process
from contribbot.errors import UsageError
from contribbot.files import cache_folder, log_path, write_atomically
from contribbot.machine import is_full
from contribbot.model.base import Many, Model
from contribbot.model.checks import LIMITS_VARIABLE, Check, EmulatedCheck
from contribbot.model.evidence import HOST_TARGETS
from contribbot.model.failure import Blame, RunFailure
from contribbot.model.patch import PatchFile
from contribbot.model.record import CellRecord, FailureRecord, RunnerFault, RunRecord
from contribbot.verify.job import RunLayout
from contribbot.verify.runner_fault import runner_fault, signed
from contribbot.verify.warm import CLIENT, WarmProcesses
from contribbot.verify.without_change import write_modules

#: A folder counts only as a whole name: `/root` is neither in `/rootfs` nor in `src/root`, but in
#: `-I/root/x`, in `../../root/x`, and after a line end that is written as a backslash and n.
_BEFORE_FOLDER: Final = r"(?:(?<![\w.-])|(?<=-[A-Za-z])|(?<=\\[nrt])|(?<=\.\.))"
_AFTER_FOLDER: Final = r"(?![\w-]|\.\w)"


class Scrub:
    """Replaces this machine's folders in the output of a check by placeholders."""

    def __init__(self, tree: Path, folder: Path, *more: Path) -> None:
        named = [
            *((str(path), "<tree>") for path in (*more, tree)),
            (str(folder), "<run>"),
            (str(cache_folder()), "<cache>"),
            (sys.prefix, "<python>"),
            (sys.base_prefix, "<python>"),
            (str(Path(__file__).parents[2]), "<contribbot>"),
            (str(Path.home()), "<home>"),
        ]
        # The folder `/` is not hidden. Of a folder's several placeholders, the first is used.
        self._named = {name: text for name, text in reversed(named) if len(name) > 1}
        # The longest folder comes first, because a folder may be in another folder.
        names = "|".join(re.escape(name) for name in sorted(self._named, key=len, reverse=True))
        self._pattern = re.compile(f"{_BEFORE_FOLDER}(?:{names}){_AFTER_FOLDER}")

    def __call__(self, text: str) -> str:
        """Return a text with a placeholder for each folder."""
        # Lines are searched one by one: a flood of output may be one line without a folder.
        return "\n".join(
            self._pattern.sub(lambda match: self._named[match[0]], line) if "/" in line else line
            for line in text.split("\n")
        )


#: Failures of a run that another run would repeat.
_LASTING: Final = frozenset({RunFailure.STOPPED, RunFailure.FIXTURE, RunFailure.EMPTY})
_STRICT: Final = ConfigDict(strict=True, extra="forbid")
#: The number of failures that a record has in full, and the length of the others' messages.
_IN_FULL: Final = 20
_SHORT: Final = 200
#: The largest number of characters of a message in a reason.
_LINE: Final = 300
#: The number of characters at the end of an output that a record keeps.
TAIL: Final = 2000


@dataclass(frozen=True)
class FailedTest:
    """A failed test; `kind`: why the failure shows nothing of the tree, or None."""

    __pydantic_config__ = _STRICT

    test: str
    when: str
    message: str
    kind: Annotated[RunFailure | None, Field(strict=False)] = None

    @property
    def by_machine(self) -> bool:
        """Whether this machine is to blame for the failure."""
        return self.kind is not None and self.kind.blame is Blame.MACHINE

    @property
    def first(self) -> str:
        """The first line of the message, shortened."""
        line = self.message.partition("\n")[0]
        return line if len(line) <= _LINE else f"{line[:_LINE]}…"

    def record(self, reason: str, *, in_full: bool) -> FailureRecord:
        """Return the failure's record; the message is cut if `reason` still matches as before."""
        message, short = self.message, self.first[:_SHORT]
        if not in_full and bool(re.search(reason, short)) is bool(re.search(reason, message)):
            message = short
        return FailureRecord(test=self.test, when=self.when, message=message, kind=self.kind)


@dataclass
class CheckRun:
    """The result of one run of a check on a tree."""

    passed: list[str] = field(default_factory=list)
    failed: list[FailedTest] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    partly: list[str] = field(default_factory=list)  # tests with a skipped and a passed part
    status: int | None = None  # pytest's exit status; None: pytest did not reach its end
    kind: RunFailure | None = None  # the failure of the run as a whole
    trouble: str = ""  # the failure of the run, in words
    #: Whether a known-good kernel passed after the suspected fault: the runner is not to blame.
    cleared: bool = False
    command: str = ""
    seconds: float = 0.0
    limit: float = 0.0  # the limit of the run's seconds
    log_sha256: str = ""  # the digest of the whole output, which is in the log folder
    log_tail: str = ""
    missing: tuple[str, ...] = ()  # modules that messages name as absent
    suspected: RunnerFault | None = None  # a fault that may be the runner's fault
    cells: list[CellRecord] = field(default_factory=list)
    imported: frozenset[str] = frozenset()  # the imported top-level modules
    absent: frozenset[str] = frozenset()  # the modules that were not found
    programs: bool = True  # whether other processes may have imported further modules

    @property
    def transient(self) -> bool:
        """Whether another run might have another result."""
        passing = self.kind is not None and self.kind not in _LASTING
        return passing or any(failure.by_machine for failure in self.failed)

    @property
    def starved(self) -> bool:
        """Whether the run lacked memory."""
        kinds = {self.kind, *(failure.kind for failure in self.failed)}
        return RunFailure.NO_MEMORY in kinds

    @property
    def lacked(self) -> bool:
        """Whether this machine ended the run, for example by a full disk or a lack of memory."""
        by_machine = self.kind is not None and self.kind.blame is Blame.MACHINE
        return by_machine and self.suspected is not None

    @property
    def ran(self) -> set[str]:
        """The tests that passed or failed."""
        return {*self.passed, *(failure.test for failure in self.failed)}

    @property
    def outcomes(self) -> dict[str, str]:
        """The outcome of each test, in which two runs on one tree must agree."""
        green = dict.fromkeys(self.passed, "passed") | dict.fromkeys(self.skipped, "skipped")
        return green | {failure.test: "failed" for failure in self.failed}

    def record(self, reason: str) -> RunRecord:
        """Return the record of the run, whose fields have the same names."""
        failed = (
            failure.record(reason, in_full=number < _IN_FULL)
            for number, failure in enumerate(self.failed)
        )
        # Failed tests make the exit status redundant.
        status = None if self.failed else self.status or None
        facts = {name: getattr(self, name) for name in RunRecord.model_fields}
        facts |= {"failed": tuple(failed), "status": status, "seconds": round(self.seconds, 3)}
        return RunRecord.model_validate(facts)


def _suspicion(run: CheckRun, output: str) -> RunnerFault | None:
    """Return the runner fault that a run's end or messages suggest; None: no such fault."""
    kind = run.kind
    if kind is RunFailure.TIMED_OUT or (kind and kind.blame is Blame.MACHINE):
        hung = kind is RunFailure.TIMED_OUT
        return runner_fault(RunFailure.HUNG if hung else kind, run.trouble)
    if kind is None and not run.failed:
        return None
    sign = signed((*(failure.message for failure in run.failed), output))
    if sign is None and kind is RunFailure.CRASHED:
        return runner_fault(RunFailure.PREFLIGHT, run.trouble)
    return sign


def blamed(*runs: CheckRun) -> RunnerFault | None:
    """Return the runner fault because of which runs are unavailable; None: no runner fault."""
    for run in runs:
        if run.lacked:
            return run.suspected
        for failure in run.failed:
            if failure.kind and failure.by_machine:
                # A lack of memory counts more than any other sign.
                memory = failure.kind is RunFailure.NO_MEMORY
                sign = None if memory else signed([failure.message])
                return sign or runner_fault(failure.kind, failure.message)
    return None


_REPORT: Final = "report.jsonl"
#: pytest's options for output that goes to a log.
DISPLAY: Final = ("-q", "--tb=native")
#: The command that starts a check's process, with nothing of the tree on Python's path yet.
_CHECK_CHILD: Final = (
    sys.executable, "-B", "-P", "-c", "from contribbot.verify.pytest_plugin import run; run()"
)  # fmt: skip


@dataclass(frozen=True)
class CheckProcess:
    """The process that runs a check: the layout of a tree, the run's folder, and its settings."""

    check: Check
    place: RunLayout
    env: Mapping[str, str]  # variables in addition to the check's
    threads: int
    folder: Path
    launches: str = ""  # when to show launches of kernels: `always`, on `failure`, or never

    @property
    def scrub(self) -> Scrub:
        """The replacement of this machine's folders in the output."""
        return Scrub(self.place.tree, self.folder, *self.place.python, *self.place.tools)

    @property
    def stated(self) -> dict[str, str]:
        """The variables that the check and its stage state."""
        return {**self.check.env, **self.env}

    def variables(self, *folders: str, **more: str) -> dict[str, str]:
        """Return all environment variables; `folders`: the first folders of PYTHONPATH."""
        path = os.pathsep.join(filter(None, [*folders, process.own_path()]))
        more |= {"PYTHONPATH": path}
        return child_environment(
            self.place, self.stated, threads=self.threads, folder=self.folder, more=more
        )

    def command(self, *, attached: bool = False) -> list[str]:
        """Write `pytest_plugin`'s `orders.json`; return the command without pytest's arguments."""
        from contribbot.verify.pytest_plugin import Orders  # noqa: PLC0415  pytest takes a while

        place, variables = self.place, {**self.stated, **self.place.env}
        extension = variables.get("CONTRIBBOT_EXTENSION", "")
        modules = write_modules(self.folder / "modules", place.modules) if place.modules else ""
        tools = tuple(map(str, place.tools))
        path = place.python_path.split(os.pathsep)
        orders = Orders(
            report=str(self.folder / _REPORT),
            tree=str(place.tree),
            python=tuple(name for name in path if name and name not in tools),
            tools=tools,
            reason=self.check.reason,
            extension=str(Path(extension).parent) if extension else "",
            code=str(place.code or ""),
            device=variables.get("CONTRIBBOT_DEVICE", ""),
            modules=str(modules),
            numbers=LIMITS_VARIABLE in variables,
            attached=attached,
            launches=self.launches,
        )
        file = self.folder / "orders.json"
        file.write_text(json.dumps(asdict(orders)), encoding="utf-8")
        return [*_CHECK_CHILD, str(file)]

    def result(self, done: process.Supervised) -> CheckRun:
        """Return the result of the run from the report and the end of the process."""
        report = self.folder / _REPORT
        return read_report(report, done, limit=self.check.timeout, scrub=self.scrub)


def run_check(
    child: CheckProcess,
    support: Sequence[PatchFile],
    *,
    logs: Path,
    warm: WarmProcesses,
    display: Sequence[str] = DISPLAY,
) -> CheckRun:
    """Run a check on a tree; `display`: options of pytest that change only the output."""
    check, place, scrub = child.check, child.place, child.scrub
    checks = lay_out(child.folder, support)
    # An abort must not lose a GPU runtime's messages, which pytest would still hold.
    capture = [] if check.target in HOST_TARGETS else ["--capture=sys"]
    argv = [*_options(child.folder, checks), *display, "--color=no", *capture, check.file]
    # The server of forks imports the pin's Triton, and nothing of a tree.
    variables = child.variables(*map(str, place.tools))
    with warm.fork(variables, _shared_imports(check, support, place)) as fork:
        done = process.supervise(
            [*CLIENT, str(fork.channel.fileno()), *child.command(), *argv],
            cwd=checks,
            timeout=check.timeout,
            env=variables,
            sandbox=None if process.no_sandbox() else child.folder,
            pass_fds=(fork.channel.fileno(),),
        )
        fork.end()
    run = child.result(done)
    run.command = scrub(process.describe(["python", "-m", "pytest", *argv]))
    text = scrub(done.output.decode("utf-8", "replace"))
    run.suspected = _suspicion(run, text)
    run.log_tail = text[-TAIL:]
    run.log_sha256 = hashlib.sha256(text.encode()).hexdigest()
    write_atomically(log_path(logs, run.log_sha256), text.encode())
    return run


#: The modules that a server of forks imports, by the module that a check imports.
_SHARED: Final = {"torch": ("torch",), "contribbot.numerics": ("torch", "contribbot.numerics")}
#: The modules that an emulated check of compiled code imports first, in this order.
_GIVEN_CODE: Final = (
    "contribbot.verify.emulated_kernels", "contribbot.emulate.program", "tinygrad.renderer.amd",
)  # fmt: skip
#: Among them torch._dynamo, which the decorator `torch.compile` imports in 1.1 seconds.
_EMULATOR: Final = ("torch", "torch._dynamo", "contribbot.emulate.torch_device", *_GIVEN_CODE)
_IMPORT: Final = re.compile(rb"^(?:import|from) +([\w.]+)", re.MULTILINE)
#: Changes of environment variables, which may change the effect of a later import.
_SETS_VARIABLES: Final = re.compile(
    rb"environ(?:\[[^\]\n]+\] *=(?!=)|\.(?:pop|setdefault|update)\b)|\bputenv\("
)


def _shared_imports(
    check: Check, support: Sequence[PatchFile], place: RunLayout
) -> tuple[str, ...]:
    """Return the modules to import before the fork, without modules of the tree or the check."""
    before: tuple[str, ...] = ()
    if isinstance(check, EmulatedCheck):
        before = _GIVEN_CODE if check.compile else _EMULATOR
    modules = tuple(dict.fromkeys((*before, *_own_imports(check.file, support))))
    tops = {module.partition(".")[0] for module in (*modules, *(("triton",) if before else ()))}
    folders = {Path(folder) for folder in place.python_path.split(os.pathsep) if folder}
    if any((folder / top).exists() for folder in folders - {*place.tools} for top in tops):
        # The tree has such a module, which only a process in a sandbox may import.
        return ()
    return modules


def _own_imports(file: str, support: Sequence[PatchFile]) -> tuple[str, ...]:
    """Return the modules among `_SHARED` that the files of a check import."""
    content = {each.name: each.content for each in support}
    names, pending = set[str](), ["conftest.py", file]
    while pending:
        text = content.pop(pending.pop(), b"")
        if _SETS_VARIABLES.search(text):
            return ()
        found = {name.decode() for name in _IMPORT.findall(text)}
        names |= found
        pending += [f"{name}.py" for name in found]
    packages = {
        package for package in _SHARED for name in names if f"{name}.".startswith(f"{package}.")
    }
    return tuple(sorted({part for package in packages for part in _SHARED[package]}))


def run_attached(
    child: CheckProcess, words: Sequence[str], *, checks: Path, stdout: int | None
) -> CheckRun:
    """Run a check on a tree in this terminal, with pytest's arguments."""
    lay_out(child.folder, ())
    shown = {name: os.environ[name] for name in ("TERM", "NO_COLOR") if name in os.environ}
    command = child.command(attached=True)
    started = time.monotonic()
    status = process.attached(
        [*command, *_options(child.folder, checks), "--no-header", *words],
        cwd=checks,
        env=child.variables(str(checks), **shown),
        sandbox=None if process.no_sandbox() else child.folder,
        stdout=stdout,
    )
    seconds = time.monotonic() - started
    ended = {"timed_out": False, "flooded": False, "starved": False}
    run = child.result(process.Supervised(status, output=b"", seconds=seconds, **ended))
    if run.kind is RunFailure.STOPPED and status == _INTERRUPTED:
        raise KeyboardInterrupt
    if status == _USAGE:
        why = "pytest does not take these arguments, as it says above"
        raise UsageError(why, hint="see pytest --help")
    return run


def _options(folder: Path, checks: Path) -> list[str]:
    """Write pytest's configuration, and return the options of every run."""
    configuration = folder / "pytest.ini"
    configuration.write_text("[pytest]\n", encoding="utf-8")
    return [
        "-p", "no:cacheprovider", "-c", str(configuration), "--rootdir", str(checks),
        # A failed assertion in a thread fails the test.
        "-W", "error::pytest.PytestUnhandledThreadExceptionWarning",
    ]  # fmt: skip


def lay_out(folder: Path, support: Sequence[PatchFile]) -> Path:
    """Write the files of a run into its folder, and return the folder of the checks."""
    checks = folder / "checks"
    for file in support:
        target = checks / file.name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(file.content)
    for name in ("home", "tmp"):
        (folder / name).mkdir()
    return checks


def child_environment(
    place: RunLayout,
    stated: Mapping[str, str],
    *,
    threads: int,
    folder: Path,
    more: Mapping[str, str],
) -> dict[str, str]:
    """Return all environment variables of a check or bench on a tree."""
    return process.clean_environment(
        {
            # Checks run in parallel, each with its share of the cores.
            "OMP_NUM_THREADS": str(threads),
            # Triton derives TRITON_HOME from HOME at import, perhaps before a fork.
            "TRITON_HOME": str(folder / "home"),
            **stated,
            **place.env,
            "CONTRIBBOT_TREE": str(place.tree),
            "HOME": str(folder / "home"),
            "TMPDIR": str(folder / "tmp"),
            "PYTHONPATH": os.pathsep.join(filter(None, [place.python_path, process.own_path()])),
            "PYTHONDONTWRITEBYTECODE": "1",
            # Two runs must differ in the tree alone, so the order of sets is fixed.
            "PYTHONHASHSEED": "0",
            # A crash must not lose output.
            "PYTHONUNBUFFERED": "1",
            # Installed plug-ins of pytest must not change a run.
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            # The sandbox shows each folder that a variable names.
            "CONTRIBBOT_PATH": place.python_path,
            **more,
        }
    )


#: The system's message on a full disk (ENOSPC).
_NO_SPACE: Final = "No space left on device"
#: pytest's exit statuses for a session that reached its end: all tests passed, some failed, the
#: session was interrupted, no test was collected.
_PYTEST_ENDS: Final = frozenset({0, 1, 2, 5})
_INTERRUPTED: Final = 2
_USAGE: Final = 4
#: Python's message on a missing module.
_ABSENT: Final = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")
#: The largest size of a report in bytes: a hundred thousand tests fit.
_LARGEST: Final = 64 * 2**20


_UNLAUNCHED: Final = "launched no Triton kernel on the emulated GPU, so it shows nothing of it"
_UNSTORED: Final = (
    "no kernel wrote to a tensor, so that what is compared was there before: begin with other "
    "values where it writes"
)


class ReportLine(Model):
    """One line of the report of a check's process, written at the time of the event."""

    collected: tuple[str, ...] = ()  # the collected tests
    uncollected: FailedTest | None = None  # the error of a file that pytest could not collect
    begun: str = ""  # the test that starts
    #: A test or subtest with the outcome of one of its phases.
    ended: tuple[str, Literal["passed", "failed", "skipped"]] | None = None
    failed: FailedTest | None = None
    cell: CellRecord | None = None  # a cell of a numerics grid
    launched: bool = True  # whether a kernel was launched on the emulated GPU
    stored: bool = True  # whether an emulated kernel wrote to a tensor
    status: int | None = None  # pytest's exit status, in the last line
    imported: Many[str] = ()
    absent: Many[str] = ()
    programs: bool = True  # whether a started program may have imported further modules
    stopped: bool = False  # whether the session was stopped by Ctrl-C or `pytest.exit`


def read_report(report: Path, done: process.Supervised, *, limit: float, scrub: Scrub) -> CheckRun:
    """Return the result of a run from the report file and from the end of the process."""
    run = CheckRun(seconds=done.seconds, limit=limit)
    if report.is_file() and report.stat().st_size > _LARGEST:
        run.kind, run.trouble = RunFailure.MEDDLED, "reported too much"
        return run
    lines, whole = list[ReportLine](), True
    text = report.read_text(encoding="utf-8", errors="replace") if report.is_file() else ""
    try:
        for row in text.splitlines():
            lines.append(ReportLine.model_validate_json(row))
    except ValidationError:
        whole = False  # the process died while it wrote a line, or a check wrote into the report

    def scrubbed(*failures: FailedTest | None) -> list[FailedTest]:
        return [replace(f, message=scrub(f.message)) for f in failures if f is not None]

    outcomes: dict[str, str] = {}
    for test, outcome in (line.ended for line in lines if line.ended):
        before = outcomes.get(test)
        if before == "skipped" and outcome == "passed":
            run.partly.append(test)
        # A failing teardown counts more than a passed call; nothing counts more than a failure.
        if before != "failed":
            outcomes[test] = outcome
    run.passed = [test for test, outcome in outcomes.items() if outcome == "passed"]
    run.skipped = [test for test, outcome in outcomes.items() if outcome == "skipped"]
    run.failed = scrubbed(*(line.failed for line in lines))
    cells = (line.cell for line in lines if line.cell)
    run.cells = [cell.model_copy(update={"failed": scrub(cell.failed)}) for cell in cells]
    end = next((line for line in lines if whole and line.status is not None), ReportLine())
    run.status, run.programs = end.status, end.programs
    run.imported, run.absent = frozenset(end.imported), frozenset(end.absent)
    uncollected = scrubbed(*(line.uncollected for line in lines))
    absent = (_ABSENT.findall(failure.message) for failure in (*run.failed, *uncollected))
    run.missing = tuple(dict.fromkeys(name for names in absent for name in names))
    begun = next((line.begun for line in reversed(lines) if line.begun), "")
    tests = {test: outcomes.get(test) for line in lines for test in line.collected}
    failure = (
        _ended_badly(run, done, uncollected, begun, report.parent)
        or _unusable(run, uncollected, tests, stopped=end.stopped)
    )  # fmt: skip
    launched = all(line.launched for line in lines)
    if not (failure or run.failed or (launched and all(line.stored for line in lines))):
        failure = RunFailure.EMPTY, _UNSTORED if launched else _UNLAUNCHED
    run.kind, run.trouble = failure or (None, "")
    return run


def _ended_badly(
    run: CheckRun, done: process.Supervised, uncollected: list[FailedTest], test: str, folder: Path
) -> tuple[RunFailure, str] | None:
    """Return the failure that ended a run early, with a sentence; None: pytest reached its end."""
    ended = run.status == done.returncode and done.returncode in _PYTEST_ENDS
    said = any(_NO_SPACE in failure.message for failure in (*run.failed, *uncollected))
    # A check may print these words although the disk is not full.
    full = _NO_SPACE.encode() in done.output and (said or not ended or is_full(folder))
    during = f" in {test}" if test else ""
    signal = process.signal_name(-done.returncode)
    code = done.returncode
    ends = (
        (done.timed_out, RunFailure.TIMED_OUT, f"hung{during}: killed after {run.limit:g} s"),
        (done.flooded, RunFailure.CRASHED, f"wrote too much output{during}: killed"),
        (full, RunFailure.DISK_FULL, f"the disk is full{during}"),
        (done.starved, RunFailure.NO_MEMORY, f"out of memory{during}: killed by the kernel"),
        (code < 0, RunFailure.CRASHED, f"crashed{during}: {signal}"),
        (not ended, RunFailure.CRASHED, f"ended early{during} with exit status {code}"),
    )
    return next(((kind, text) for holds, kind, text in ends if holds), None)


def _unusable(
    run: CheckRun, uncollected: list[FailedTest], tests: Mapping[str, str | None], *, stopped: bool
) -> tuple[RunFailure, str] | None:
    """Return why a run that reached its end shows nothing; None: the run has results."""
    if uncollected:
        kind = uncollected[-1].kind
        by_machine = uncollected[-1].by_machine
        kind = RunFailure.MISTAKE if kind is None or by_machine else kind
        return kind, f"could not be collected: {uncollected[-1].first}"
    if missed := [test for test, outcome in tests.items() if outcome is None]:
        return RunFailure.STOPPED, f"stopped before {missed[0]} had run"
    if stopped or run.status == _INTERRUPTED:
        return RunFailure.STOPPED, "its session was stopped"
    for failure in run.failed:
        if failure.when != "call" and failure.kind is None:
            return RunFailure.FIXTURE, f"error in {failure.when} of {failure.test}: {failure.first}"
    if not run.ran:
        skipped = f" ({len(run.skipped)} skipped)" if run.skipped else ""
        return RunFailure.EMPTY, f"executed no test{skipped}"
    return None
