"""A script that compiles a shared library with torch's cpp_extension, and loads the library."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TypedDict


class Extension(TypedDict):
    """The arguments of `cpp_extension.load`; paths are relative to the current folder."""

    sources: list[str]
    extra_include_paths: list[str]
    extra_cflags: list[str]
    extra_cuda_cflags: list[str]
    with_cuda: bool
    build_directory: str


def main() -> None:
    """Compile, link and load the library, as an undefined name shows only when loaded."""
    from torch.utils import cpp_extension  # noqa: PLC0415  only in the child

    extension: Extension = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    try:
        cpp_extension.load("extension", **extension, is_python_module=False, verbose=True)
    except OSError as error:
        sys.exit(f"error: it is built and cannot be loaded: {error}")
    except RuntimeError as error:  # the compiler has printed the reason
        sys.exit(f"{error}")
    sys.stdout.write("built and loaded\n")


if __name__ == "__main__":
    main()
