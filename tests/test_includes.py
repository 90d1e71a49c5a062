"""What a file includes under known macros: conditions, comments, literals, odd spelling."""

from __future__ import annotations

from pathlib import Path

import pytest

from contribbot.verify.includes import Macros, includes, left_over

ROCM = Macros(
    defined=frozenset({"USE_ROCM", "__HIP_PLATFORM_AMD__"}),
    undefined=frozenset({"USE_CUDA"}),
    absent=(r"^cuda\w*\.h$", "^cub/"),
)


def seen(text: str) -> list[str]:
    return [include.name for include in includes(text, ROCM)]


HOLDS = (
    "#ifdef USE_ROCM",
    "#ifndef USE_CUDA",
    "#if defined(USE_ROCM)",
    "#if defined USE_ROCM",
    "# if defined ( USE_ROCM ) // the AMD build",
    "#if !defined(USE_CUDA)",
    "#if USE_ROCM",
    "#if 1",
    "#if !0",
    "#if !USE_CUDA",
    "#if defined(USE_CUDA) || defined(__HIP_PLATFORM_AMD__)",
    "#if defined(USE_CUDA) || \\\n    defined(USE_ROCM)",
    "#if !(defined(USE_CUDA) && __CUDA_ARCH__ >= 800)",
    "#if (defined(USE_ROCM) || OTHER(1, (2)) < 3)",
    "#if defined(USE_ROCM) || __cplusplus >= 201703L",
)
HIDES = (
    "#ifndef USE_ROCM",
    "#ifdef USE_CUDA",
    "#if 0",
    "#if defined(USE_CUDA) && CUDA_VERSION >= 12000",
    "#if CUDA_VERSION >= 12000 && !defined(USE_ROCM)",
    "#if !(defined(USE_ROCM) || UNKNOWN)",
    "#if __has_include(<cuda_fp8.h>)",
    "#if UNKNOWN && __has_include( <cub/cub.cuh> )",
    "#if defined(USE_CUDA) && (X != 0x10u ? 1 : 0)",
)
UNKNOWN = (
    "#ifndef GUARD_H_",
    "#ifdef TORCH_TARGET_VERSION",
    "#if UNKNOWN",
    "#if USE_ROCM >= 6",
    "#if !defined(USE_CUDA) == 1",
    "#if defined(USE_ROCM) && ROCM_VERSION >= 60000",
    "#if __has_include(<hip/hip_fp8.h>)",
    "#if defined(",
    "#if )",
    "#if",
    "#ifdef",
    "#if " + "(" * 5000 + "1" + ")" * 5000,
)
CONDITIONS = [
    *((condition, ["a.h"]) for condition in HOLDS),
    *((condition, ["b.h"]) for condition in HIDES),
    *((condition, ["a.h", "b.h"]) for condition in UNKNOWN),
]


@pytest.mark.parametrize(("condition", "names"), CONDITIONS)
def test_a_branch_is_seen_unless_its_condition_is_known_to_be_false(
    condition: str, names: list[str]
) -> None:
    assert seen(f"{condition}\n#include <a.h>\n#else\n#include <b.h>\n#endif\n") == names


def test_chains_of_branches() -> None:
    text = (
        "#ifdef USE_CUDA\n#include <a.h>\n#elif defined(UNKNOWN)\n#include <b.h>\n"
        "#elif defined(USE_ROCM)\n#include <c.h>\n#elif UNKNOWN\n#include <d.h>\n"
        "#else\n#include <e.h>\n#endif\n"
    )
    assert seen(text) == ["b.h", "c.h"]
    text = "#ifdef USE_CUDA\n#elifdef USE_ROCM\n#include <a.h>\n#elifndef X\n#include <b.h>\n#endif"
    assert seen(text) == ["a.h"]


def test_a_hidden_branch_hides_all_within() -> None:
    text = (
        "#ifdef USE_CUDA\n#ifdef USE_ROCM\n#include <no.h>\n#else\n#include <no.h>\n#endif\n"
        "#include <no.h>\n#endif\n#include <yes.h>\n"
    )
    assert seen(text) == ["yes.h"]


def test_comments_and_literals_include_nothing() -> None:
    text = (
        "// #include <no.h>\n/*\n#include <no.h>\n*/\n// ends in a backslash \\\n#include <no.h>\n"
        'const char* raw = R"x(\n#include <no.h>\n)" )x";\n'
        "char quote = '\"'; int big = 1'000'000;\n"
        '#error don\'t\n#include <yes.h> // "no.h"\n  #  include  "so.h" /* and */\n'
        '#include MACRO\n#include\n#endif\n#else\nconst char* s = "/*"; \n#include <last.h>\n'
    )
    assert [(row.line, row.name, row.quoted) for row in includes(text, ROCM)] == [
        (12, "yes.h", False),
        (13, "so.h", True),
        (19, "last.h", False),
    ]


@pytest.fixture
def build(tmp_path: Path) -> Path:
    """A build folder with files that include each other."""
    for name, text in {
        "csrc/k.hip": '#include "deep/a.h"\n#include <cuda_runtime.h>\n',
        "csrc/deep/a.h": '#include "b.h"\n#include "csrc_b.h"\n#include "deep/a.h"\n',
        "csrc/deep/b.h": "#ifndef USE_ROCM\n#include <cuda_fp8.h>\n#endif\n#include <cub/x.cuh>\n",
        "csrc/csrc_b.h": '#include <deep/cuda_own.h>\n#include "cuda_own.h"\n',
        "csrc/deep/cuda_own.h": "#include <vector>\n#include <hip/hip_runtime.h>\n",
        "csrc/cuda_own.h": "\xe9#include <no.h>\n#include <cuda.h>\n",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode("latin-1"))
    return tmp_path


def test_what_is_left_is_found_through_all_headers(build: Path) -> None:
    left = left_over(build / "csrc/k.hip", build=build, root=build / "csrc", macros=ROCM)
    assert [(row.file, row.line, row.header) for row in left] == [
        ("csrc/cuda_own.h", 2, "cuda.h"),
        ("csrc/deep/b.h", 4, "cub/x.cuh"),
        ("csrc/k.hip", 2, "cuda_runtime.h"),
    ]


def test_a_header_out_of_the_build_folder_is_not_followed(build: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "x.h").write_text("#include <cuda.h>\n")
    file = build / "csrc/up.hip"
    file.write_text('#include "../outside/x.h"\n')
    inner = tmp_path / "csrc"
    assert left_over(file, build=inner, root=inner, macros=ROCM) == []
