"""Compiling HIP C++ to a listing, on a machine that need not have an AMD GPU."""

from __future__ import annotations

import hashlib
import importlib.util
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from contribbot import process
from contribbot.compiling.cache import Compiled, alone, key_of, recall, remember
from contribbot.compiling.listing import read_listing
from contribbot.hardware.toolchain import Lacking, Toolchain, find_toolchain

#: Headers that stand in for what a plain clang does not find; see README.md there.
HEADERS: Final = Path(__file__).parent / "headers"
_ERROR: Final = re.compile(r"^(?P<place>[^\n]*?):? ?\b(?:fatal )?error: .*$", re.MULTILINE)
#: What the driver says when the compiler proper did not end by itself.
_CRASH: Final = re.compile(
    r"clang frontend command failed|PLEASE submit a bug report|"
    r"unable to execute command: (?P<how>.+)|LLVM ERROR: out of memory"
)
_FULL_DISK: Final = re.compile(r"No space left on device", re.IGNORECASE)
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


def toolchain() -> Toolchain | Lacking:
    """Return the toolchain for HIP of this machine."""
    return find_toolchain(HEADERS)


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
    """Compile a source for a target and read the listing.

    Args:
        source: The source.
        target: The target, one that the toolchain knows.
        using: The toolchain.
        folder: An empty folder for this compile.
        timeout: Seconds that each of preprocessing and compiling may take.
        scrub: Takes folders of this machine out of a text.

    Raises:
        MachineError: The compiler could not be started.
        NoSpaceError: The disk is full.
    """
    arguments = _arguments(source, target, using)
    scrub = _scrub_further(scrub, using)
    told = [scrub(one) for one in (using.compiler.name, *arguments, "-S", str(source.path))]
    command = process.describe(told)

    def run(*more: str) -> tuple[process.Supervised, Compiled | None]:
        argv = [str(using.compiler), *arguments, *more, str(source.path)]
        done = process.supervise(
            argv, cwd=folder, timeout=timeout,
            env=process.clean_environment({"HOME": str(folder), "TMPDIR": str(folder)}),
        )  # fmt: skip
        return done, _trouble(done, command, using, timeout, scrub)

    expanded, listed = folder / "expanded.ii", folder / "listing.s"
    first, trouble = run("-E", "-o", str(expanded))
    if trouble is not None:
        return trouble
    key = key_of(expanded.read_bytes(), told, using.identity)
    with alone(key):
        known = recall(key)
        if known is not None:
            return known.model_copy(update={"command": command})
        second, trouble = run("-S", "-o", str(listed))
        text = "" if trouble is not None else listed.read_text(encoding="utf-8", errors="replace")
        result = trouble or Compiled(listing=read_listing(text, target), command=command)
        result = result.model_copy(update={"seconds": first.seconds + second.seconds})
        # The largest of what is written here, and nobody needs them any more.
        expanded.unlink()
        listed.unlink(missing_ok=True)
        # An error tells its line, which another comment moves; it is also soon found again.
        if result.listing is not None:
            remember(key, result)
        return result


def _scrub_further(scrub: Callable[[str], str], using: Toolchain) -> Callable[[str], str]:
    """Name the folders of headers by what they are, wherever they lie."""
    named = [(str(HEADERS), "<stand-ins>"), (str(using.root), "<hip>")]
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


def _trouble(
    done: process.Supervised,
    command: str,
    using: Toolchain,
    timeout: float,
    scrub: Callable[[str], str],
) -> Compiled | None:
    """Say how a compiler failed; None: it did not."""
    if done.timed_out:
        crashed = f"{using.name}: not finished after {timeout:g} s"
        return Compiled(crashed=crashed, command=command, seconds=done.seconds)
    if done.returncode == 0:
        return None
    said = scrub(done.output.decode("utf-8", "replace"))
    if _FULL_DISK.search(said):
        raise process.no_space("what a compiler writes")
    if done.returncode < 0:
        crashed = f"{using.name}: killed by signal {-done.returncode}"
        return Compiled(crashed=crashed, command=command, seconds=done.seconds)
    if crash := _CRASH.search(said):
        how = crash["how"] or crash[0]
        crashed = f"{using.name} crashed: {how.strip()}"
        return Compiled(crashed=crashed, command=command, seconds=done.seconds)
    first = _ERROR.search(said)
    lines = said.strip().splitlines() or [f"exit status {done.returncode}, and not a word"]
    error = first[0] if first else lines[-1]
    return Compiled(
        error=error, missing=_missing(error, using), command=command, seconds=done.seconds
    )


def _missing(error: str, using: Toolchain) -> str:
    """Say which header this machine lacks, where an error is about one; or nothing."""
    if header := _TORCH_HEADER.search(error):
        return f"needs <{header[1]}>, which the torch here has not: install the torch it is for"
    if using.kind == "clang" and (header := _ROCM_HEADER.search(error)):
        return f"needs <{header[1]}>, for which contribbot has no stand-in: install ROCm"
    return ""
