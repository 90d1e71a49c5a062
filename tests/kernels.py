"""Triton kernels that tests launch."""

# Triton's language takes no annotations but its own.
# ruff: noqa: ANN001, ANN201, PLR0917
# mypy: disable-error-code="no-untyped-def, untyped-decorator"

import triton
import triton.language as tl


@triton.jit
def add(x, y, out, n, size: tl.constexpr):
    place = tl.program_id(0) * size + tl.arange(0, size)
    mask = place < n
    tl.store(out + place, tl.load(x + place, mask=mask) + tl.load(y + place, mask=mask), mask=mask)


@triton.jit
def copy_all(x, out, size: tl.constexpr):
    place = tl.program_id(0) * size + tl.arange(0, size)
    tl.store(out + place, tl.load(x + place))


@triton.jit
def gather(table, out, size: tl.constexpr):
    group = tl.program_id(0)
    source = tl.load(table + group).to(tl.pointer_type(tl.float32))
    place = tl.arange(0, size)
    tl.store(out + group * size + place, tl.load(source + place))


@triton.jit
def count(out):
    tl.atomic_add(out, 1.5)


@triton.jit
def scale(x, out, factor, half, whole, flag):
    place = tl.arange(0, 16)
    value = tl.load(x + place) * factor + half + whole
    tl.store(out + place, tl.where(flag, value, 0))
