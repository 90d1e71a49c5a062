"""Every source has the output that CMake names, and every header it reaches is hipified.

Fail-to-pass: on the base each of these leaves a header as it is, or an output out.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hipify_script import LAYOUTS, USUAL, lay_out, missing
from layout_cases import CHANGED, FILES, UNCHANGED, assert_hipified, sources_of

layouts = pytest.mark.parametrize("layout", [one for one in LAYOUTS if one not in USUAL])


@layouts
def test_a_header_by_its_path_from_the_project(layout: str, tmp_path: Path) -> None:
    project = lay_out(tmp_path, layout, FILES)
    project.hipify("csrc/kernels/scale.cu")
    assert_hipified(project, "kernels/scale.hip", "common/launch.h", "common/launch_hip.h")
    assert_hipified(project, "common/launch_hip.h", "common/inner.h", "common/inner_hip.h")


@pytest.mark.parametrize("layout", ["linked build", "linked both", "brackets"])
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
def test_an_unchanged_source_has_its_output(layout: str, tmp_path: Path) -> None:
    project = lay_out(tmp_path, layout, FILES)
    sources = sources_of(UNCHANGED)
    for source in sources:
        project.hipify(source)
    assert not missing(project, sources), f"no output: {missing(project, sources)}"
    for source in sources:
        text = project.output(source).read_text(encoding="utf-8")
        assert text == UNCHANGED[source.removeprefix("csrc/")]


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


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_source_by_its_path_in_the_project(layout: str, tmp_path: Path) -> None:
    project = lay_out(tmp_path, layout, FILES)
    before, sources = project.state(), sources_of(FILES)
    project.hipify(*(project.csrc / source.removeprefix("csrc/") for source in sources))
    assert not missing(project, sources), f"no output: {missing(project, sources)}"
    assert project.state() == before
