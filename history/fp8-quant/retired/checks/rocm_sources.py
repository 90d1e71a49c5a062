"""What vLLM's C++ bindings and CMake lists hold for a ROCm build, read from the tree's files.

No compiler and no CMake: only the conditions that these files use are followed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

#: The binding files of the namespace `_C`, as many of them as there are (two in 0.22.0, the
#: second alone in 0.33.0); all are built for ROCm.
BINDINGS = ("csrc/libtorch_stable/torch_bindings.cpp", "csrc/torch_bindings.cpp")

_DIRECTIVE = re.compile(r"\s*#\s*(ifdef|ifndef|else|endif|if|elif)\b\s*(\w*)")
_DEFINITION = re.compile(r'(?<!\w)ops\s*\.def\(\s*((?:"(?:[^"\\]|\\.)*"\s*)+)')
_IMPLEMENTATION = re.compile(r'(?<!\w)ops\s*\.impl\(\s*"([^"]+)"')
_PIECE = re.compile(r'"((?:[^"\\]|\\.)*)"')
#: The head of a block of definitions; those of other namespaces are called `ops` there too.
_BLOCK = re.compile(r"^(?:STABLE_)?TORCH_LIBRARY\w*\((\w+), (?:\w+, )?ops\)", re.MULTILINE)
_OURS = {"_C", "TORCH_EXTENSION_NAME"}


def tree() -> Path:
    """Return the root of the exported tree.

    Raises:
        RuntimeError: `CONTRIBBOT_TREE` does not name it.
    """
    root = Path(os.environ.get("CONTRIBBOT_TREE", ""))
    if not any((root / path).is_file() for path in BINDINGS):
        raise RuntimeError(f"CONTRIBBOT_TREE={root}: no {' and no '.join(BINDINGS)} in it")
    return root


def _seen_by_rocm(text: str, *, unclear: bool) -> Iterator[str]:
    """Yield the lines that remain of a C++ file where USE_ROCM is defined.

    What stands under another condition (`VLLM_ENABLE_...`, which CMake sets) may be built or
    not: it is left out, and is all there is where `unclear` is asked for.
    """
    stack: list[bool | None] = []
    for line in text.splitlines():
        directive = _DIRECTIVE.match(line)
        if directive is None:
            if False not in stack and (None in stack) == unclear:
                yield line
        elif directive[1] == "endif":
            stack.pop()
        elif directive[1] == "else":
            stack[-1] = None if stack[-1] is None else not stack[-1]
        elif directive[1] == "elif":
            raise RuntimeError(f"a binding file asks more than this check can follow: {line}")
        elif directive[2] == "USE_ROCM" and directive[1] in {"ifdef", "ifndef"}:
            stack.append(directive[1] == "ifdef")
        else:
            stack.append(None)


def _bindings(*, unclear: bool = False) -> str:
    texts: list[str] = []
    for path in BINDINGS:
        if (tree() / path).is_file():
            text = (tree() / path).read_text(encoding="utf-8")
            seen = "\n".join(_seen_by_rocm(text, unclear=unclear))
            blocks = _BLOCK.split(seen)
            texts.append(blocks[0])
            texts += [
                block
                for name, block in zip(blocks[1::2], blocks[2::2], strict=True)
                if name in _OURS
            ]
    return "\n".join(texts)


def require_clear(name: str) -> None:
    """Refuse to tell of an operator that only a condition of CMake's decides.

    Raises:
        RuntimeError: It is one.
    """
    if f'"{name}' in _bindings(unclear=True):
        raise RuntimeError(f"{name}: whether it is built is for CMake to decide")


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
