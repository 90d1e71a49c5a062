"""Read the kernels of a listing: their registers, memory and instructions."""

from __future__ import annotations

import ctypes
import functools
import importlib
import io
import re
from collections import Counter
from collections.abc import Iterable
from typing import Annotated, Final, NamedTuple

from pydantic import Field

from contribbot.model.base import Model
from contribbot.model.record import Count, Numbers


@functools.cache
def demangle(symbol: str) -> str:
    """Return the C++ name of a mangled symbol; any other symbol is returned unchanged."""
    try:
        # GCC's runtime library, which clang and torch need anyway.
        runtime = ctypes.CDLL("libstdc++.so.6")
    except OSError:
        return symbol
    # See the Itanium C++ ABI, 3.4.
    call, free = runtime["__cxa_demangle"], runtime["free"]
    call.argtypes, call.restype = [ctypes.c_char_p, *[ctypes.c_void_p] * 3], ctypes.c_void_p
    free.argtypes = [ctypes.c_void_p]
    address = call(symbol.encode(), None, None, None) if symbol.startswith("_Z") else None
    if address is None:
        return symbol
    try:
        return ctypes.string_at(address).decode("utf-8", "replace")
    finally:
        free(address)


def title_of(symbol: str) -> str:
    """Return a symbol's function name with template arguments, without parameters."""
    name = demangle(symbol)
    if name == symbol:
        return symbol
    # The name of a template begins with the return type, which is void for a kernel.
    return _without_last(name, "()").removeprefix("void ")


def function_of(title: str) -> str:
    """Return a function's title without template arguments."""
    return _without_last(title, "<>")


def _without_last(name: str, brackets: str) -> str:
    """Return a name without the brackets at the end and their content."""
    depth = 0
    for place in range(len(name) - 1, -1, -1):
        depth += {brackets[1]: 1, brackets[0]: -1}.get(name[place], 0)
        if depth == 0:
            return name[:place] if name.endswith(brackets[1]) else name
    return name


#: Suffixes of mnemonics that name the encoding.
_ENCODING: Final = re.compile(r"_(?:e32|e64|dpp|dpp8|sdwa|e64_dpp|e64_dpp8)$")
#: Classes of instructions by the first letters of the mnemonic; the first match decides. See the
#: chapters of AMD's instruction set documents: scalar, vector, matrix, memory, branches.
_CLASSES: Final = {
    "matrix": r"v_(?:mfma|smfmac|wmma|swmmac)_",
    "valu": r"v_",
    "branch": r"s_(?:branch|cbranch|setpc|swappc|call|endpgm|subvector_loop|trap)",
    "wait": r"s_(?:waitcnt|wait_)",
    "sync": r"s_(?:barrier|sendmsg|sleep)",
    # Hints for scheduling and fetching, which compute nothing.
    "hint": r"s_(?:nop|clause|delay_alu|inst_prefetch|set_inst_prefetch|setprio|code_end)",
    "smem": r"s_(?:load|store|buffer_|scratch_|atomic|dcache|mem\w*time|gl1_inv|prefetch|atc_)",
    "salu": r"s_",
    "lds": r"ds_|lds_",
    "vmem": r"(?:buffer|tbuffer|image|global|flat|scratch|tensor|cluster)_",
}
_CLASS: Final = re.compile("|".join(f"(?P<{name}>{pattern})" for name, pattern in _CLASSES.items()))


@functools.cache
def plain(mnemonic: str) -> str:
    """Return a mnemonic without the encoding's suffix: `v_add_f32` for `v_add_f32_e32`."""
    return _ENCODING.sub("", mnemonic)


@functools.cache
def class_of(mnemonic: str) -> str:
    """Return the class of an instruction, such as `valu` or `vmem`."""
    fits = _CLASS.match(mnemonic)
    return (fits and fits.lastgroup) or "other"


class KernelListing(Model):
    """A kernel of a code object: names, numbers and instructions."""

    symbol: str
    title: str  # the name in the source, with template arguments, without parameters
    numbers: Numbers
    mnemonics: dict[str, Count]  # by mnemonic without encoding; both halves of a pair count

    @property
    def works(self) -> bool:
        """Whether the kernel has an instruction other than its end."""
        return self.numbers.instructions > 1


class Listing(Model):
    """The kernels and functions of a code object, in the order of the listing."""

    kernels: Annotated[tuple[KernelListing, ...], Field(strict=False)]
    #: The number of instructions of each function that is not a kernel and was not inlined.
    functions: dict[str, Count]
    #: The called functions that the code object lacks.
    unresolved: Annotated[tuple[str, ...], Field(strict=False)]


_DESCRIPTOR: Final = re.compile(r"\.amdhsa_kernel ([^\n]+).*?\.end_amdhsa_kernel", re.DOTALL)
_METADATA: Final = re.compile(r"\.amdgpu_metadata(.*?)\.end_amdgpu_metadata", re.DOTALL)
#: The compiler's comment after a descriptor; without a number if the kernel calls a function.
_OCCUPANCY: Final = re.compile(r"^; Occupancy: (\S+)", re.MULTILINE)
#: The text that the assembler prints before the bytes of an instruction.
_LISTING_ENCODING: Final = "encoding: ["
#: Lines of the assembler's output: labels, and instructions with bytes.
_ROW: Final = re.compile(
    r"^(?:(?P<label>[^\s;:]+):|\t(?P<text>[a-z][^;\n]*)[^\n]*; "
    rf"{re.escape(_LISTING_ENCODING)}(?P<bytes>[^\]\n]+))",
    re.MULTILINE,
)
_ITEM: Final = "\n  - "
_NUMBER: Final = re.compile(r"^(?:    )?\.(\w+):\s+(\d+)$", re.MULTILINE)
#: The instruction `s_nop 0`, which the assembler inserts for alignment.
_FILLER: Final = b"\0\0\x80\xbf"


def without_facts(text: str) -> str:
    """Return a listing without descriptors, metadata, and texts that look like encodings."""
    # Releases of the assembler differ in the metadata that they accept.
    return _METADATA.sub("", _DESCRIPTOR.sub("", text)).replace(_LISTING_ENCODING, "-")


def read_listing(text: str, encodings: str, content: bytes) -> Listing:
    """Return the kernels of a listing, by the assembler's encodings and the object file's bytes."""
    functions, undefined = read_object(content)
    # `symbols`: each kernel's symbol; `comments`: the text after the kernel's descriptor.
    _, *parts = _DESCRIPTOR.split(text)
    symbols, comments = parts[::2], parts[1::2]
    # Only the first metadata is the compiler's; inline assembly may add more.
    (written, *added) = _METADATA.findall(text) or ("",)
    metadata = [facts for item in written.split(_ITEM) if (facts := dict(_NUMBER.findall(item)))]
    if added or len(metadata) != len(symbols) or set(symbols) - functions.keys():
        raise ValueError(f"{len(metadata)} kernels, and code of {len(symbols)}")
    rows, labels = _read_encodings(encodings)
    decoded = {
        name: _decoded(name, code, rows[labels.get(name, 0) :]) for name, code in functions.items()
    }
    return Listing(
        kernels=tuple(
            _kernel(symbol, facts, comment, functions[symbol], decoded[symbol])
            for symbol, facts, comment in zip(symbols, metadata, comments, strict=True)
        ),
        functions={
            title_of(name): len(within) for name, within in decoded.items() if name not in symbols
        },
        unresolved=tuple(sorted(map(title_of, undefined))),
    )


def read_object(content: bytes) -> tuple[dict[str, bytes], set[str]]:
    """Return the bytes of each function of an object file, and the undefined symbols."""
    elf = importlib.import_module("elftools.elf.elffile").ELFFile(io.BytesIO(content))
    data = functools.cache(lambda section: elf.get_section(section).data())
    functions, undefined = dict[str, bytes](), set[str]()
    for symbol in elf.get_section_by_name(".symtab").iter_symbols():
        name, section = symbol.name, symbol["st_shndx"]
        if symbol["st_info"]["type"] == "STT_FUNC" and isinstance(section, int):
            start = symbol["st_value"]
            functions[name] = data(section)[start : start + symbol["st_size"]]
        elif name and section == "SHN_UNDEF":
            undefined.add(name)
    return functions, undefined


class Encoding(NamedTuple):
    """An instruction as the assembler encodes it: mnemonics, size and bytes."""

    mnemonics: tuple[str, ...]  # two for a pair, which RDNA 3 and later issue at once
    size: int
    #: Offsets and bytes that linking does not change (unlike branch distances and addresses).
    fixed: tuple[tuple[int, bytes], ...]

    def matches(self, code: bytes, place: int) -> bool:
        """Return whether the code at an offset is this instruction."""
        return all(code.startswith(part, place + start) for start, part in self.fixed)


def _read_encodings(text: str) -> tuple[list[Encoding], dict[str, int]]:
    """Return all instructions, and for each label the index of the next instruction."""
    instructions: list[Encoding] = []
    labels: dict[str, int] = {}
    for row in _ROW.finditer(text):
        if row["label"]:
            labels[row["label"]] = len(instructions)
            continue
        mnemonics = tuple(plain(half.split()[0]) for half in row["text"].split("::"))
        parts = row["bytes"].split(",")
        sure = [(0, "".join(parts))]
        if "A" in row["bytes"]:  # marks a byte that is known only after linking
            sure = [(at, part) for at, part in enumerate(parts) if len(part) == len("0x00")]
        fixed = tuple((at, bytes.fromhex(part.replace("0x", ""))) for at, part in sure)
        instructions.append(Encoding(mnemonics, len(parts), fixed))
    return instructions, labels


def _decoded(function: str, code: bytes, rows: Iterable[Encoding]) -> list[Encoding]:
    """Return the listing's instructions that encode a function's bytes, without padding."""
    # A row is left out if its bytes are not the function's next bytes: the row belongs to another
    # section, or makes no code.
    instructions: list[Encoding] = []
    place = 0
    for row in rows:
        while not row.matches(code, place) and code.startswith(_FILLER, place):
            place += len(_FILLER)
        if place == len(code):
            break
        if row.matches(code, place):
            instructions.append(row)
            place += row.size
    if code[place:].replace(_FILLER, b""):
        raise ValueError(f"no row of the listing makes what {title_of(function)} has at {place:#x}")
    return instructions


def _kernel(
    symbol: str, facts: dict[str, str], comment: str, code: bytes, rows: list[Encoding]
) -> KernelListing:
    stated = Counter({name: int(digits) for name, digits in facts.items()})
    waves = _OCCUPANCY.search(comment)
    numbers = Numbers(
        vgprs=stated["vgpr_count"],
        agprs=stated["agpr_count"],
        sgprs=stated["sgpr_count"],
        lds=stated["group_segment_fixed_size"],
        scratch=stated["private_segment_fixed_size"],
        spills=stated["vgpr_spill_count"] + stated["sgpr_spill_count"],
        wavefront=stated["wavefront_size"],
        occupancy=int(waves[1]) if waves and waves[1].isdecimal() else None,
        code=len(code),
        instructions=len(rows),
    )
    mnemonics = Counter(name for row in rows for name in row.mnemonics)
    return KernelListing(
        symbol=symbol,
        title=title_of(symbol),
        numbers=numbers,
        mnemonics=dict(sorted(mnemonics.items())),
    )


def by_class(kernels: Iterable[KernelListing]) -> dict[str, int]:
    """Return the number of instructions of each class; both halves of a pair count."""
    total: Counter[str] = Counter()
    for kernel in kernels:
        for mnemonic, count in kernel.mnemonics.items():
            total[class_of(mnemonic)] += count
    return dict(sorted(total.items()))
