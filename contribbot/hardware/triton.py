"""Compiling Triton kernels for AMD targets: triton needs neither a GPU nor ROCm."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import JsonValue, TypeAdapter, ValidationError

from contribbot import process
from contribbot.hardware.build_cache import Compiled, CompileError
from contribbot.hardware.hip import STARVED, Compiler, lacking
from contribbot.hardware.targets import wavefront_of
from contribbot.hardware.toolchain import Toolchain, triton_version

_CHILD: Final = Path(__file__).with_name("triton_child.py")
_ANSWER: Final = TypeAdapter(dict[str, JsonValue])


@dataclass(frozen=True)
class TritonSource:
    """A kernel, and how it is called: what `patch.toml` states, and folders for Python's path."""

    path: Path
    function: str
    signature: Mapping[str, str]
    constants: Mapping[str, JsonValue]
    num_warps: int
    python: Sequence[Path]


def triton_missing() -> str:
    """Say that triton is not installed here, or nothing."""
    if importlib.util.find_spec("triton") is None:
        return "triton is not installed: pip install triton"
    return ""


def triton_name() -> str:
    """Return triton's name and version."""
    return f"triton {triton_version()}"


def compile_triton(
    source: TritonSource,
    target: str,
    *,
    using: Toolchain,
    folder: Path,
    timeout: float,
    scrub: Callable[[str], str],
) -> Compiled:
    """Compile a kernel for a target, and read the code with a toolchain's assembler."""
    request, answer = folder / "request.json", folder / "answer.json"
    asked = {
        "file": str(source.path), "function": source.function, "target": target,
        "signature": dict(source.signature), "constants": dict(source.constants),
        "num_warps": source.num_warps, "wavefront": wavefront_of(target),
    }  # fmt: skip
    request.write_text(json.dumps(asked), encoding="utf-8")
    path = [*map(str, source.python), process.own_path()]
    # A process of its own, away from this machine's settings.
    done = process.supervise(
        # -P: modules beside the script must not stand before triton and the tree's.
        [sys.executable, "-B", "-P", _CHILD, request, answer],
        cwd=folder,
        timeout=timeout,
        env=process.clean_environment(
            {
                "HOME": str(folder),
                "TMPDIR": str(folder),
                "TRITON_CACHE_DIR": str(folder / "triton"),
                "PYTHONPATH": os.pathsep.join(filter(None, path)),
                "OMP_NUM_THREADS": "1",
            }
        ),
    )
    command = scrub(
        f"triton.compile({source.function} of {source.path}, "
        f'GPUTarget("hip", "{target}", {asked["wavefront"]}), num_warps={source.num_warps})'
    )
    compiler = Compiler(using, target, folder, timeout, scrub, command, done.seconds)
    try:
        return compiler.read(_listing(compiler, done, answer))
    except CompileError as failure:
        return failure.result


def _listing(compiler: Compiler, done: process.Supervised, file: Path) -> bytes:
    """Return the listing that the child answered."""
    try:
        answer = _ANSWER.validate_json(file.read_bytes())
    except (OSError, ValidationError):
        answer = {}  # it did not come to that
    if "listing" in answer:
        return str(answer["listing"]).encode()
    output = done.output.decode("utf-8", "replace")
    error = compiler.scrub(str(answer.get("error", "")))
    if lacked := lacking(done, error or output, compiler.timeout):
        missing = f"{triton_name()}: {lacked}"
        raise compiler.failure(missing=missing, starved=lacked == STARVED)
    if not answer:
        last = "".join(output.strip().splitlines()[-1:])
        how = f"exit status {done.returncode}: {last}"
        if done.returncode < 0:
            how = f"killed by signal {-done.returncode}"
        raise compiler.failure(crashed=f"{triton_name()}: {how}")
    missing = ""
    if answer.get("unknown_target"):
        missing = f"{triton_name()} does not know {compiler.target}"
    elif answer.get("broken"):
        missing = f"the file cannot be imported here: {error}"
    raise compiler.failure(error=error, missing=missing)
