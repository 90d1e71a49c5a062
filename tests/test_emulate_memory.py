"""Memory instructions, one at a time: atomic operations, scalar loads, loads into LDS."""

from __future__ import annotations

import functools
import struct
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

from contribbot import emulate
from tests.conftest import CompileOnce
from tests.hiptoy import VECTORS


def f32(*values: float) -> int:
    return int.from_bytes(struct.pack(f"<{len(values)}f", *values), "little")


def f64(*values: float) -> int:
    return int.from_bytes(struct.pack(f"<{len(values)}d", *values), "little")


def f16(*values: float) -> int:
    return int.from_bytes(struct.pack(f"<{len(values)}e", *values), "little")


def pair(low: int, high: int, width: int = 32) -> int:
    return high << width | low


NAN = 0x7FC00000
#: Returns what was there before.
GLC, SC0, TH = " glc", " sc0", " th:TH_ATOMIC_RETURN"


@dataclass(frozen=True)
class Atomic:
    """An atomic operation: {r} is its result, {a} its address, {d}, {e} its data, {b} its base."""

    targets: str
    text: str
    before: int
    data: int
    after: int
    words: int = 1  # of the memory
    bank: str = "v"  # of the data

    @property
    def data_words(self) -> int:
        return self.words * (2 if "cmp" in self.text and "{e}" not in self.text else 1)


CDNA, RDNA = "gfx90a gfx942 gfx950", "gfx1100 gfx1201"
GLOBAL, BUFFER, DS = " {r}, {a}, {d}, {b}", " {d}, {a}, {b}, 0 offen", " {r}, {a}, {d}"
ATOMICS = [
    Atomic("gfx90a", "global_atomic_inc" + GLOBAL + GLC, 4, 5, 5),
    Atomic("gfx942", "global_atomic_inc" + GLOBAL + SC0, 5, 5, 0),
    Atomic("gfx1100", "global_atomic_inc_u32" + GLOBAL + GLC, 6, 5, 0),
    Atomic("gfx942", "global_atomic_dec" + GLOBAL + SC0, 0, 5, 5),
    Atomic("gfx942", "global_atomic_dec_x2" + GLOBAL + SC0, 1 << 32, 5 << 32, (1 << 32) - 1, 2),
    Atomic("gfx1201", "global_atomic_dec_u32" + GLOBAL + TH, 9, 5, 5),
    Atomic("gfx1100", "global_atomic_csub_u32" + GLOBAL + GLC, 3, 5, 0),
    Atomic("gfx1100", "global_atomic_csub_u32" + GLOBAL + GLC, 5, 3, 2),
    Atomic("gfx1201", "global_atomic_sub_clamp_u32" + GLOBAL + TH, 3, 5, 0),
    Atomic("gfx1201", "global_atomic_cond_sub_u32" + GLOBAL + TH, 3, 5, 3),
    Atomic("gfx1201", "global_atomic_cond_sub_u32" + GLOBAL + TH, 5, 3, 2),
    Atomic("gfx942", "global_atomic_smin" + GLOBAL + SC0, 3, 0xFFFFFFFF, 0xFFFFFFFF),
    Atomic("gfx942", "global_atomic_umin" + GLOBAL + SC0, 3, 0xFFFFFFFF, 3),
    Atomic("gfx942", "global_atomic_cmpswap" + GLOBAL + SC0, 7, pair(9, 7), 9),
    Atomic("gfx942", "global_atomic_cmpswap" + GLOBAL + SC0, 8, pair(9, 7), 8),
    Atomic("gfx942", "global_atomic_sub" + GLOBAL + SC0, 7, 3, 4, bank="a"),
    # Only gfx90a's flush subnormals of float32 (LLVM's FeatureMemoryAtomicFAddF32DenormalSupport).
    Atomic("gfx90a", "global_atomic_add_f32 {a}, {d}, {b}", 1, 1, 0),
    Atomic("gfx942", "global_atomic_add_f32" + GLOBAL + SC0, 1, 1, 2),
    Atomic("gfx1100", "global_atomic_add_f32" + GLOBAL + GLC, 1, 1, 2),
    Atomic("gfx1201", "global_atomic_add_f32" + GLOBAL + TH, 1, 1, 2),
    Atomic("gfx90a", "global_atomic_add_f64" + GLOBAL + GLC, f64(1), f64(2**-52), f64(1 + 2**-52),
           2),
    Atomic("gfx942", "global_atomic_min_f64" + GLOBAL + SC0, f64(-1), f64(float("nan")), f64(-1),
           2),
    Atomic("gfx942", "global_atomic_pk_add_f16 {a}, {d}, {b}", f16(1, 65504), f16(2**-11, 16),
           f16(1, float("inf"))),
    Atomic("gfx942", "global_atomic_pk_add_bf16" + GLOBAL + SC0, 0x3F803F81, 0x3B803B80,
           0x3F803F82),
    Atomic("gfx1201", "global_atomic_pk_add_bf16" + GLOBAL + TH, 0x00013F80, 0x00013F80,
           0x00024000),
    Atomic("gfx90a", "buffer_atomic_cmpswap_x2" + BUFFER + GLC, 7 << 32, pair(9, 7 << 32, 64), 9,
           2),
    Atomic("gfx942", "buffer_atomic_add_f32" + BUFFER + SC0, f32(1), f32(2), f32(3)),
    Atomic("gfx942", "buffer_atomic_add_f32" + BUFFER + SC0, f32(1), f32(2), f32(3), bank="a"),
    Atomic("gfx950", "buffer_atomic_add_f64" + BUFFER + SC0, f64(1), f64(2), f64(3), 2),
    Atomic("gfx942", "buffer_atomic_pk_add_f16" + BUFFER + SC0, f16(1, 2), f16(3, 4), f16(4, 6)),
    Atomic("gfx950", "buffer_atomic_pk_add_bf16" + BUFFER + SC0, 0x3F803F80, 0x3F803F80,
           0x40004000),
    Atomic("gfx942", "buffer_atomic_umax_x2" + BUFFER + SC0, 5, 1 << 40, 1 << 40, 2),
    Atomic("gfx1100", "buffer_atomic_add_u64" + BUFFER + GLC, 5, 1 << 40, 5 | 1 << 40, 2),
    Atomic("gfx1201", "buffer_atomic_swap_b32 {d}, {a}, {b}, null offen" + TH, 5, 7, 7),
    Atomic("gfx1201", "buffer_atomic_min_num_f32 {d}, {a}, {b}, null offen" + TH, NAN, f32(2),
           f32(2)),
    Atomic(CDNA, "ds_cmpst_rtn_b32 {r}, {a}, {d}, {e}", 7, pair(7, 9), 9),
    Atomic(CDNA, "ds_cmpst_rtn_b64 {r}, {a}, {d}, {e}", 7, pair(9, 7, 64), 7, 2),
    Atomic(RDNA, "ds_cmpstore_rtn_b32 {r}, {a}, {d}, {e}", 7, pair(9, 7), 9),
    Atomic(RDNA, "ds_cmpstore_rtn_b32 {r}, {a}, {d}, {e}", 7, pair(7, 9), 7),
    Atomic(f"{CDNA} {RDNA}", "ds_add_rtn_f32" + DS, f32(1), f32(2**-24), f32(1)),
    Atomic(f"{CDNA} {RDNA}", "ds_add_rtn_f32" + DS, 1, 1, 2),
    Atomic(f"{CDNA} {RDNA}", "ds_dec_rtn_u32" + DS, 9, 5, 5),
    Atomic(f"{CDNA} {RDNA}", "ds_rsub_rtn_u32" + DS, 9, 5, 0xFFFFFFFC),
    Atomic("gfx942", "ds_min_rtn_f32" + DS, f32(1), NAN, f32(1)),
    Atomic("gfx1201", "ds_max_num_rtn_f32" + DS, NAN, f32(1), f32(1)),
    Atomic(CDNA, "ds_add_rtn_f64" + DS, f64(1), f64(2), f64(3), 2),
    Atomic("gfx942 gfx1201", "ds_pk_add_rtn_f16" + DS, f16(1, 2), f16(3, 4), f16(4, 6)),
    Atomic("gfx942 gfx1201", "ds_pk_add_rtn_bf16" + DS, 0x3F803F80, 0x3F803F80, 0x40004000),
]  # fmt: skip
CASES = [(target, row) for row in ATOMICS for target in row.targets.split()]


def element(words: int, place: int) -> str:
    return f"[{place}]" if words > 1 else ""


def wait(target: str) -> str:
    """Return what waits for all memory operations: nothing else does so in inline assembly."""
    return "\\n" + ("s_wait_idle" if target == "gfx1201" else "s_waitcnt 0")


def atomic_source(place: int, row: Atomic, target: str) -> str:
    """Return what executes an operation at `memory` with an offset, where it is asked for."""
    words, count = row.words, row.data_words
    local, buffer = row.text.startswith("ds_"), row.text.startswith("buffer_")
    body = [f"V{words} r = {{}}, e = {{}}; V{count} d;"]
    body += [f"d{element(count, i)} = data[{i}];" for i in range(count)]
    if "{e}" in row.text:
        body += [f"e{element(words, i)} = data[{words + i}];" for i in range(words)]
    inputs = f'"v"(offset), "{row.bank}"(d)'
    numbers = {"r": "%0", "a": "%1", "d": "%2", "b": "%3", "e": "%3"}
    result = f'"=&{row.bank}"(r)'
    if local:
        body += [f"held[offset / 4 + {i}] = memory[offset / 4 + {i}];" for i in range(words)]
        inputs += ', "v"(e)'
    elif buffer:
        body += [
            "const unsigned long long at = (unsigned long long)memory;",
            "V4 b = {(unsigned)at, (unsigned)(at >> 32), records, 0x27000};",
        ]
        result, inputs = f'"+{row.bank}"(d)', '"v"(offset), "s"(b)'
        numbers = {"d": "%0", "a": "%1", "b": "%2"}
    else:
        inputs += ', "s"(memory)'
    text = row.text.format(**numbers)
    body.append(f'asm volatile("{text}{wait(target)}" : {result} : {inputs} : "memory");')
    body += [f"memory[offset / 4 + {i}] = held[offset / 4 + {i}];" for i in range(words) if local]
    source = "d" if buffer else "r"
    body += [
        f"found[{i}] = {source}{element(count if buffer else words, i)};" for i in range(words)
    ]
    return f"if (which == {place}) {{\n" + "\n".join(body) + "}\n"


def atomics(target: str) -> str:
    """Return a kernel of all operations of a target, which are then translated at once."""
    sources = [
        atomic_source(i, row, target) for i, (found, row) in enumerate(CASES) if found == target
    ]
    return f"""
extern "C" __global__ void atomics(unsigned* memory, const unsigned* data, unsigned* found,
                                   unsigned offset, unsigned records, int which) {{
__shared__ volatile unsigned held[8];
{"".join(sources)}}}
"""


def words_of(number: int, count: int) -> NDArray[np.uint32]:
    return np.frombuffer(number.to_bytes(4 * count, "little"), np.uint32).copy()


@pytest.mark.parametrize(("target", "row"), CASES, ids=[f"{t} {row.text}" for t, row in CASES])
def test_an_atomic_operation(compiled: CompileOnce, target: str, row: Atomic) -> None:
    place = next(i for i, case in enumerate(CASES) if case == (target, row))
    kernel = compiled(source(target), target)["atomics"]
    given = 2 * row.words if "{e}" in row.text else row.data_words
    data, found = words_of(row.data, given), np.zeros(row.words, np.uint32)
    for records in (64, 0):
        memory = np.zeros(8, np.uint32)
        memory[4 : 4 + row.words] = words_of(row.before, row.words)
        emulate.launch(kernel, 1, 1, [memory, data, found, 16, records, place])
        beyond = row.text.startswith("buffer_") and not records  # neither read nor written
        expected = row.before if beyond else row.after
        assert memory[4 : 4 + row.words].tolist() == words_of(expected, row.words).tolist()
        assert not memory[:4].any()
        assert not memory[4 + row.words :].any()
        if "{r}" in row.text or row.text.startswith("buffer_"):
            assert found.tolist() == words_of(0 if beyond else row.before, row.words).tolist()


#: Target, instruction, offset, bytes of a tensor that counts from 1; what is read; none: a fault.
SCALAR: list[tuple[str, str, int, int, list[int] | None]] = [
    # The aligned word around what lies within is no fault: LLVM widens such loads.
    ("gfx942", "s_load_dword", 0, 2, [0x0201]), ("gfx942", "s_load_dword", 0, 1, [1]),
    ("gfx1100", "s_load_b32", 4, 7, [0x070605]), ("gfx1201", "s_load_b32", 4, 6, [0x0605]),
    ("gfx942", "s_load_dword", 4, 4, None), ("gfx942", "s_load_dword", 4, 3, None),
    ("gfx942", "s_load_dwordx2", 0, 7, [0x04030201, 0x070605]),
    ("gfx942", "s_load_dwordx2", 0, 4, None), ("gfx1201", "s_load_b128", 0, 12, None),
    ("gfx1201", "s_load_b96", 0, 12, [0x04030201, 0x08070605, 0x0C0B0A09]),
    ("gfx1201", "s_load_u8", 2, 3, [3]), ("gfx1201", "s_load_u8", 3, 3, None),
    ("gfx1201", "s_load_i8", 255, 256, [0]), ("gfx1201", "s_load_i8", 254, 256, [0xFFFFFFFF]),
    ("gfx1201", "s_load_u16", 2, 4, [0x0403]), ("gfx1201", "s_load_u16", 2, 3, None),
    ("gfx1201", "s_load_i16", 254, 256, [0x00FF]),
    ("gfx1201", "s_load_i16", 252, 256, [0xFFFFFEFD]),
]  # fmt: skip


WIDTHS = {"dwordx2": 2, "b96": 3, "b128": 4}


def scalar_loads(target: str) -> str:
    """Return a kernel of all scalar loads of a target."""
    sources = [
        f"if (which == {place}) {{ V{count} x; "
        f'asm volatile("{text} %0, %1, {offset}{wait(target)}" : "=&s"(x) : "s"(from));\n'
        + "".join(f"found[{i}] = x{element(count, i)};\n" for i in range(count))
        + "}\n"
        for place, (found, text, offset, _, _) in enumerate(SCALAR)
        if found == target
        for count in [WIDTHS.get(text.rpartition("_")[2], 1)]
    ]
    start = 'extern "C" __global__ void scalars(const unsigned* from, unsigned* found, int which) {'
    return "\n".join([start, *sources, "}\n"])


@pytest.mark.parametrize("place", range(len(SCALAR)), ids=[f"{r[0]} {r[1]} {r[3]}" for r in SCALAR])
def test_a_scalar_load(compiled: CompileOnce, place: int) -> None:
    target, _, _, size, expected = SCALAR[place]
    given = np.arange(1, size + 1).astype(np.uint8)
    found = np.zeros(4, np.uint32)
    kernel = compiled(source(target), target)["scalars"]
    if expected is None:
        with pytest.raises(emulate.KernelError, match="out of bounds"):
            emulate.launch(kernel, 1, 1, [given, found, place])
        return
    emulate.launch(kernel, 1, 1, [given, found, place])
    assert found[: len(expected)].tolist() == expected


BUFFERS = """
extern "C" __global__ void {name}(const unsigned* from, unsigned* found, unsigned records,
                                  unsigned top) {{
  const unsigned long long at = (unsigned long long)from;
  V4 b = {{(unsigned)at, (unsigned)(at >> 32) | top, records, 0x27000}}, x = {{}};
  asm volatile("{text}" : "=&s"(x) : "s"(b));
  for (int i = 0; i < 4; i++) found[i] = x[i];
}}"""


@pytest.mark.parametrize(
    ("target", "records", "expected"),
    [
        ("gfx942", 64, [2, 3, 4, 5]), ("gfx942", 12, [2, 3, 0, 0]), ("gfx1100", 4, [0, 0, 0, 0]),
        ("gfx1201", 12, [2, 3, 0, 0]),
    ],
)  # fmt: skip
def test_a_scalar_load_from_a_buffer(
    compiled: CompileOnce, target: str, records: int, expected: list[int]
) -> None:
    kernel = compiled(source(target), target)["buffers"]
    given, found = np.arange(1, 17, dtype=np.uint32), np.full(4, 7, np.uint32)
    emulate.launch(kernel, 1, 1, [given, found, records, 0])
    assert found.tolist() == expected
    with pytest.raises(emulate.UnmodelledError, match="stride"):
        emulate.launch(kernel, 1, 1, [given, found, records, 4 << 16])


INTO_LDS = """
extern "C" __global__ void {name}(const unsigned* from, unsigned* found, unsigned records) {{
  __shared__ unsigned held[512];
  const unsigned long long at = (unsigned long long)from;
  V4 b = {{(unsigned)at, (unsigned)(at >> 32), records, 0x27000}};
  const unsigned i = threadIdx.x, offset = {step} * (i ^ 1);
  for (int j = 0; j < 512; j += 64) held[i + j] = 7;
  __syncthreads();
  const unsigned long long place = at + offset;
  if (i != 5) asm volatile("s_mov_b32 m0, 32\\n{text}"
                           : : "v"(place), "v"(offset), "s"(b) : "memory");
  __syncthreads();
  for (int j = 0; j < 512; j += 64) found[i + j] = ((volatile unsigned*)held)[i + j];
}}"""


INTO = [
    ("gfx942", "global_load_lds_dword %0, off offset:16", 1),
    ("gfx90a", "buffer_load_dword %1, %2, 0 offen offset:16 lds", 1),
    ("gfx942", "buffer_load_dword %1, %2, 0 offen offset:16 lds", 1),
    ("gfx950", "global_load_lds_dwordx3 %0, off offset:16", 3),
    ("gfx950", "global_load_lds_dwordx4 %0, off offset:16", 4),
    ("gfx950", "buffer_load_dwordx4 %1, %2, 0 offen offset:16 lds", 4),
]


@pytest.mark.parametrize("place", range(len(INTO)), ids=[f"{r[0]} {r[1]}" for r in INTO])
def test_a_load_into_lds(compiled: CompileOnce, place: int) -> None:
    """Lanes lie side by side, whichever addresses they read; the offset counts in both."""
    target, text, words = INTO[place]
    kernel = compiled(source(target), target)[f"into{place}"]
    records = 4 * (4 + 60 * words)
    given, found = np.arange(100, 612, dtype=np.uint32), np.zeros(512, np.uint32)
    emulate.launch(kernel, 1, 64, [given, found, records])
    expected = np.full(512, 7, np.uint32)
    for lane in {*range(64)} - {5}:
        first = 4 + (lane ^ 1) * words
        values = given[first : first + words]
        beyond = "buffer" in text and 4 * first >= records  # reads as 0
        start = (32 + 16) // 4 + lane * words
        expected[start : start + words] = 0 if beyond else values
    assert found.tolist() == expected.tolist()


TRANSPOSED = """
extern "C" __global__ void {name}(const unsigned* from, unsigned* found) {{
  __shared__ volatile unsigned held[64 * {words}];
  const unsigned i = threadIdx.x;
  for (int j = 0; j < {words}; j++) held[i * {words} + j] = from[i * {words} + j];
  __syncthreads();
  V{words} x;
  asm volatile("{text} %0, %1\\ns_waitcnt 0" : "=v"(x) : "v"(i * {words} * 4) : "memory");
  for (int j = 0; j < {words}; j++) found[i * {words} + j] = x[j];
}}"""


WIDTH = {"b64_tr_b16": 16, "b64_tr_b8": 8, "b64_tr_b4": 4, "b96_tr_b6": 6}


@pytest.mark.parametrize("name", WIDTH)
def test_16_lanes_read_the_columns_of_rows_of_16(compiled: CompileOnce, name: str) -> None:
    width = WIDTH[name]
    words = 3 if width == 6 else 2
    each = 32 * words // width
    kernel = compiled(source("gfx950"), "gfx950")[name]
    elements = np.random.default_rng(0).integers(0, 1 << width, (4, each, 16))

    def packed(rows: NDArray[np.int64]) -> NDArray[np.uint32]:
        numbers = [
            sum(int(x) << width * i for i, x in enumerate(row)) for row in rows.reshape(-1, each)
        ]
        return np.concatenate([words_of(number, words) for number in numbers])

    found = np.zeros(64 * words, np.uint32)
    emulate.launch(kernel, 1, 64, [packed(elements), found])
    assert found.tolist() == packed(elements.swapaxes(1, 2)).tolist()


HALVES = """
extern "C" __global__ void halves(unsigned* memory, unsigned offset) {
  unsigned long long d = 0x0000000700000201ull;
  asm volatile("global_atomic_cmpswap %0, %1, %2" : : "v"(offset), "v"(d), "s"(memory) : "memory");
}
extern "C" __global__ void add_half(_Float16* memory, unsigned place, unsigned* out) {
  if (place) out[1] = *(unsigned*)(memory + place + threadIdx.x);
  __hip_atomic_fetch_add(memory + 2, (_Float16)1, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}"""


@functools.cache
def source(target: str) -> str:
    """Return all kernels of a target."""
    load = "s_buffer_load_dwordx4" if target.startswith("gfx9") else "s_buffer_load_b128"
    return "".join([
        VECTORS, atomics(target), scalar_loads(target),
        BUFFERS.format(name="buffers", text=f"{load} %0, %1, 4{wait(target)}"),
        *(INTO_LDS.format(name=f"into{place}", text=text + wait(target), step=4 * words)
          for place, (found, text, words) in enumerate(INTO) if found == target),
        *(TRANSPOSED.format(name=name, text=f"ds_read_{name}", words=3 if width == 6 else 2)
          for name, width in WIDTH.items() if target == "gfx950"),
        HALVES if target == "gfx942" else "",
    ])  # fmt: skip


def test_an_atomic_operation_on_the_word_around_a_half(compiled: CompileOnce) -> None:
    """LLVM makes one of an atomic operation on two bytes, and loads that word before."""
    kernels = compiled(source("gfx942"), "gfx942")
    half = np.array([7], np.uint16)
    emulate.launch(kernels["halves"], 1, 1, [half, 0])
    assert half.tolist() == [0x0201]
    with pytest.raises(emulate.KernelError, match="4 bytes at offset 4 of argument 0"):
        emulate.launch(kernels["halves"], 1, 1, [half, 4])
    floats, out = np.array([1, 2, 3], np.float16), np.zeros(2, np.uint32)
    emulate.launch(kernels["add_half"], 1, 1, [floats, 0, out])
    assert floats.tolist() == [1, 2, 4]
    for place, told in ((2, "4 bytes at offset 4"), (3, "4 bytes at offset 6")):
        with pytest.raises(emulate.KernelError, match=f"{told} of argument 0"):
            emulate.launch(kernels["add_half"], 1, 1, [floats, place, out])
