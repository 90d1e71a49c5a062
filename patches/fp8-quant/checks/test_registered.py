"""A ROCm build compiles the kernels, and defines and implements their operators.

Fail-to-pass: on the base all of it is for CUDA alone. Read from CMakeLists.txt and the C++
bindings; that the sources compile for AMD is what the compile stage shows.
"""

from __future__ import annotations

import pytest
import torch
from rocm_sources import implemented, require_clear, schemas, stable_sources, tree

#: Where they are: a file for FP8 and one for INT8 in 0.22.0, one for both in 0.33.0.
SOURCES = sorted(
    path.relative_to(tree()).as_posix()
    for path in tree().glob("csrc/**/w8a8/*/per_token_group_quant.cu")
)
if not SOURCES:
    raise RuntimeError("no per_token_group_quant.cu in the tree")
OPERATORS = [
    "per_token_group_fp8_quant",
    "per_token_group_fp8_quant_packed",
    "per_token_group_quant_int8",
]


@pytest.mark.parametrize("source", SOURCES)
def test_compiled(source: str) -> None:
    assert stable_sources().count(source) == 1, f"not in the ROCm build: {source}"


@pytest.mark.parametrize("name", OPERATORS)
def test_defined_and_implemented(name: str) -> None:
    require_clear(name)
    assert name in schemas(), f"not in the ROCm build: operator {name}"
    assert name in implemented(), f"not in the ROCm build: kernel of {name}"
    schema = torch._C.parse_schema(schemas()[name])  # noqa: SLF001  torch has no other parser
    assert [argument.name for argument in schema.arguments][:3] == [
        "input",
        "output_q",
        "output_s_packed" if name.endswith("packed") else "output_s",
    ]
