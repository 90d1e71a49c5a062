"""What vLLM builds for gfx942, hipified through a link as `cmake -B` does, and compiled.

Fail-to-pass: on the base 42 of the 54 sources are left with headers that are not hipified, and
what is compiled stops at a header of CUDA's.
"""

from __future__ import annotations

import functools
import re
import tempfile
from pathlib import Path

import pytest
from hipify_script import TREE, Project, output_of

from contribbot.compile.hip import HipSource, compile_hip
from contribbot.compile.toolchain import Lack, hip_toolchain

#: The lists of sources that CMakeLists.txt makes for ROCm; it adds to the last one for gfx942.
_LISTS = (
    r"set\((?:VLLM_(?:STABLE_|MOE_|ROCM_)?EXT_SRC|FUSED_KDA_DECODE_HIP_SRC)\s([^)]*)\)",
    r"list\(APPEND VLLM_EXT_SRC\s([^)]*)\)",
)
#: Four of the 42, with kernels, which a compiler without ROCm finishes in seconds.
COMPILED = (
    "csrc/custom_all_reduce.cu",
    "csrc/ngram_embedding_kernels.cu",
    "csrc/pos_encoding_kernels.cu",
    "csrc/vocab_parallel_embedding_kernels.cu",
)
#: As CMakeLists.txt and cmake/utils.cmake define them, and torch's for HIP.
_DEFINES = (
    "USE_ROCM",
    "ENABLE_FP8",
    "HIP_ENABLE_WARP_SYNC_BUILTINS",
    "HIPBLAS_V2",
    "TORCH_HIP_VERSION=701",
    "TORCH_TARGET_VERSION=0x020b000000000000ULL",
)


def _sources() -> list[str]:
    text = (TREE / "CMakeLists.txt").read_text(encoding="utf-8")
    named = " ".join(body for pattern in _LISTS for body in re.findall(pattern, text))
    return [name for name in re.findall(r'[^\s"]+', named) if name.endswith(".cu")]


@functools.cache
def _built(*, linked: bool) -> Project:
    """Hipify all of it in one call, as `hipify_all` does."""
    folder = Path(tempfile.mkdtemp())
    build = folder / "build"
    build.mkdir()
    if linked:
        (folder / "link").symlink_to(build)
        build = folder / "link"
    project = Project(TREE / "csrc", build)
    project.hipify(*_sources())
    return project


def _files(project: Project) -> dict[Path, bytes]:
    """Return what the build folder holds, less the map from outputs to sources."""
    at = project.build / "csrc"
    return {
        file.relative_to(at): file.read_bytes()
        for file in at.rglob("*")
        if file.is_file() and file.suffix != ".json"
    }


def test_the_build_tree_is_what_it_is_without_the_link() -> None:
    assert len(_sources()) == 54
    plain, linked = _files(_built(linked=False)), _files(_built(linked=True))
    sources = [
        source
        for source in _sources()
        if plain[path := Path(output_of(source)).relative_to("csrc")] != linked.get(path)
    ]
    assert not sources, f"not hipified: headers of {len(sources)} of {len(_sources())} sources"
    assert plain == linked


@pytest.mark.parametrize("source", COMPILED)
def test_compiles_for_gfx942(source: str, tmp_path: Path) -> None:
    using = hip_toolchain("gfx942")
    if isinstance(using, Lack):
        pytest.skip(str(using))
    project = _built(linked=True)
    made = HipSource(
        path=project.output(source),
        include=(project.build / "csrc",),
        defines=_DEFINES,
        standard="c++20",
        torch=True,
        folders=(project.build,),
    )
    result = compile_hip(made, "gfx942", using=using, folder=tmp_path, timeout=300, scrub=str)
    assert not result.error, f"not hipified: {result.error}"
    if trouble := result.missing or result.crashed:
        pytest.skip(trouble)
    assert result.listing is not None
    assert result.listing.kernels
