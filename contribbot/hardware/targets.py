"""What is true of AMD GPU targets, as far as a listing is read with it.

Sources: the processor table and the kernel descriptor in LLVM's "User Guide for
AMDGPU Backend" (wavefront sizes, granules, work-group processor mode), LLVM's
resource arithmetic for that backend (register files, wavefronts of a SIMD, the first
release that knows a target), and AMD's instruction set documents for CDNA 1 to 4 and
RDNA 1 to 4 (local data share, FP8 formats). A test holds the arithmetic against what
clang 19 says of real kernels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

_KIB: Final = 1024
#: Gfx9: scalar registers of a SIMD, and the multiple in which they are handed out. A
#: wavefront of gfx10 and later has its own, which limit nothing.
_GFX9_SGPRS: Final = 800
_GFX9_SGPR_GRANULE: Final = 16
#: Work-groups of more than one wavefront that a compute unit holds: each takes a barrier.
_BARRIERS: Final = 16


@dataclass(frozen=True)
class Family:
    """What targets of one kind have in common."""

    name: str
    wavefront: Literal[32, 64]
    vgprs: int
    vgpr_granule: int
    waves: int
    simds: int = 4
    lds: int = 64 * _KIB
    fp8: Literal["e4m3fn", "e4m3fnuz"] = "e4m3fn"
    fp8_hardware: bool = False
    rdna: bool = False


@dataclass(frozen=True)
class Target:
    """An AMD GPU target."""

    name: str
    family: Family
    llvm: int


@dataclass(frozen=True)
class Use:
    """What a kernel takes of its compute unit."""

    vgprs: int
    sgprs: int
    lds: int
    wavefront: int
    workgroup: int
    wgp: bool = False


_GCN5: Final = Family("GCN 5", 64, 256, 4, 10)
_CDNA1: Final = Family("CDNA 1", 64, 256, 4, 10)
_CDNA2: Final = Family("CDNA 2", 64, 512, 8, 8)
_CDNA3: Final = Family("CDNA 3", 64, 512, 8, 8, fp8="e4m3fnuz", fp8_hardware=True)
_CDNA4: Final = Family("CDNA 4", 64, 512, 8, 8, lds=160 * _KIB, fp8_hardware=True)
_RDNA1: Final = Family("RDNA 1", 32, 1024, 8, 20, simds=2, rdna=True)
_RDNA2: Final = Family("RDNA 2", 32, 1024, 16, 16, simds=2, rdna=True)
_RDNA3: Final = Family("RDNA 3", 32, 1536, 24, 16, simds=2, rdna=True)
#: The same architecture with the register file of RDNA 2.
_RDNA3_SMALL: Final = Family("RDNA 3", 32, 1024, 16, 16, simds=2, rdna=True)
_RDNA4: Final = Family("RDNA 4", 32, 1536, 24, 16, simds=2, fp8_hardware=True, rdna=True)

TARGETS: Final = {
    name: Target(name, family, llvm)
    for family, llvm, names in (
        (_GCN5, 5, "gfx900"),
        (_GCN5, 7, "gfx906"),
        (_CDNA1, 9, "gfx908"),
        (_CDNA2, 13, "gfx90a"),
        (_CDNA3, 17, "gfx942"),
        (_CDNA4, 20, "gfx950"),
        (_RDNA1, 9, "gfx1010 gfx1011 gfx1012"),
        (_RDNA2, 11, "gfx1030 gfx1031"),
        (_RDNA2, 12, "gfx1032 gfx1033"),
        (_RDNA2, 13, "gfx1034 gfx1035"),
        (_RDNA2, 15, "gfx1036"),
        (_RDNA3, 15, "gfx1100 gfx1101"),
        (_RDNA3_SMALL, 15, "gfx1102 gfx1103"),
        (_RDNA3_SMALL, 17, "gfx1150"),
        (_RDNA3, 17, "gfx1151"),
        (_RDNA4, 18, "gfx1200 gfx1201"),
    )
    for name in names.split()
}


def wavefront_of(name: str) -> int:
    """Return the lanes of a wavefront of a target, also of one that is not in the table."""
    if name in TARGETS:
        return TARGETS[name].family.wavefront
    # The last two characters are minor version and stepping: gfx9 has one digit before.
    return 64 if len(name) <= len("gfx90a") else 32


def occupancy(name: str, use: Use) -> int | None:
    """Return how many wavefronts of a kernel a SIMD can hold; None for an unknown target."""
    target = TARGETS.get(name)
    if target is None:
        return None
    family = target.family
    # A wavefront twice as wide takes two rows of the file for each register.
    rows = use.wavefront // family.wavefront or 1
    by_vgprs = family.vgprs // rows // _up(max(1, use.vgprs), family.vgpr_granule // rows)
    by_sgprs = family.waves
    if not family.rdna:
        by_sgprs = _GFX9_SGPRS // _up(max(1, use.sgprs), _GFX9_SGPR_GRANULE)
    return max(1, min(family.waves, by_vgprs, by_sgprs, _by_workgroup(family, use)))


def _by_workgroup(family: Family, use: Use) -> int:
    """Return the wavefronts of a SIMD that whole work-groups of the largest size make."""
    units = 2 if family.rdna and use.wgp else 1
    simds = family.simds * units
    waves = -(-use.workgroup // use.wavefront)
    groups = family.waves * simds // waves
    if waves > 1:
        groups = min(groups, _BARRIERS * units)
    if use.lds:
        groups = min(groups, family.lds * units // use.lds)
    return -(-groups * waves // simds)


def _up(value: int, granule: int) -> int:
    return -(-value // granule) * granule
