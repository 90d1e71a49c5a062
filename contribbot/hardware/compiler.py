"""A toolchain at work: it compiles, assembles, and says what its assembler reads."""

from __future__ import annotations

import re
import shlex
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from contribbot import process
from contribbot.hardware.build_cache import Compiled, CompileError
from contribbot.hardware.listing import read_listing, without_facts
from contribbot.hardware.toolchain import Toolchain

STARVED: Final = "killed, or out of memory"
_FULL_DISK: Final = re.compile(r"No space left on device", re.IGNORECASE)
#: What clang's driver says of a compiler that was killed, and those that got no memory.
_NO_MEMORY: Final = re.compile(
    r"unable to execute command: Killed|LLVM ERROR: out of memory|std::bad_alloc"
    r"|[Cc]annot allocate memory|^MemoryError\b",
    re.MULTILINE,
)


_ERROR: Final = re.compile(r"^(?P<place>[^\n]*?):? ?\b(?:fatal )?error: .*$", re.MULTILINE)
#: What the driver says when the compiler proper did not end by itself.
_CRASH: Final = re.compile(
    r"fatal error: error in backend: (?P<back>.+)|clang frontend command failed|"
    r"PLEASE submit a bug report|unable to execute command: (?P<how>.+)"
)
#: What a program ends with that was not there (POSIX shells, and os.spawnvp).
_NOT_STARTED: Final = 127
#: Prefixes of variables by which clang finds ROCm; it is told on its command line.
_STEERING: Final = ("HIP_", "ROCM_")
#: Headers that come with ROCm, or with a ROCm build of torch, and have no stand-in.
_TORCH_HEADER: Final = re.compile(
    r"fatal error: '(torch/(?:csrc|headeronly)/[^']+)' file not found"
)
_ROCM_HEADER: Final = re.compile(
    r"fatal error: '((?:hip|hipblas|hipblaslt|hipcub|hipdnn|hipfft|hiprand|hipsolver|hipsparse"
    r"|rccl|rocblas|rocfft|rocprim|rocrand|rocsolver|rocthrust|rocwmma|thrust|ck|ck_tile"
    r"|ATen/hip|c10/hip)/[^']+)' file not found"
)


#: How the driver calls its assembler.
_ASSEMBLER: Final = re.compile(r'^ (".+" "-cc1as" .+)$', re.MULTILINE)


@dataclass
class Compiler:
    """A toolchain that works on one source in a folder of its own."""

    using: Toolchain
    target: str
    folder: Path
    timeout: float
    scrub: Callable[[str], str]
    #: What is told of how it was called.
    command: str
    #: How long its programs have run.
    seconds: float = 0.0

    @property
    def output(self) -> Path:
        """Where it writes."""
        return self.folder / "output"

    def run(self, argv: Sequence[str | Path]) -> bytes:
        """Return what a program writes to `output`."""
        self._supervised(argv)
        try:
            written = self.output.read_bytes()
            # Preprocessed, a source is large, and nobody needs it any more.
            self.output.unlink()
        except FileNotFoundError:
            raise self.failure(Compiled(crashed=f"{self.using.name} wrote nothing")) from None
        return written

    def read(self, listing: bytes) -> Compiled:
        """Assemble a listing, and read what became of it."""
        text = listing.decode("utf-8", "replace")
        try:
            assemble = self._assembler(without_facts(text))
            content = self.run(assemble)
            encodings = self.run([*assemble, "-filetype", "asm", "-show-encoding"])
            found = read_listing(text, encodings.decode("utf-8", "replace"), content, self.target)
        except CompileError as failure:
            if not failure.result.error:
                raise
            unread = failure.result.error
        except (ValueError, LookupError, struct.error) as error:
            unread = str(error)
        else:
            return Compiled(listing=found, command=self.command, seconds=self.seconds)
        raise self.failure(
            Compiled(missing=f"{self.using.name} cannot read the code back: {unread}")
        )

    def _assembler(self, text: str) -> list[str]:
        """Return how the driver calls its assembler for a text."""
        path = self.folder / "listing.s"
        path.write_text(text, encoding="utf-8")
        # Not every release of clang passes on what its assembler alone understands.
        told = self._supervised(
            [*self.using.argv, "-###", "-x", "assembler", "--target=amdgcn-amd-amdhsa",
             f"-mcpu={self.target}", "-c", "-o", self.output, path]
        )  # fmt: skip
        called = _ASSEMBLER.search(told.output.decode("utf-8", "replace"))
        if not called:
            raise self.failure(Compiled(missing=f"{self.using.name} does not say how it assembles"))
        return shlex.split(called[1])

    def _supervised(self, argv: Sequence[str | Path]) -> process.Supervised:
        done = process.supervise(
            argv, cwd=self.folder, timeout=self.timeout, env=_environment(self.folder),
            tethered=True,
        )  # fmt: skip
        self.seconds += done.seconds
        if done.returncode != 0:
            raise self._trouble(done)
        return done

    def failure(self, result: Compiled) -> CompileError:
        """Return what ends a compile."""
        told = {"command": self.command, "seconds": self.seconds}
        return CompileError(result.model_copy(update=told))

    def _trouble(self, done: process.Supervised) -> CompileError:
        """Say how a compiler failed."""
        said = self.scrub(done.output.decode("utf-8", "replace"))
        if lacked := lacking(done, said, self.timeout):
            missing = f"{self.using.name}: {lacked}"
            return self.failure(Compiled(missing=missing, starved=lacked == STARVED))
        if crash := _crash(done, said):
            return self.failure(Compiled(crashed=f"{self.using.name}: {crash}"))
        first = _ERROR.search(said)
        lines = said.strip().splitlines() or [f"exit status {done.returncode}, and not a word"]
        error = first[0] if first else lines[-1]
        return self.failure(Compiled(error=error, missing=_missing(error, self.using)))


def _environment(folder: Path) -> dict[str, str]:
    """Return the compiler's environment: no variable that finds it other headers or libraries."""
    clean = process.clean_environment({"HOME": str(folder), "TMPDIR": str(folder)})
    return {name: value for name, value in clean.items() if not name.startswith(_STEERING)}


def _crash(done: process.Supervised, said: str) -> str:
    """Say how a compiler ended other than by itself, or nothing."""
    if done.flooded:
        return "it never stopped writing, and was ended"
    if done.returncode < 0:
        return f"killed by signal {-done.returncode}"
    if done.returncode == _NOT_STARTED:
        return "it could not be started"
    crash = _CRASH.search(said)
    return f"crashed: {(crash['how'] or crash['back'] or crash[0]).strip()}" if crash else ""


def _missing(error: str, using: Toolchain) -> str:
    """Say which header this machine lacks, where an error is about one; or nothing."""
    if header := _TORCH_HEADER.search(error):
        return f"needs <{header[1]}>, which the torch here has not: install the torch it is for"
    if using.kind != "rocm" and (header := _ROCM_HEADER.search(error)):
        return f"needs <{header[1]}>, for which contribbot has no stand-in: install ROCm"
    return ""


def lacking(done: process.Supervised, said: str, timeout: float) -> str:
    """Say what this machine lacked for a compiler that failed, or nothing."""
    if _FULL_DISK.search(said):
        raise process.no_space("what a compiler writes")
    if done.timed_out:
        return f"not finished after {timeout:g} s"
    # Killed by whom counts: a kernel's file runs under Triton, and can end its own process.
    return STARVED if done.starved or _NO_MEMORY.search(said) else ""
