"""The lacks of this machine for the units of a patch, each in one line with the next step."""

from __future__ import annotations

import importlib.util
from typing import Final

from contribbot.compile.build import build_tools, missing_for_recipe
from contribbot.compile.hip import torch_include
from contribbot.compile.toolchain import INSTALL, Lacking, Toolchain
from contribbot.compile.triton import triton_missing, triton_unread
from contribbot.model.checks import Build, Compile, Needy
from contribbot.model.evidence import Machine
from contribbot.model.pin import Upstream

_TORCH: Final = "torch, whose headers are needed, is not installed: pip install torch"
#: The commands that install modules. Of aiter: its README, "Installation"; the aiter of PyPI is
#: another project.
INSTALLS: Final = {
    "aiter": "git clone --recursive https://github.com/ROCm/aiter.git && cd aiter && "
    "python3 setup.py develop",
    "expecttest": "python -m pip install expecttest",  # what PyTorch's own tests are written with
    "torch": "python -m pip install torch",
    "triton": INSTALL,
}
#: The modules that the emulator imports.
_EMULATOR: Final = ("tinygrad", "elftools", "msgpack")


def present(module: str) -> bool:
    """Tell whether a module is installed, without an import."""
    return importlib.util.find_spec(module.partition(".")[0]) is not None


def absent_modules(what: Needy) -> list[str]:
    """Return the required modules that are not installed."""
    return [name for name in what.modules if not present(name)]


def missing_here(machine: Machine, what: Needy) -> str:
    """Return a machine's lack for a check or bench, or nothing."""
    if what.target not in machine.targets:
        return f"no {what.target} on this machine"
    absent = absent_modules(what)
    return f"Python modules that are not installed: {', '.join(absent)}" if absent else ""


def missing_hipify(upstream: Upstream) -> str:
    """Return the lack for an upstream's hipify step, or nothing."""
    package = upstream.hipify.module.partition(".")[0] if upstream.hipify else ""
    if package and not present(package):
        return f"{package}, whose hipify is needed, is not installed: pip install {package}"
    return ""


def missing_compile(
    upstream: Upstream, entry: Compile, using: Toolchain | Lacking, *, listing: bool = True
) -> str:
    """Return the lack for the compile of an entry and the reading of its code, or nothing."""
    if isinstance(using, Lacking):
        return using.reason
    if not present("elftools"):
        return f"pyelftools, which reads objects, is not installed: {INSTALL}"
    if entry.kind == "triton":
        return triton_missing() or (triton_unread(using) if listing else "")
    return _TORCH if upstream.compile.torch and torch_include() is None else ""


def missing_emulator() -> str:
    """Return the lack for the emulation of AMD's code, or nothing."""
    absent = next((module for module in _EMULATOR if not present(module)), "")
    return f"{absent}, which emulating needs, is not installed: {INSTALL}" if absent else ""


def missing_device(upstream: Upstream, using: Toolchain | Lacking) -> str:
    """Return the lack for the emulation of a tree's Triton kernels, or nothing."""
    if upstream.overlay:
        laid = ", ".join(upstream.overlay)
        return f"{laid} would be the tree's own, and the emulated GPU stands on what is installed"
    if isinstance(using, Lacking):
        return using.reason
    return triton_missing() or (
        "" if present("torch") else f"torch is not here: {INSTALLS['torch']}"
    )


def missing_tools(machine: Machine, upstream: Upstream, build: Build, target: str) -> str:
    """Return the lack of tools for a build, or nothing."""
    if build.way == "full":
        return missing_for_recipe(upstream.build, target, upstream.name)
    return build_tools(target, machine).missing
