"""The stage `hipify`: a toy upstream with a script of its own, and vLLM's."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from contribbot.files import log_path
from contribbot.model.evidence import StageResult, Verdict
from tests.buildtoy import with_sources
from tests.conftest import REAL_CACHE, Program, dig
from tests.tools import kinds
from tests.toy import Toy

ROOT = Path(__file__).parent.parent

#: A hipify step as a project would write it, over torch's; it leaves unchanged sources out.
REAL = """\
import os
import shutil
import sys

from torch.utils.hipify.hipify_python import hipify

_, _, project, _, output, *sources = sys.argv
shutil.copytree(project, output)
hipify(
    project_directory=project, output_directory=output, includes=["*"],
    extra_files=[os.path.abspath(source) for source in sources], show_detailed=True,
    header_include_dirs=[], is_pytorch_extension=True, hipify_extra_files_only=True,
)
"""
#: The same, with what it lacks.
MENDED = (
    REAL.replace("header_include_dirs=[]", "header_include_dirs=['.']")
    + """\
for source in sources:
    wanted = source.replace(".cu", ".hip")
    if not os.path.exists(wanted):
        shutil.copy2(source, wanted)
"""
)
#: Quick, without torch: for tests of everything around it.
QUICK = """\
import pathlib
import shutil
import sys

_, _, project, _, output, *sources = sys.argv
shutil.copytree(project, output)
for source in sources:
    text = pathlib.Path(source).read_text().replace("cuda_runtime.h", "hip/hip_runtime.h")
    pathlib.Path(source).with_suffix(".hip").write_text(text)
"""
RECIPE = """
[hipify]
script = "tools/hipify.py"
project = "csrc"
renames = [['\\.cu$', ".hip"]]
cuda_sources = ["nvidia"]
timeout = 60
"""
KERNEL = '#include "common.h"\n#include <cuda_runtime.h>\n__global__ void k() {}\n'
GUARDED = "#ifndef USE_ROCM\n#include <cuda_fp8.h>\n#endif\n"
BASE = {
    "tools/hipify.py": QUICK,
    "csrc/k.cu": KERNEL,
    "csrc/other.cu": "int other();\n",
    "csrc/common.h": GUARDED,
    "csrc/nvidia.cu": "#include <cuda_fp8.h>\n",
}


def grow(toy: Toy, files: dict[str, str], recipe: str = RECIPE) -> None:
    """Make the upstream's pinned release hold these files, and say how it is hipified."""
    with_sources(toy, files)
    toy.put("upstreams/toy.toml", toy.upstream_toml() + recipe)


def patch(toy: Toy, changes: dict[str, str], hipify: str = "") -> None:
    """Make the queue hold one patch; `hipify` is the content of its table."""
    toy.put_area(
        patch=toy.format_patch({**changes}),
        files=tuple(changes),
        checks=f"[hipify]\n{hipify}\n",
        check_files={},
    )


def verified(program: Program) -> StageResult:
    ran = program("verify", "area", "--json")
    assert "Traceback" not in ran.err
    return ran.stages()["hipify"]


def stated(reason: str, sources: str = "") -> str:
    return f"expect = \"fail-to-pass\"\nreason = '{reason}'\nsources = [{sources}]"


def test_a_script_that_is_mended_goes_from_red_to_green(toy: Toy, program: Program) -> None:
    header = '#include "deep/common.h"\n__global__ void k() {}\n'
    grow(toy, {**BASE, "tools/hipify.py": REAL, "csrc/deep/x.cu": header,
               "csrc/deep/common.h": "#include <cuda_runtime.h>\n"})  # fmt: skip
    reason = "csrc/other.cu has no output csrc/other.hip"
    sources = '"csrc/k.cu", "csrc/other.cu", "csrc/deep/x.cu"'
    patch(toy, {"tools/hipify.py": MENDED}, stated(reason, sources))

    seen = verified(program)

    assert seen.outcome == "passed", seen.reason
    assert seen.reason.startswith("fails on the base as stated; 3 outputs where the build looks")
    failed = dig(seen.details, "base", "failed")
    assert isinstance(failed, list)
    assert [dig(failure, "message") for failure in failed] == [
        "csrc/other.cu has no output csrc/other.hip",
    ]
    assert dig(seen.details, "patched", "outputs") == {
        "csrc/deep/x.cu": "csrc/deep/x.hip",
        "csrc/k.cu": "csrc/k.hip",
        "csrc/other.cu": "csrc/other.hip",
    }
    program.ok("evidence", "check")
    log = log_path(toy.queue / ".contribbot/logs", f"{dig(seen.details, 'base', 'log_sha256')}")
    assert "[skipped, no changes]" in log.read_text()


def test_touched_sources_are_hipified_without_a_table(toy: Toy, program: Program) -> None:
    grow(toy, BASE)
    changes = {"csrc/k.cu": KERNEL + "int k2;\n", "csrc/nvidia.cu": "#include <cuda.h>\n"}
    toy.put_area(patch=toy.format_patch({**changes}), files=tuple(changes))
    seen = verified(program)
    # The other one is for CUDA alone.
    assert dig(seen.details, "patched", "outputs") == {"csrc/k.cu": "csrc/k.hip"}
    assert seen.outcome == "passed", seen.reason


SCRIPT, COMMON = "tools/hipify.py", "csrc/common.h"
K = 'sources = ["csrc/k.cu"]'
TOUCHED = {COMMON: "\n" + GUARDED}
IN_TREE = (
    QUICK.replace("pathlib.Path(source)", "(pathlib.Path(output).parent / source)")
    + "assert all((pathlib.Path(project).parent / source).samefile(source) for source in sources)\n"
)
#: What the release has beside or instead of BASE (None: not at all), what the patch changes, its
#: table, the outcome, a pattern of the reason, and what the recipe says more.
CASES: dict[str, tuple[dict[str, str | None], dict[str, str], str, str, str, str]] = {
    # k.cu is the first and has no output there; so nothing reaches the header.
    "the base lacks": (
        {SCRIPT: QUICK.replace("sources:", "sources[1:]:"), COMMON: "#include <cuda.h>\n"},
        {SCRIPT: QUICK, COMMON: GUARDED, "csrc/new.cu": KERNEL},
        'sources = ["csrc/k.cu", "csrc/other.cu"]', "passed",
        "3 outputs where the build looks; the base lacks 1 of 2 outputs$", ""),
    "another reason": (
        {SCRIPT: QUICK.replace("sources:", "sources[1:]:")}, {SCRIPT: QUICK},
        stated("not finished", '"csrc/k.cu"'), "failed",
        ".*for another reason than stated: csrc/k.cu has no output csrc/k.hip", ""),
    "of both": (
        {SCRIPT: "\n" + QUICK.replace("sources:", "sources[1:]:")},
        {SCRIPT: QUICK.replace("sources:", "sources[1:]:")}, K, "unavailable",
        "on both trees, so not by the patch: csrc/k.cu has no output csrc/k.hip", ""),
    "a base that is fine": (
        {}, TOUCHED, stated("has no output", '"csrc/k.cu"'), "failed",
        "passes on the base, so it shows nothing", ""),
    "garbage beside the outputs": (
        {}, {SCRIPT: QUICK + "sys.stdout.buffer.write(b'\\xff\\x1b[2J\\x00')\n"}, K,
        "passed", "", ""),
    "a script of the patch": (
        {SCRIPT: None}, {SCRIPT: QUICK}, K, "passed",
        ".*on the base: tools/hipify.py is not in the tree$", ""),
    "the build file says where": (
        {"build.txt": "runs in the build folder\n"},
        {SCRIPT: IN_TREE, "build.txt": "runs in the tree\n"}, K, "passed", "",
        "build_file = 'build.txt'\nin_tree = 'in the tree'\n"),
    **{
        source: ({}, TOUCHED, f'sources = ["{source}"]', "failed",
                 rf"\[hipify\] sources: {source} is {what}$", "")
        for source, what in {
            "csrc/gone.cu": "not in the patched tree",
            "csrc/common.h": "no .cu file under csrc/",
            "src/toy/area.py": "no .cu file under csrc/",
        }.items()
    },
    "no such package": (
        {SCRIPT: f"import nowhere_at_all\n{QUICK}"}, TOUCHED, K, "unavailable",
        "nowhere_at_all, whose hipify is needed, is not installed", 'module = "nowhere_at_all"\n'),
    "a broken package": (
        {SCRIPT: f"import json.nowhere\n{QUICK}"}, TOUCHED, K, "unavailable",
        r"json.nowhere cannot be imported here \(ModuleNotFoundError: .*reinstall",
        'module = "json.nowhere"\n'),
    **{
        name: ({}, {SCRIPT: script}, 'sources = ["csrc/k.cu", "csrc/other.cu"]', "failed",
               f"on the patched tree: .*{said}", 'module = "json"\ntimeout = 4\n')
        for name, script, said in (
            ("exit", "raise SystemExit('no such flag')\n", "exit status 1: no such flag"),
            ("signal", "import os\nos.kill(os.getpid(), 11)\n", "killed by signal 11"),
            ("hang", "import time\ntime.sleep(600)\n", "not finished after 4 s"),
            ("flood", "while True: print('x' * 4096)\n", "it never stopped writing"),
            ("exception", "print(1 / 0)\n", "ZeroDivisionError: division by zero"),
            ("garbage", "import sys\nsys.stdout.buffer.write(b'\\xff\\x00' * 99)\n",
             r"csrc/k.cu has no output csrc/k.hip; csrc/other.cu has no output csrc/other.hip"),
            ("meddles",
             "import pathlib, sys\n(pathlib.Path(sys.argv[2]) / 'k.hip').write_text('')\n",
             "tools/hipify.py wrote into the tree: csrc/k.hip"),
        )
    },
}  # fmt: skip


@pytest.mark.parametrize("case", kinds(CASES, "hang".__ne__))
def test_what_a_step_comes_to(toy: Toy, program: Program, case: str) -> None:
    base, changes, table, outcome, said, more = CASES[case]
    recipe = RECIPE.replace("timeout = 60\n", "") if "timeout" in more else RECIPE
    files = {**BASE, **base}
    grow(toy, {path: text for path, text in files.items() if text is not None}, recipe + more)
    patch(toy, changes, table)
    seen = verified(program)
    assert seen.outcome == outcome, seen.reason
    assert re.match(said, seen.reason), seen.reason
    assert str(toy.root) not in seen.reason
    if case == "the build file says where":
        assert dig(seen.details, "base", "failed") == []


def test_it_is_remembered_until_something_changes(toy: Toy, program: Program) -> None:
    grow(toy, BASE)
    patch(toy, TOUCHED, K)
    assert not verified(program).cached
    assert verified(program).cached
    toy.put("upstreams/toy.toml", toy.upstream_toml() + RECIPE.replace('".hip"', '".cpp"'))
    seen = verified(program)
    assert not seen.cached
    both = "on both trees, so not by the patch: csrc/k.cu has no output csrc/k.cpp"
    assert seen.reason.startswith(both)


@pytest.mark.slow
def test_vllms_patch_is_proved(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "patches", tmp_path / "queue/patches")
    program = Program(tmp_path / "queue", {"CONTRIBBOT_CACHE": str(REAL_CACHE)})
    ran = program.ok("verify", "patches/hipify-path", "--json")
    assert (ran.report().verdict, ran.report().open) == (Verdict.PROVED, ())
    seen = ran.stages()
    assert {*map(str, (result.outcome for result in seen.values()))} == {"passed"}
    hipify = seen["hipify"].details
    assert dig(hipify, "expect") == "pass-to-pass"
    for side in ("base", "patched"):
        assert dig(hipify, side, "missing") == {}
