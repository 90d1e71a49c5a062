"""Compiles one shared library with torch's cpp_extension, and loads it; without contribbot."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path


class Spawner:
    """Runs torch's compiler commands side by side, which setuptools does not; the linker waits."""

    def __init__(
        self, start: Callable[[Sequence[str]], None], launcher: list[str], jobs: int
    ) -> None:
        self._start = start
        self._launcher = launcher
        self._pool = ThreadPoolExecutor(jobs)
        self._running: list[Future[None]] = []

    def __call__(self, argv: Sequence[str]) -> None:
        """Start a compiler, or wait for all of them and link."""
        words = [str(word) for word in argv]
        if "-c" in words:
            self._running.append(self._pool.submit(self._tell, [*self._launcher, *words]))
            return
        for compiler in self._running:
            compiler.result()
        self._running.clear()
        self._tell(words)

    def _tell(self, words: list[str]) -> None:
        sys.stdout.write(f"+ {shlex.join(words)}\n")
        sys.stdout.flush()
        self._start(words)


def build(spec: dict[str, object], out: Path) -> Path:
    """Compile and link, and return the library."""
    from setuptools import (  # type: ignore[import-untyped]  # noqa: PLC0415  has no types; only in the child
        Distribution,
    )
    from torch.utils import cpp_extension  # noqa: PLC0415  see above

    sources, include = _strings(spec["sources"]), _strings(spec["include"])
    flags, launcher = _strings(spec["flags"]), _strings(spec["launcher"])
    defines = [macro.partition("=") for macro in _strings(spec["defines"])]
    kernels = spec["kind"] != "cpp"
    # nvcc's and hipcc's flags mean nothing to the host's compiler, but for the standard.
    host = [flag for flag in flags if not kernels or flag.startswith(("-std=", "-O"))]
    kind = cpp_extension.CUDAExtension if kernels else cpp_extension.CppExtension
    extension = kind(  # type: ignore[no-untyped-call]  # torch leaves it untyped
        "extension",
        sources,
        include_dirs=include,
        define_macros=[(name, value if given else None) for name, given, value in defines],
        # The host's debugging information doubles the time and holds folder names.
        extra_compile_args={"cxx": [*host, "-g0"], "nvcc": flags},
    )
    jobs = int(str(spec["jobs"]))

    class ExtensionBuild(cpp_extension.BuildExtension):
        """torch's build, with compilers started side by side."""

        def build_extensions(self) -> None:
            """Take over how programs are started, then build."""
            # setuptools 84 starts programs with `call`, older ones with `spawn`.
            method = "call" if hasattr(self.compiler, "call") else "spawn"
            start = getattr(self.compiler, method)
            setattr(self.compiler, method, Spawner(start, launcher, jobs))
            super().build_extensions()

    command = ExtensionBuild(
        Distribution({"name": "extension", "ext_modules": [extension]}),
        # Without ninja: paths stay relative, and it need not be there.
        use_ninja=False,
        no_python_abi_suffix=True,
    )
    command.build_lib, command.build_temp, command.force = str(out), str(out / "objects"), True
    command.ensure_finalized()
    command.run()
    return out / "extension.so"


def _strings(value: object) -> list[str]:
    return [*map(str, value)] if isinstance(value, list) else []


def main() -> None:
    """Build, then see that the library can be loaded."""
    spec = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    library = build(spec, Path(str(spec["out"])))
    import torch  # noqa: PLC0415  see build

    try:
        # A name that is declared and nowhere defined shows only now.
        torch.ops.load_library(str(library.absolute()))  # type: ignore[no-untyped-call]  # the same
    except OSError as error:
        sys.exit(f"error: it is built and cannot be loaded: {error}")
    sys.stdout.write("built and loaded\n")


if __name__ == "__main__":
    main()
