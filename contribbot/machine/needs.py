"""Find what this machine lacks for a part of a patch's verification, and the next step."""

from __future__ import annotations

import importlib.util
from typing import Final

from contribbot.compile.build import build_tools, missing_for_recipe
from contribbot.compile.hip import torch_include
from contribbot.compile.toolchain import INSTALL, Lack, Toolchain
from contribbot.compile.triton import triton_missing, triton_unread
from contribbot.model.checks import Build, Compile, Needy
from contribbot.model.evidence import Machine
from contribbot.model.patch import Patch
from contribbot.model.pin import Upstream

_TORCH: Final = Lack(
    what="torch, whose headers are needed, is not installed", line="pip install torch"
)
#: The commands that install modules. For aiter, see "Installation" in its README: `aiter` on PyPI
#: is another project.
INSTALLS: Final = {
    "aiter": "git clone --recursive https://github.com/ROCm/aiter.git && cd aiter && "
    "python3 setup.py develop",
    "expecttest": "python -m pip install expecttest",  # a package that PyTorch's own tests use
    "torch": "python -m pip install torch",
    "triton": INSTALL,
}
#: The modules that the emulator imports.
_EMULATOR: Final = ("tinygrad", "elftools", "msgpack")


def present(module: str) -> bool:
    """Return whether a module is installed, without importing the module."""
    return importlib.util.find_spec(module.partition(".")[0]) is not None


def absent_modules(what: Needy) -> list[str]:
    """Return the modules that a check requires and that are not installed."""
    return [name for name in what.modules if not present(name)]


def missing_here(machine: Machine, what: Needy) -> Lack | None:
    """Return what a machine lacks for a check or bench; None: nothing."""
    if what.target not in machine.targets:
        return Lack(what=f"no {what.target} on this machine")
    absent = ", ".join(absent_modules(what))
    return Lack(what=f"Python modules that are not installed: {absent}") if absent else None


def missing_hipify(upstream: Upstream) -> Lack | None:
    """Return what this machine lacks for an upstream's hipify step; None: nothing."""
    package = upstream.hipify.module.partition(".")[0] if upstream.hipify else ""
    if not package or present(package):
        return None
    what = f"{package}, whose hipify is needed, is not installed"
    return Lack(what=what, line=f"pip install {package}")


def missing_compile(
    patch: Patch, entry: Compile, using: Toolchain | Lack, *, listing: bool = True
) -> Lack | None:
    """Return what this machine lacks to compile an entry and read the code; None: nothing."""
    if isinstance(using, Lack):
        return using
    if not present("elftools"):
        return Lack(what="pyelftools, which reads objects, is not installed", line=INSTALL)
    if entry.kind == "triton":
        unread = triton_unread(using, patch.triton_for(entry)) if listing else None
        return triton_missing() or unread
    return _TORCH if patch.upstream.compile.torch and torch_include() is None else None


def missing_emulator() -> Lack | None:
    """Return what this machine lacks to emulate AMD code; None: nothing."""
    for module in _EMULATOR:
        if not present(module):
            return Lack(what=f"{module}, which emulating needs, is not installed", line=INSTALL)
    return None


def missing_device(upstream: Upstream, using: Toolchain | Lack) -> Lack | None:
    """Return what this machine lacks to emulate a tree's Triton kernels; None: nothing."""
    if upstream.overlay:
        own = ", ".join(upstream.overlay)
        what = f"{own} would be the tree's own, and the emulated GPU stands on what is installed"
        return Lack(what=what)
    if isinstance(using, Lack):
        return using
    torch = None if present("torch") else Lack(what="torch is not here", line=INSTALLS["torch"])
    return triton_missing() or torch


def missing_tools(machine: Machine, upstream: Upstream, build: Build, target: str) -> Lack | None:
    """Return the tools that this machine lacks for a build; None: nothing."""
    if build.way == "full":
        return missing_for_recipe(upstream.build, target, upstream.name)
    missing = build_tools(target, machine).missing
    return Lack(what=missing) if missing else None
