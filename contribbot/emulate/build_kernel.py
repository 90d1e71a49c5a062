"""From a source to a kernel, by the compilers that the `compile` stage uses."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from contribbot.emulate.code_object import Kernel, load
from contribbot.errors import MachineError, UsageError
from contribbot.hardware.build_cache import CompileError
from contribbot.hardware.hip import HipSource, code_object, hip_toolchain
from contribbot.hardware.toolchain import Lacking, Toolchain
from contribbot.hardware.triton import TritonSource, triton_code_object

_SECONDS = 300.0


def compile_hip(
    source: str | Path,
    target: str,
    *,
    include: Sequence[Path] = (),
    defines: Sequence[str] = (),
    standard: str = "c++20",
    torch: bool = False,
) -> dict[str, Kernel]:
    """Compile HIP C++ for a target.

    Args:
        source: The text, or the path of a file.
        target: Such as `gfx942`.
        include: Folders for `#include`.
        defines: Macros, as `NAME` or `NAME=VALUE`.
        standard: The standard of C++.
        torch: Whether torch's headers are needed.

    Returns:
        The kernels of the source, by name (C++ names are mangled; `extern "C"` keeps them).

    Raises:
        UsageError: It does not compile; the error names the line.
        MachineError: No compiler here knows the target.
    """
    with tempfile.TemporaryDirectory(prefix="contribbot-") as name:
        folder = Path(name)
        path = source.absolute() if isinstance(source, Path) else folder / "kernel.hip"
        if isinstance(source, str):
            path.write_text(source, encoding="utf-8")
        hip = HipSource(path, tuple(include), tuple(defines), standard, torch, (folder,))
        using = toolchain(target)
        try:
            content, _ = code_object(hip, target, using=using, folder=folder, timeout=_SECONDS)
        except CompileError as error:
            raise _told(error, folder) from error
    return load(content)


def compile_triton(
    path: Path,
    function: str,
    target: str,
    signature: Mapping[str, str],
    *,
    constants: Mapping[str, int | float | str | bool | None] | None = None,
    num_warps: int = 4,
    num_stages: int | None = None,
) -> Kernel:
    """Compile a Triton kernel for a target.

    Args:
        path: The file that defines it.
        function: Its name there.
        target: Such as `gfx942`.
        signature: The type of each parameter, such as `*fp32:16` or `i32`, or `constexpr`.
        constants: The values of the constant parameters; a type is the string `tl.float32`.
        num_warps: Waves of a workgroup.
        num_stages: Stages of a loop's pipeline; None: as triton chooses for the target.

    Returns:
        The kernel. Its last arguments are pointers to scratch memory of triton's own: 0 will do.

    Raises:
        UsageError: It does not compile.
        MachineError: This machine lacks what that takes.
    """
    source = TritonSource(
        path, function, signature, dict(constants or {}), num_warps, (), num_stages
    )
    with tempfile.TemporaryDirectory(prefix="contribbot-") as name:
        using = toolchain(target)
        try:
            content, shared = triton_code_object(
                source, target, using=using, folder=Path(name), timeout=_SECONDS
            )
        except CompileError as error:
            raise _told(error, Path(name)) from error
    return replace(next(iter(load(content).values())), shared=shared)


def toolchain(target: str) -> Toolchain:
    """Return the compiler for a target."""
    found = hip_toolchain(target)
    if isinstance(found, Lacking):
        raise MachineError(found.reason)
    return found


def _told(error: CompileError, folder: Path) -> UsageError | MachineError:
    result = error.result
    text = (result.error or str(error)).replace(f"{folder}/", "")
    return UsageError(text) if result.error and not result.missing else MachineError(text)
