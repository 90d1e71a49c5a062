"""A toy upstream with C++ in it, and patches whose checks load what is built from it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.toy import Toy, git

HEADER = '#pragma once\nextern "C" long side_sum(long width, long height);\n'
KERNEL = """\
#include "area.h"

long side_sum(long width, long height) {
    return width + height;
}
"""
FIXED_KERNEL = KERNEL.replace("width + height;", "width * height;")
BINDING = """\
#include <torch/library.h>
#include "area.h"

static int64_t area(int64_t width, int64_t height) { return side_sum(width, height); }

TORCH_LIBRARY(toy_area, library) { library.def("area(int width, int height) -> int", &area); }
"""
#: Fails on the base, where an area is a sum. Without torch, which takes seconds to compile
#: against: ctypes loads any shared library.
LOADING = """\
import ctypes
import os

library = ctypes.CDLL(os.environ["CONTRIBBOT_EXTENSION"])


def test_area():
    assert library.side_sum(2, 3) == 6
"""
LOADING_TORCH = """\
import os

import torch

torch.ops.load_library(os.environ["CONTRIBBOT_EXTENSION"])


def test_area():
    assert torch.ops.toy_area.area(2, 3) == 6
"""
CHECK = """\
[[checks]]
name = "red"
file = "test_red.py"
expect = "fail-to-pass"
reason = "AssertionError"
build = "area"
timeout = 300
"""


def build_table(**more: str) -> str:
    keys = {
        "name": '"area"', "way": '"extension"', "sources": '["csrc/area.cpp"]',
        "include": '["csrc"]', "targets": '["cpu"]', **more,
    }  # fmt: skip
    return "[[build]]\n" + "".join(f"{key} = {value}\n" for key, value in keys.items() if value)


def with_sources(toy: Toy, sources: Mapping[str, str | bytes]) -> None:
    """Add files to the toy upstream, and pin the commit that has them."""
    toy.commit = toy.change(sources, "Sources")
    git(toy.upstream, "tag", "-f", "v1.0")


def put_kernel_patch(
    toy: Toy, *, build: str | None = None, checks: str = CHECK, base: str = KERNEL,
    change: dict[str, str | bytes] | None = None, check_files: dict[str, str] | None = None,
) -> None:  # fmt: skip
    """Put the patch `area`, which changes one C++ source, alone into the queue."""
    with_sources(toy, {"csrc/area.cpp": base, "csrc/area.h": HEADER})
    changed = change or {"csrc/area.cpp": FIXED_KERNEL}
    toy.put_area(
        patch=toy.format_patch(changed),
        files=tuple(changed),
        checks=(build_table() if build is None else build) + checks,
        check_files=check_files or {"test_red.py": LOADING},
    )


def products(toy: Toy) -> list[Path]:
    """Return the folders of finished products in the test's cache."""
    builds = toy.root.parent / "cache" / "builds"
    return sorted(path.parent for path in builds.glob("*/product.json"))
