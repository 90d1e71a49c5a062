"""What vLLM's C++ bindings and CMake lists hold for a ROCm build, read from the tree's files.

No compiler and no CMake: only the conditions that these files use are followed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

#: The two binding files of the namespace `_C`; both are built for ROCm.
BINDINGS = ("csrc/libtorch_stable/torch_bindings.cpp", "csrc/torch_bindings.cpp")

_DIRECTIVE = re.compile(r"\s*#\s*(ifdef|ifndef|else|endif|if|elif)\b\s*(\w*)")
_DEFINITION = re.compile(r'(?<!\w)ops\s*\.def\(\s*((?:"(?:[^"\\]|\\.)*"\s*)+)')
_IMPLEMENTATION = re.compile(r'(?<!\w)ops\s*\.impl\(\s*"([^"]+)"')
_PIECE = re.compile(r'"((?:[^"\\]|\\.)*)"')


def tree() -> Path:
    """Return the root of the exported tree.

    Raises:
        RuntimeError: `CONTRIBBOT_TREE` does not name it.
    """
    root = Path(os.environ.get("CONTRIBBOT_TREE", ""))
    if not (root / BINDINGS[0]).is_file():
        raise RuntimeError(f"CONTRIBBOT_TREE={root}: no {BINDINGS[0]} in it")
    return root


def _seen_by_rocm(text: str) -> Iterator[str]:
    """Yield the lines that remain of a C++ file where USE_ROCM is defined."""
    stack: list[bool] = []
    for line in text.splitlines():
        directive = _DIRECTIVE.match(line)
        if directive is None:
            if all(stack):
                yield line
        elif directive[1] == "endif":
            stack.pop()
        elif directive[1] == "else":
            stack[-1] = not stack[-1]
        elif directive[2] == "USE_ROCM" and directive[1] in {"ifdef", "ifndef"}:
            stack.append(directive[1] == "ifdef")
        else:
            raise RuntimeError(f"a binding file asks for more than USE_ROCM: {line}")


def _bindings() -> str:
    lines: list[str] = []
    for path in BINDINGS:
        lines += _seen_by_rocm((tree() / path).read_text(encoding="utf-8"))
    return "\n".join(lines)


def schemas() -> dict[str, str]:
    """Return the operators of `_C` that a ROCm build defines: name and schema."""
    found = {}
    for match in _DEFINITION.finditer(_bindings()):
        schema = "".join(_PIECE.findall(match[1]))
        if "->" in schema:
            found[schema.partition("(")[0].strip()] = schema
    return found


def implemented() -> set[str]:
    """Return the operators of `_C` that a ROCm build implements."""
    return set(_IMPLEMENTATION.findall(_bindings()))


def stable_sources() -> list[str]:
    """Return the sources of `_C_stable_libtorch` that a HIP build lists in CMakeLists.txt.

    Raises:
        RuntimeError: The list is not there.
    """
    text = (tree() / "CMakeLists.txt").read_text(encoding="utf-8")
    start = text.find("set(VLLM_STABLE_EXT_SRC")
    end = text.find("define_extension_target(\n    _C_stable_libtorch", start)
    if start < 0 or end < 0:
        raise RuntimeError("CMakeLists.txt: no list VLLM_STABLE_EXT_SRC")
    found: list[str] = []
    stack: list[bool] = []
    for line in text[start:end].splitlines():
        word = re.match(r"\s*(if|elseif|else|endif)\s*\(", line)
        if word is None:
            if all(stack):
                found += re.findall(r'"(csrc/[^"]+)"', line)
        elif word[1] == "if":
            stack.append('STREQUAL "CUDA"' not in line)
        elif word[1] == "endif":
            stack.pop()
        elif word[1] == "else":
            stack[-1] = not stack[-1]
        else:
            stack[-1] = 'STREQUAL "HIP"' in line
    return found
