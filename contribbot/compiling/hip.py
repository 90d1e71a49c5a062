"""Compiling HIP C++ to a listing, on a machine that need not have an AMD GPU."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from contribbot import process
from contribbot.compiling.cache import Compiled, alone, key_of, recall, remember
from contribbot.compiling.lacking import STARVED, lacking
from contribbot.compiling.listing import ASSEMBLY
from contribbot.hardware.toolchain import Lacking, Toolchain, find_toolchain

#: Headers that stand in for what a plain clang does not find; see README.md there.
HEADERS: Final = Path(__file__).parent / "headers"
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


@dataclass(frozen=True)
class Source:
    """What is compiled, and how.

    Attributes:
        path: The file.
        include: Include roots, in order.
        defines: Macros, as `NAME` or `NAME=VALUE`.
        standard: The C++ standard.
        torch: Whether torch's headers are needed.
        folders: Folders that stand for the tree: their names must not matter.
    """

    path: Path
    include: tuple[Path, ...]
    defines: tuple[str, ...]
    standard: str
    torch: bool
    folders: tuple[Path, ...]


@dataclass(frozen=True)
class _Written:
    """What a compiler wrote, and how many seconds it took."""

    content: bytes
    seconds: float


def toolchain(target: str) -> Toolchain | Lacking:
    """Return what compiles HIP for a target on this machine."""
    return find_toolchain(target, HEADERS)


def torch_include() -> Path | None:
    """Return torch's include folder, without importing torch; None: there is none."""
    spec = importlib.util.find_spec("torch")
    for place in (spec.submodule_search_locations or ()) if spec is not None else ():
        include = Path(place) / "include"
        if (include / "torch").is_dir():
            return include
    return None


def headers_digest() -> str:
    """Return the SHA-256 over the stand-in headers, in hexadecimal."""
    total = hashlib.sha256()
    for path in sorted(HEADERS.rglob("*.h")):
        total.update(path.relative_to(HEADERS).as_posix().encode())
        total.update(path.read_bytes())
    return total.hexdigest()


def compile_hip(
    source: Source,
    target: str,
    *,
    using: Toolchain,
    folder: Path,
    timeout: float,
    scrub: Callable[[str], str],
) -> Compiled:
    """Compile a source for a target and read the listing."""
    call = _Call(source, target, using, folder, timeout, _scrub_further(scrub, using))
    expanded = call.make("-E")
    if isinstance(expanded, Compiled):
        return expanded
    key = key_of(expanded.content, call.told, using.identity)
    with alone(key):
        known = recall(key)
        if known is not None:
            return known.model_copy(update={"command": call.command})
        result = _listed(call, expanded.seconds)
        # An error tells its line, which another comment moves; it is also soon found again.
        if result.listing is not None:
            remember(key, result)
        return result


def _listed(call: _Call, seconds: float) -> Compiled:
    """Make and read the listing; `seconds` went before."""
    listed = call.make("-S")
    if isinstance(listed, Compiled):
        return listed
    seconds += listed.seconds
    text = listed.content.decode("utf-8", "replace")
    if ASSEMBLY in text:
        # A listing repeats what a source holds of it; only making code of it reads it.
        made = call.make("-S", "-Xclang", "-emit-obj")
        if isinstance(made, Compiled):
            return made
        seconds += made.seconds
    return Compiled.of_listing(text, call.target, command=call.command, seconds=seconds)


@dataclass(frozen=True)
class _Call:
    """How the compiler is called for one source."""

    source: Source
    target: str
    using: Toolchain
    folder: Path
    timeout: float
    scrub: Callable[[str], str]

    @functools.cached_property
    def arguments(self) -> list[str]:
        """What the compiler is told, beside what it shall make of which file."""
        return _arguments(self.source, self.target, self.using)

    @functools.cached_property
    def told(self) -> list[str]:
        """The command, without folders of this machine."""
        words = (*self.using.command, *self.arguments, "-S", str(self.source.path))
        return [self.scrub(one) for one in words]

    @property
    def command(self) -> str:
        """The command, as one would type it."""
        return process.describe(self.told)

    def make(self, *how: str) -> _Written | Compiled:
        """Return what the compiler writes when told how; or how it failed."""
        output = self.folder / "output"
        done = process.supervise(
            [*self.using.argv, *self.arguments, *how, "-o", output, self.source.path],
            cwd=self.folder, timeout=self.timeout, env=_environment(self.folder), tethered=True,
        )  # fmt: skip
        if done.returncode != 0:
            return _trouble(done, self)
        try:
            written = _Written(output.read_bytes(), done.seconds)
            # Preprocessed, a source is large, and nobody needs it any more.
            output.unlink()
        except FileNotFoundError:
            return Compiled(crashed=f"{self.using.name} wrote nothing", command=self.command)
        return written


def _environment(folder: Path) -> dict[str, str]:
    """Return the compiler's environment: no variable that finds it other headers or libraries."""
    clean = process.clean_environment({"HOME": str(folder), "TMPDIR": str(folder)})
    return {name: value for name, value in clean.items() if not name.startswith(_STEERING)}


def _scrub_further(scrub: Callable[[str], str], using: Toolchain) -> Callable[[str], str]:
    """Name the folders of headers by what they are, wherever they lie."""
    named = [(str(HEADERS), "<stand-ins>"), *using.folders]
    torch = torch_include()
    if torch is not None:
        named.append((str(torch), "<torch>/include"))

    def further(text: str) -> str:
        for folder, placeholder in named:
            text = text.replace(folder, placeholder)
        return scrub(text)

    return further


def _arguments(source: Source, target: str, using: Toolchain) -> list[str]:
    """Return what the compiler is told, beside what it shall make of which file."""
    torch = torch_include() if source.torch else None
    system: Sequence[Path] = ()
    if torch is not None:
        system = (HEADERS / "torch_cpu", torch, torch / "torch/csrc/api/include")
    return [
        "-x", "hip", "--cuda-device-only", f"--offload-arch={target}", f"-std={source.standard}",
        "-O3", "-D__HIP_PLATFORM_AMD__",
        *(f"-D{macro}" for macro in source.defines),
        *(f"-I{root}" for root in source.include), *using.flags,
        *(word for root in system for word in ("-isystem", str(root))),
        # The folder's name must not get into what is compiled (__FILE__).
        *(f"-ffile-prefix-map={one}=." for one in source.folders),
        "-w", "-ferror-limit=1", "-fno-color-diagnostics", "-fno-caret-diagnostics",
    ]  # fmt: skip


def _trouble(done: process.Supervised, call: _Call) -> Compiled:
    """Say how a compiler failed."""
    said = call.scrub(done.output.decode("utf-8", "replace"))
    if lacked := lacking(done, said, call.timeout):
        missing = f"{call.using.name}: {lacked}"
        return Compiled(
            missing=missing, starved=lacked == STARVED, command=call.command, seconds=done.seconds
        )
    if crash := _crash(done, said):
        crashed = f"{call.using.name}: {crash}"
        return Compiled(crashed=crashed, command=call.command, seconds=done.seconds)
    first = _ERROR.search(said)
    lines = said.strip().splitlines() or [f"exit status {done.returncode}, and not a word"]
    error = first[0] if first else lines[-1]
    missing = _missing(error, call.using)
    return Compiled(error=error, missing=missing, command=call.command, seconds=done.seconds)


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
