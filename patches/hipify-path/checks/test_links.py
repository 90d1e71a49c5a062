"""Headers are hipified, also where the build directory is behind a symlink.

Fail-to-pass: on the base each of these leaves a header as it is.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hipify_script import MISSED, TREE, Project, lay_out, missing
from layout_cases import CHANGED, FILES, UNCHANGED, assert_hipified, sources_of

layouts = pytest.mark.parametrize("layout", MISSED)


@layouts
def test_a_header_beside_the_source(layout: str, tmp_path: Path) -> None:
    project = lay_out(tmp_path, layout, {**FILES, "kernels/sibling.h": "#include <cuda.h>\n"})
    project.hipify("csrc/kernels/bias.cu")
    assert_hipified(project, "kernels/bias.hip", "sibling.h", "sibling_hip.h")


@layouts
def test_a_header_that_another_header_reaches(layout: str, tmp_path: Path) -> None:
    project = lay_out(tmp_path, layout, FILES)
    project.hipify("csrc/kernels/bias.cu")
    header = "common/cuda_compat.h"
    assert_hipified(project, "kernels/bias.hip", "sibling.h", "sibling_hip.h")
    assert_hipified(project, "kernels/sibling_hip.h", header, "common/hip_compat.h")


@layouts
def test_all_in_one_call(layout: str, tmp_path: Path) -> None:
    project = lay_out(tmp_path, layout, FILES)
    sources = [one for pair in zip(sources_of(CHANGED), sources_of(UNCHANGED), strict=False)
               for one in pair] + ["csrc/deep/cuda_x.cu"]  # fmt: skip
    printed = project.hipify(*sources)
    assert not missing(project, sources), f"no output: {missing(project, sources)}"
    assert [Path(line).resolve() for line in printed] == [
        project.output(source).resolve() for source in sources
    ]
    for source in ("scale", "shift"):
        file = f"kernels/{source}.hip"
        assert_hipified(project, file, "common/launch.h", "common/launch_hip.h")
    assert_hipified(project, "kernels/bias.hip", "sibling.h", "sibling_hip.h")


def test_vllms_own_header(tmp_path: Path) -> None:
    (tmp_path / "build").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "build")
    project = Project(TREE / "csrc", tmp_path / "link")
    source = "csrc/quantization/fused_kernels/fused_silu_mul_block_quant.cu"
    project.hipify(source)
    text = project.output(source).read_text(encoding="utf-8")
    assert "torch_utils_hip.h" in text, f"not hipified: torch_utils.h, as {source} includes it"
    assert "cublas" not in project.read("torch_utils_hip.h")
