"""Missing waits, planted: a register or a byte of LDS is used before its operation ends."""

from __future__ import annotations

import functools
import re
from ctypes import c_uint64
from typing import NamedTuple

import numpy as np
import pytest

from contribbot.emulate.decode import TABLES
from contribbot.emulate.errors import KernelError
from contribbot.emulate.memory import Buffer, Memory
from contribbot.emulate.program import Program
from contribbot.emulate.workgroup import Executor, Launch, LaunchWatch
from tests.test_emulate_corners import initial_registers, program
from tests.tools import kinds

TARGETS = ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1151", "gfx1201")
#: The words of the cases below, as older and newer assemblers have them: waits for loads, for LDS,
#: for scalar loads and for stores, with the number that may be outstanding.
NEWER = {"_dword": "_b32", "_dwordx4": "_b128", "ds_read": "ds_load", "ds_write": "ds_store"}
OLD = ("s_waitcnt vmcnt({})", "s_waitcnt lgkmcnt({})", "s_waitcnt lgkmcnt({})")
WAITS = {
    "cdna": (*OLD, ""),
    "rdna3": (*OLD, "s_waitcnt_vscnt null, {}"),
    "rdna4": ("s_wait_loadcnt {}", "s_wait_dscnt {}", "s_wait_kmcnt {}", "s_wait_storecnt {}"),
}


class Case(NamedTuple):
    """Code with a fault: what stands in [brackets] is missing in the one that is planted.

    `|` separates what stands there instead. v[0:1] and s[0:1] are the address of a tensor that
    counts from 0; v2 is 4 times the lane, v3 is 1; s5 is the number of the wave, and s4 and v9 are
    where its own part of LDS begins, and v2 in it.
    """

    name: str
    text: str
    said: str  # of the fault, with the register or byte
    only: str = "gfx"  # targets


LOAD, LDS, DMA = "global_load_dword v4, v[0:1], off", "ds_read_b32 v4, v2", "gfx9(42|50)"
HIGH = "global_load_d16_hi_b16 v4, v[0:1], off"
STORE = "global_store_dword v[0:1], v3, off"
#: Wave 0 does what is between them, and wave 1 then reads.
FIRST = "s_cmp_eq_u32 s5, 0\ns_cbranch_scc0 NEXT\n"
THEN = f"\nNEXT:\nbarrier\ns_cbranch_scc1 OUT\n{LOAD}\nvm 0"
OWN = "ds_write_b32 v9, v3\nds_read_b32 v4, v9"
CASES = [
    Case("a load's wait is removed", f"{LOAD}\n[vm 0]\nv_mov_b32 v5, v4", "v4.*global_load"),
    Case("it lets one too many be outstanding",
         f"{LOAD}\nglobal_load_dword v5, v[0:1], off\n[vm 0|vm 1]\nv_mov_b32 v6, v5", "v5"),
    Case("it waits for LDS instead", f"{LOAD}\n[vm 0|lds 0]\nv_mov_b32 v5, v4", "v4"),
    Case("it stands after the use", f"{LOAD}\n[vm 0]\nv_mov_b32 v5, v4\nvm 0", "v4"),
    Case("the last word of four",
         "global_load_dwordx4 v[4:7], v[0:1], off\n[vm 0]\nv_mov_b32 v8, v7", "v7"),
    Case("a register is overwritten", f"{LOAD}\n[vm 0]\nv_mov_b32 v4, 0", "v4"),
    Case("an address is loaded",
         "global_load_dword v0, v[0:1], off offset:8\n[vm 0\nv_mov_b32 v0, s0\n]"
         "global_load_dword v0, v[0:1], off", "v0.*global_load"),
    Case("a store's data", f"{LOAD}\n[vm 0]\nglobal_store_dword v[0:1], v4, off", "v4"),
    Case("an atomic operation's result",
         "atomic v4\n[vm 0]\nv_mov_b32 v5, v4", "v4.*atomic"),
    Case("a scalar load", "s_load_dword s6, s[0:1], 0x4\n[k 0]\ns_mov_b32 s7, s6", "s6.*s_load"),
    Case("one of two scalar loads, which end in any order",
         "s_load_dword s6, s[0:1], 0x0\ns_load_dword s7, s[0:1], 0x4\n[k 0|k 1]\ns_mov_b32 s8, s6",
         "s6"),
    Case("a branch's condition",
         "s_load_dword vcc_lo, s[0:1], 0x4\n[k 0]\ns_cbranch_vccz OUT\ns_nop 0", "vcc"),
    Case("a read of LDS", f"{OWN}\n[lds 0]\nv_mov_b32 v5, v4", "v4.*ds_"),
    Case("a read of LDS waits for loads",
         f"{OWN}\n[lds 0|vm 0]\nv_mov_b32 v5, v4", "v4"),
    Case("the second read of LDS",
         f"{OWN}\nds_read_b32 v5, v9\n[lds 0|lds 1]\nv_mov_b32 v6, v5", "v5"),
    Case("another lane's value",
         "ds_bpermute_b32 v4, v2, v3\n[lds 0]\nv_mov_b32 v5, v4", "v4.*ds_bpermute"),
    Case("a flat load has one of two waits",
         "flat_load_dword v4, v[0:1]\nvm 0\n[lds 0]\nv_mov_b32 v5, v4", "v4.*flat_load"),
    Case("a load before a flat one",
         f"{LOAD}\nflat_load_dword v6, v[0:1]\n[vm 1|vm 2]\nv_mov_b32 v5, v4", "v4.*global",
         "gfx1"),
    Case("one that counts on the order of a flat one",
         f"{LOAD}\nflat_load_dword v6, v[0:1]\n[vm 0|vm 1]\nv_mov_b32 v5, v4", "v4.*global",
         "gfx9"),
    Case("a read of LDS that counts on it",
         f"{OWN}\nflat_load_dword v6, v[0:1]\n[lds 0|lds 1]\nv_mov_b32 v5, v4", "v4.*ds_", "gfx9"),
    Case("one of two ways has the wait",
         f"{LOAD}\ns_cmp_eq_u32 s5, 0\ns_cbranch_scc1 NEXT\nvm 0\ns_branch JOIN\n"
         "NEXT:\n[vm 0]\nJOIN:\nv_mov_b32 v5, v4", "v4"),
    Case("the second turn of a loop",
         f"v_mov_b32 v4, 0\ns_mov_b32 s6, 0\nNEXT:\nv_add_u32 v5, v4, v4\n{LOAD}\n[vm 0]\n"
         "s_add_u32 s6, s6, 1\ns_cmp_lt_u32 s6, 2\ns_cbranch_scc1 NEXT\nvm 0", "v4"),
    Case("a high half", f"{HIGH}\n[vm 0]\nglobal_store_d16_hi_b16 v[0:1], v4, off", "v4.h", "gfx1"),
    Case("the whole of a high half", f"{HIGH}\n[vm 0]\nv_mov_b32 v5, v4", "v4.h", "gfx1"),
    Case("the other half needs no wait",
         f"global_load_dword v6, v[0:1], off\n{HIGH}\nglobal_store_b16 v[0:1], v4, off\n"
         "[vm 0]\nv_mov_b32 v5, v6", "v6", "gfx1"),
    Case("a load into LDS that this wave reads",
         "s_mov_b32 m0, s4\nto_lds\n[vm 0]\nds_read_b32 v4, v9\nlds 0",
         "byte .* of LDS.*this wave", DMA),
    Case("the second load into LDS",
         "s_mov_b32 m0, s4\nto_lds\ns_add_u32 m0, s4, 512\nto_lds\n"
         "vm 1\nds_read_b32 v5, v9\n[vm 0]\nds_read_b32 v4, v9 offset:512\nlds 0",
         "byte .* of LDS.*this wave", DMA),
    Case("a load into LDS that another wave reads behind a barrier",
         f"s_cmp_eq_u32 s5, 0\ns_cbranch_scc0 NEXT\ns_mov_b32 m0, 0\nto_lds\n[vm 0]\nNEXT:\n"
         f"barrier\ns_cbranch_scc1 OUT\n{LDS}\nlds 0", "byte 0 of LDS.*wave 0", DMA),
    Case("a store that another wave reads behind a barrier",
         f"{FIRST}{STORE}\n[st 0]{THEN}", "byte 0 of x.*wave 0.*(vs|store)cnt", "gfx1"),
    Case("it waits for loads instead",
         f"{FIRST}{STORE}\n[st 0|vm 0]{THEN}", "byte 0 of x.*wave 0", "gfx1"),
    Case("it lets the second store be outstanding",
         f"{FIRST}{STORE} offset:4\n{STORE}\n[st 0|st 1]{THEN}", "byte 0 of x", "gfx1"),
    Case("its wait stands behind the barrier",
         f"{FIRST}{STORE}\n[st 0]\nNEXT:\nbarrier\nst 0\ns_cbranch_scc1 OUT\n{LOAD}\nvm 0",
         "byte 0 of x", "gfx1"),
    Case("a flat store", f"{FIRST}flat_store_dword v[0:1], v3\nlds 0\n[st 0]{THEN}",
         "byte 0 of x", "gfx1"),
]  # fmt: skip


def lowered(case: Case, target: str, place: int, *, whole: bool) -> str:
    """Return a case as a target's assembler has it, with its wait or with the planted fault."""
    family = TABLES[target]
    waits = dict(zip(("vm", "lds", "k", "st"), WAITS[family], strict=True))
    text = re.sub(
        r"\[([^]|0-9:]+ \d[^]|]*)(\|[^]]*)?\]",
        lambda found: found[1] if whole else (found[2] or "|")[1:],
        case.text,
    )
    text = re.sub(r"(?m)^(vm|lds|k|st) (\d)$", lambda found: waits[found[1]].format(found[2]), text)
    returning = {"cdna": "glc" if target == "gfx90a" else "sc0", "rdna3": "glc",
                 "rdna4": "th:TH_ATOMIC_RETURN"}[family]  # fmt: skip
    atomic = "global_atomic_add" + ("" if family == "cdna" else "_u32")
    text = text.replace("atomic v4", f"{atomic} v4, v[0:1], v3, off {returning}")
    text = text.replace("to_lds", "global_load_lds_dword v[0:1], off")
    split = "s_barrier_signal -1\ns_barrier_wait -1"
    text = text.replace("barrier\n", f"{split if family == 'rdna4' else 's_barrier'}\n")
    if family != "cdna":
        for old, new in sorted(NEWER.items(), key=lambda item: -len(item[0])):
            text = re.sub(rf"{old}(?![a-z0-9])" if old[0] == "_" else old, new, text)
        text = text.replace("v_add_u32", "v_add_nc_u32")
    for label in ("NEXT", "JOIN", "OUT"):
        text = re.sub(rf"\b{label}\b", f"{label}{place}_{int(whole)}", text)
    return f"{text}\nOUT{place}_{int(whole)}:\ns_endpgm\n"


def applicable(target: str) -> list[Case]:
    return [case for case in CASES if re.match(case.only, target)]


@functools.cache
def planted(target: str) -> Program:
    """Return all cases of a target, which are then translated at once: s100 chooses one."""
    bodies = [(2 * i + whole, lowered(case, target, i, whole=bool(whole)))
              for i, case in enumerate(applicable(target)) for whole in (0, 1)]  # fmt: skip
    jumps = [f"s_cmp_eq_u32 s100, {i}\ns_cbranch_scc1 case{i}" for i, _ in bodies]
    return program(target, "\n".join([*jumps, "s_endpgm", *(f"case{i}:\n{t}" for i, t in bodies)]))


def outcome(target: str, number: int) -> Exception | None:
    made, memory, values = planted(target), Memory(), np.arange(64, dtype=np.uint32)
    tensor = Buffer.of("x", values.view(np.uint8))
    address = memory.add(tensor)
    memory.watch(tensor, np.zeros(2 * tensor.size, np.uint32))
    banks, initial = initial_registers(made, 2)
    for wave in range(2):
        banks["s"][wave, [0, 1, 4, 5, 100]] = (0, address >> 32, 1024 + 256 * wave, wave, number)
        banks["v"][wave, 1] = address >> 32
        banks["v"][wave, 2] = 4 * np.arange(made.mode.lanes)
        banks["v"][wave, 3] = 1
        banks["v"][wave, 9] = 1024 + 256 * wave + banks["v"][wave, 2]
    launch = Launch(made, memory, (1, 1, 1), initial, [None] * 3, 2048, watch=LaunchWatch())
    machine = Executor(launch, 1, c_uint64(0))
    machine.run()
    return machine.error() if machine.cause else None


EACH = [(target, case.name) for target in TARGETS for case in applicable(target)]


@pytest.mark.parametrize(
    ("target", "name"), kinds(EACH, lambda row: row[0] in {"gfx950", "gfx1201"})
)
def test_a_planted_wait_is_found_and_the_right_one_is_none(target: str, name: str) -> None:
    names = [case.name for case in applicable(target)]
    place = names.index(name)
    found = outcome(target, 2 * place)
    assert isinstance(found, KernelError), name
    assert found.fault == "missing wait"
    assert re.search(applicable(target)[place].said, str(found)), found
    assert outcome(target, 2 * place + 1) is None
