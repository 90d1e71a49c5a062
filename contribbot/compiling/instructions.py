"""What AMDGPU mnemonics mean, as far as they are counted."""

from __future__ import annotations

import functools
import re
from typing import Final

#: Encodings, which the assembler writes behind a mnemonic.
_ENCODING: Final = re.compile(r"_(?:e32|e64|dpp|dpp8|sdwa|e64_dpp|e64_dpp8)$")

#: Classes by what a mnemonic starts with; the first that fits counts. From the
#: instruction set documents' chapters: scalar, vector, matrix, memory, branches.
_CLASSES: Final = (
    ("matrix", r"v_(?:mfma|smfmac|wmma|swmmac)_"),
    ("valu", r"v_"),
    ("branch", r"s_(?:branch|cbranch|setpc|swappc|call|endpgm|subvector_loop|trap)"),
    ("wait", r"s_(?:waitcnt|wait_)"),
    ("sync", r"s_(?:barrier|sendmsg|sleep)"),
    # Hints for the scheduler and the fetcher: they take a slot and do no work.
    ("hint", r"s_(?:nop|clause|delay_alu|inst_prefetch|set_inst_prefetch|setprio|code_end)"),
    (
        "smem",
        r"s_(?:load|store|buffer_|scratch_|atomic|dcache|mem(?:real)?time|gl1_inv|prefetch|atc_)",
    ),
    ("salu", r"s_"),
    ("lds", r"ds_|lds_"),
    ("vmem", r"(?:buffer|tbuffer|image|global|flat|scratch|tensor|cluster)_"),
)
CLASSES: Final = (*(name for name, _ in _CLASSES), "other")
_COMPILED: Final = tuple((name, re.compile(pattern)) for name, pattern in _CLASSES)


@functools.cache
def plain(mnemonic: str) -> str:
    """Return a mnemonic without its encoding: `v_add_f32` for `v_add_f32_e32`."""
    return _ENCODING.sub("", mnemonic)


@functools.cache
def class_of(mnemonic: str) -> str:
    """Return the class of a mnemonic, one of `CLASSES`."""
    for name, pattern in _COMPILED:
        if pattern.match(mnemonic):
            return name
    return "other"
