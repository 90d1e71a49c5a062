"""ROCm's device library in HIP code: linked where it is called, and what its functions give."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from contribbot import emulate
from contribbot.compile import hip
from contribbot.compile.hip import HipSource, code_object, compile_hip
from contribbot.compile.toolchain import DeviceLibrary, Toolchain
from contribbot.emulate import NoResultError
from tests.conftest import CompileOnce
from tests.tools import kinds

Values: TypeAlias = NDArray[np.floating]
TARGETS = ("gfx942", "gfx1201", "gfx950", "gfx1100", "gfx90a")
COUNT = 4096


def _by_torch(function: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Values], Values]:
    return lambda x: np.asarray(function(torch.from_numpy(x.astype(np.float64))))


#: By the name of a kernel: the call, what is right, and by how many ULP a result may be off
#: (ROCm/llvm-project, amd/device-libs/doc/OCML.md, "Supported functions").
FLOATS: dict[str, tuple[str, Callable[..., Values], float]] = {
    "tanhf": ("tanhf(x)", np.tanh, 5),
    "expf": ("expf(x)", np.exp, 3),
    "expm1f": ("expm1f(x)", np.expm1, 3),
    "logf": ("logf(x)", np.log, 3),
    "log1pf": ("log1pf(x)", np.log1p, 2),
    "erff": ("erff(x)", _by_torch(torch.erf), 16),
    "erfcf": ("erfcf(x)", _by_torch(torch.erfc), 16),
    "powf": ("powf(x, y)", np.power, 16),
    "atan2f": ("atan2f(x, y)", np.arctan2, 6),
    "cbrtf": ("cbrtf(x)", np.cbrt, 2),
    "rsqrtf": ("rsqrtf(x)", lambda x: 1 / np.sqrt(x), 2),
    "fmodf": ("fmodf(x, y)", np.fmod, 0),
}
DOUBLES: dict[str, tuple[str, Callable[..., Values], float]] = {
    "exp": ("exp(x)", np.exp, 3),
    "log": ("log(x)", np.log, 3),
    "pow": ("pow(x, y)", np.power, 16),
    "tanh": ("tanh(x)", np.tanh, 5),
    "fmod": ("fmod(x, y)", np.fmod, 0),
}
WHOLE: dict[str, Callable[[int], int]] = {
    "clzll": lambda x: 64 - x.bit_length(),
    "popcll": int.bit_count,
    "brevll": lambda x: int(f"{x:064b}"[::-1], 2),
    "ffsll": lambda x: (x & -x).bit_length(),
}
KERNEL = """
extern "C" __global__ void k_{name}(const {of}* a, const {of}* b, {of}* out) {{
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  const {of} x = a[i], y = b[i];
  out[i] = {call};
}}
"""
HEADER = "#include <hip/hip_runtime.h>\n"
SOURCE = HEADER + "".join(
    KERNEL.format(name=name, of=of, call=call)
    for of, calls in (
        ("float", {name: call for name, (call, *_) in FLOATS.items()}),
        ("double", {name: call for name, (call, *_) in DOUBLES.items()}),
        ("unsigned long long", {name: f"__{name}(x)" for name in WHOLE}),
    )
    for name, call in calls.items()
)
#: One kernel that needs the library, and one that needs none.
CALLS = HEADER + KERNEL.format(name="calls", of="float", call="tanhf(x)")
PLAIN = HEADER + KERNEL.format(name="plain", of="float", call="x * y + sqrtf(x)")


@pytest.fixture(scope="module", params=kinds(TARGETS, "gfx942".__eq__))
def kernels(request: pytest.FixtureRequest, compiled: CompileOnce) -> dict[str, emulate.Kernel]:
    return compiled(SOURCE, request.param)


def arguments(kind: type[np.float32 | np.float64]) -> tuple[Values, Values]:
    """Return pairs of values: all of corners, any bits, and what is neither tiny nor huge."""
    generator, facts = np.random.default_rng(0), np.finfo(kind)
    edges = [facts.smallest_subnormal, facts.tiny, 1 + facts.eps, facts.max]
    sizes: Values = np.array([*edges, 0, 0.5, 1, 2, 3, 10, 88.7, 104, np.inf], kind)
    corners = np.array([*sizes, *-sizes, np.nan], kind)
    pairs = np.stack(np.meshgrid(corners, corners)).reshape(2, -1).astype(kind)
    anything = generator.bytes(2 * facts.bits // 8 * 1000)
    rest = COUNT - pairs.shape[1] - 1000
    usual = generator.standard_normal((2, rest)) * np.exp2(generator.uniform(-12, 7, (2, rest)))
    parts = pairs, np.frombuffer(anything, kind).reshape(2, -1), usual.astype(kind)
    a, b = np.concatenate(parts, axis=1)
    return a.copy(), b.copy()


def ulps(seen: Values, exact: Values) -> Values:
    """Return by how many of its own ULP each result is off; infinite where it is another kind."""
    nearest = exact.astype(seen.dtype)
    same = (seen == nearest) | (np.isnan(seen) & np.isnan(nearest))
    comparable = np.isfinite(seen) & np.isfinite(nearest)
    off = np.abs(seen.astype(exact.dtype) - exact) / np.spacing(np.abs(nearest))
    return np.where(comparable, off, np.where(same, 0, np.inf))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", [*FLOATS, *DOUBLES])
def test_results_are_as_near_as_the_library_promises(
    kernels: dict[str, emulate.Kernel], name: str
) -> None:
    kind, wide = (np.float32, np.float64) if name in FLOATS else (np.float64, np.longdouble)
    call, function, most = {**FLOATS, **DOUBLES}[name]
    a, b = arguments(kind)
    out: Values = np.zeros(COUNT, kind)

    emulate.launch(kernels[f"k_{name}"], COUNT // 256, 256, [a, b, out])

    given = [a.astype(wide), b.astype(wide)][: 2 if "y" in call else 1]
    off = ulps(out, function(*given))
    worst = int(np.argmax(off))
    assert off[worst] <= most, (a[worst], b[worst], out[worst], off[worst])


@pytest.mark.parametrize("name", WHOLE)
def test_bits_are_counted(kernels: dict[str, emulate.Kernel], name: str) -> None:
    generator = np.random.default_rng(0)
    x = generator.integers(0, 2**64, COUNT, np.uint64)
    x >>= generator.integers(0, 64, COUNT, np.uint64)
    x[:3] = 0, 1, 2**64 - 1
    out = np.zeros(COUNT, np.uint64)

    emulate.launch(kernels[f"k_{name}"], COUNT // 256, 256, [x, x, out])

    assert [*map(int, out)] == [WHOLE[name](int(value)) for value in x]


def made(clang: Toolchain, folder: Path, text: str) -> tuple[bytes, str]:
    """Return the code object of a source, and the library in it."""
    source = folder / "kernel.hip"
    source.write_text(text, encoding="utf-8")
    given = HipSource(source, (), (), "c++20", torch=False, folders=(folder,))
    return code_object(given, "gfx942", using=clang, folder=folder, timeout=60)


@pytest.mark.slow
def test_what_calls_no_library_is_compiled_as_without_one(
    clang: Toolchain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_library = made(clang, tmp_path, PLAIN)
    monkeypatch.setattr(hip, "device_library", lambda _using: None)

    assert with_library == made(clang, tmp_path, PLAIN)
    assert with_library[1] == ""


@pytest.mark.slow
def test_the_listing_and_the_record_have_the_library(
    clang: Toolchain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if clang.kind == "rocm":
        pytest.skip("ROCm's clang links its own")
    listed = {}
    for name, text in {"calls": CALLS, "plain": PLAIN}.items():
        (tmp_path / f"{name}.hip").write_text(text, encoding="utf-8")
        given = HipSource(tmp_path / f"{name}.hip", (), (), "c++20", torch=False, folders=())
        listed[name] = compile_hip(
            given, "gfx942", using=clang, folder=tmp_path, timeout=60, scrub=str
        )
        # CachedOutcome by the library, too: without one, the call stays a call.
        with monkeypatch.context() as patch:
            patch.setattr(hip, "device_library", lambda _using: None)
            bare = compile_hip(given, "gfx942", using=clang, folder=tmp_path, timeout=60, scrub=str)
        assert bare.listing is not None
        assert bare.listing.unresolved == (("__ocml_tanh_f32",) if name == "calls" else ())
        assert bare.library == ""

    assert listed["calls"].library == made(clang, tmp_path, CALLS)[1]
    assert listed["calls"].library.startswith("ocml.bc and ockl.bc of ")
    assert listed["plain"].library == ""
    for result in listed.values():
        assert result.listing is not None
        assert (result.listing.unresolved, result.listing.functions) == ((), {})


def test_a_library_that_is_missing_or_cannot_be_read_is_said(
    clang: Toolchain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if clang.kind == "rocm":
        pytest.skip("ROCm's clang links its own")
    (tmp_path / "ocml.bc").write_bytes(b"BC\xc0\xdenot so")
    unreadable = DeviceLibrary((tmp_path / "ocml.bc",), "ocml.bc of nobody")
    said = "^calls __ocml_tanh_f32 of ROCm's device library: "
    for library, why in (
        (None, r"no ocml\.bc and ockl\.bc are here: python -m"),
        (unreadable, f"{clang.name} cannot read {unreadable.name} .*: install ROCm"),
    ):
        monkeypatch.setattr(hip, "device_library", lambda _using, library=library: library)
        with pytest.raises(NoResultError, match=said + why):
            emulate.compile_hip(CALLS, "gfx942")


def test_what_talks_to_the_host_is_not_modelled_and_ends_a_run_only_where_it_does() -> None:
    kernel = emulate.compile_hip(
        """#include <hip/hip_runtime.h>
#include <cassert>
extern "C" __global__ void k(const float* x, float* out) {
  assert(x[0] < 2);
  out[threadIdx.x] = x[threadIdx.x];
}""",
        "gfx942",
    )["k"]
    x, out = torch.ones(64), torch.zeros(64)
    emulate.launch(kernel, 1, 64, [x, out])
    assert torch.equal(out, x)
    with pytest.raises(emulate.UnmodelledError, match="what the host does for printf, assert"):
        emulate.launch(kernel, 1, 64, [3 * x, out])
