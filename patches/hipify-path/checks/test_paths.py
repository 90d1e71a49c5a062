"""Every source has the output that CMake names, and every header it reaches is hipified.

Pass-to-pass: of 0.22.0 each of these was a fault; this release has them right.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hipify_script import USUAL, lay_out, missing
from layout_cases import CHANGED, FILES, UNCHANGED, assert_hipified, sources_of

layouts = pytest.mark.parametrize("layout", USUAL)


@layouts
def test_a_header_by_its_path_from_the_project(layout: str, tmp_path: Path) -> None:
    project = lay_out(tmp_path, layout, FILES)
    project.hipify("csrc/kernels/scale.cu")
    assert_hipified(project, "kernels/scale.hip", "common/launch.h", "common/launch_hip.h")
    assert_hipified(project, "common/launch_hip.h", "common/inner.h", "common/inner_hip.h")


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


@pytest.mark.parametrize("turn", [1, -1])
def test_one_call_gives_what_single_calls_give(turn: int, tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "single").mkdir()
    one = lay_out(tmp_path / "one", "plain", FILES)
    single = lay_out(tmp_path / "single", "plain", FILES)
    sources = sources_of(FILES)[::turn]
    one.hipify(*sources)
    for source in sources:
        single.hipify(source)
    assert not missing(one, sources), f"no output: {missing(one, sources)}"
    folders = [project.build / "csrc" for project in (one, single)]
    made = [
        {
            file.relative_to(at): file.read_bytes()
            for file in at.rglob("*")
            if file.is_file() and file.suffix != ".json"
        }
        for at in folders
    ]
    assert made[0] == made[1]


def test_an_older_output_is_replaced(tmp_path: Path) -> None:
    project = lay_out(tmp_path, "plain", {"a.cu": "__global__ void f() {}\n"})
    project.hipify("csrc/a.cu")
    (project.csrc / "a.cu").write_text("int f();\n", encoding="utf-8")
    project.hipify("csrc/a.cu")
    text = project.read("a.hip")
    assert text == "int f();\n", f"no output: a.hip is of the source before: {text!r}"


def test_a_second_run_gives_the_compiler_nothing_new(tmp_path: Path) -> None:
    project = lay_out(tmp_path, "plain", FILES)
    sources = sources_of(FILES)
    project.hipify(*sources)
    assert not missing(project, sources), f"no output: {missing(project, sources)}"
    before = {one: project.output(one).stat().st_mtime_ns for one in sources}
    project.hipify(*sources)
    assert {one: project.output(one).stat().st_mtime_ns for one in sources} == before


@layouts
def test_a_source_by_its_path_in_the_project(layout: str, tmp_path: Path) -> None:
    project = lay_out(tmp_path, layout, FILES)
    before, sources = project.state(), sources_of(FILES)
    project.hipify(*(project.csrc / source.removeprefix("csrc/") for source in sources))
    assert not missing(project, sources), f"no output: {missing(project, sources)}"
    assert project.state() == before
