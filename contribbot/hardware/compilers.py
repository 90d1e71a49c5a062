"""Looking at a clang: its version, the AMD targets that it knows, whether it compiles HIP."""

from __future__ import annotations

import hashlib
import json
import re
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from contribbot import process
from contribbot.errors import CommandError, MachineError
from contribbot.files import write_atomically

#: What is compiled to see whether a compiler and its headers work at all.
_SAMPLE: Final = """\
#include <hip/hip_runtime.h>
#include <cmath>
#include <type_traits>
extern "C" __global__ void sample(float* values) {
  values[blockIdx.x * blockDim.x + threadIdx.x] += sqrtf(values[threadIdx.x]);
}
"""
#: A target that every compiler in question has known for long.
_SAMPLE_TARGET: Final = "gfx90a"
_SECONDS: Final = 120.0


@dataclass(frozen=True)
class Compiler:
    """What was seen of a compiler.

    Attributes:
        version: Its version.
        targets: The AMD targets that it knows.
        identity: SHA-256 over what it says of itself, its size and its time.
        trouble: Why it cannot be used, or empty.
    """

    version: str = "0"
    targets: tuple[str, ...] = ()
    identity: str = ""
    trouble: str = ""


def examine(compiler: Path, flags: tuple[str, ...], cache: Path, *, oldest: int) -> Compiler:
    """Look at a compiler; what is good is remembered until the program changes.

    Args:
        compiler: The program.
        flags: How it finds HIP's headers.
        cache: Where that is remembered.
        oldest: The first release of clang that will do.
    """
    stat = compiler.stat()
    told = json.dumps([str(compiler), stat.st_mtime_ns, stat.st_size, oldest, *flags])
    remembered = cache / f"{hashlib.sha256(told.encode()).hexdigest()}.json"
    try:
        known = json.loads(remembered.read_bytes())
        return Compiler(known["version"], tuple(known["targets"]), known["identity"])
    except (OSError, ValueError, KeyError, TypeError):
        seen = _look(compiler, flags, told, oldest)
    if not seen.trouble:
        write_atomically(remembered, json.dumps(asdict(seen)).encode())
    return seen


def _look(compiler: Path, flags: tuple[str, ...], told: str, oldest: int) -> Compiler:
    try:
        banner = process.run([compiler, "--version"], timeout=_SECONDS).stdout.decode()
        version = re.search(r"clang version (\d+(?:\.\d+)*)", banner)
        if not version:
            return Compiler(trouble=f"{compiler.name} is no clang that says its version")
        if int(version[1].partition(".")[0]) < oldest:
            return Compiler(trouble=f"{compiler.name} is clang {version[1]}: {oldest} is needed")
        identity = hashlib.sha256(f"{banner}{told}".encode()).hexdigest()
        targets = _targets(compiler)
        if not targets:
            return Compiler(trouble=f"{compiler.name} was built without the AMDGPU back end")
        trouble = _try(compiler, flags)
        return Compiler(version[1], targets, identity, trouble)
    except MachineError as error:
        # Records name no folder of this machine.
        why = _short(error).replace(str(compiler), "it")
        return Compiler(trouble=f"{compiler.name} does not work: {why}")


def _targets(compiler: Path) -> tuple[str, ...]:
    argv: list[str | Path] = [
        compiler,
        "--target=amdgcn-amd-amdhsa",
        "-nogpulib",
        "--print-supported-cpus",
    ]
    done = process.run(argv, timeout=_SECONDS, accept=range(128))
    said = (done.stdout + done.stderr).decode("utf-8", "replace")
    return tuple(re.findall(r"^\s+(gfx[0-9a-f]+)$", said, re.MULTILINE))


def _try(compiler: Path, flags: tuple[str, ...]) -> str:
    """Compile the sample and say what is wrong, or nothing."""
    with tempfile.TemporaryDirectory(prefix="contribbot-") as folder:
        source = Path(folder) / "sample.hip"
        source.write_text(_SAMPLE, encoding="utf-8")
        argv: list[str | Path] = [
            compiler, "-x", "hip", "--cuda-device-only", f"--offload-arch={_SAMPLE_TARGET}",
            *flags, "-D__HIP_PLATFORM_AMD__", "-std=c++20", "-S",
            "-o", Path(folder) / "sample.s", source,
        ]  # fmt: skip
        try:
            process.run(argv, cwd=Path(folder), timeout=_SECONDS)
        except CommandError as error:
            first = re.search(r"\berror: (.+)", error.stderr)
            why = first[1] if first else _short(error)
            return f"{compiler.name} does not compile a small HIP kernel: {why}"
    return ""


def _short(error: MachineError) -> str:
    """Say how a program failed, without the command with this machine's folders."""
    if isinstance(error, CommandError):
        if error.returncode < 0:
            return f"killed by signal {-error.returncode}"
        last = error.stderr.splitlines()[-1] if error.stderr else "it said nothing"
        return f"exit status {error.returncode}: {last}"
    return error.message
