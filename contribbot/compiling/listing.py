"""Reading an AMDGPU listing (`.s`) and the code object metadata in it.

The metadata (version 5 of LLVM's "User Guide for AMDGPU Backend") is YAML of which
only the scalars of each kernel are wanted, and the same writer always writes it: it
is read row by row. Instructions are counted between a function's label and its end.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Final

from pydantic import Field

from contribbot.compiling.demangle import function_of, title_of
from contribbot.compiling.instructions import class_of, plain
from contribbot.hardware.targets import Use, occupancy
from contribbot.model.base import Model

#: A symbol; one with other characters than an identifier's stands in quotes.
_SYMBOL: Final = r'(?:"(?:[^"\\]|\\.)*"|[A-Za-z_.$][\w.$]*)'
_FUNCTION: Final = re.compile(rf"\s*\.type\s+({_SYMBOL}),@function")
_DEFINED: Final = re.compile(rf"({_SYMBOL}):")
_MNEMONIC: Final = re.compile(r"[a-z][a-z0-9_]*")
#: The second half of a pair that RDNA 3 and later issue at once.
_SECOND: Final = re.compile(r"::\s*([a-z][a-z0-9_]*)")
_REFERENCE: Final = re.compile(rf"({_SYMBOL})@(?:rel32|gotpcrel32|abs32)")
#: What stands around assembly that a source holds; the compiler copies it as it is.
ASSEMBLY: Final = ";;#ASMSTART"
_ASSEMBLY: Final = re.compile(rf"{ASSEMBLY}.*?;;#ASMEND", re.DOTALL)
_COMMENT: Final = re.compile(r"/\*.*?\*/", re.DOTALL)
_CODE_SIZE: Final = re.compile(r"; codeLenInByte = (\d+)")
_ITEM: Final = "  - "
_SCALAR: Final = re.compile(r"(?:  - |    )\.(\w+):\s+(\S.*)")
_KERNEL_DESCRIPTOR: Final = ".amdhsa_kernel "
_WGP: Final = ".amdhsa_workgroup_processor_mode 1"
_FULL_BLOCK: Final = 1024

Count = Annotated[int, Field(ge=0)]


class Kernel(Model):
    """One kernel of a listing.

    Attributes:
        symbol: Its name in the code object.
        title: Its name in the source, with template arguments, without parameters.
        vgprs: Vector registers of a lane; accumulation registers are among them where
            the target has one file for both.
        agprs: Accumulation registers.
        sgprs: Scalar registers of a wavefront.
        lds: Bytes of local data share of a work-group, known to the compiler.
        scratch: Bytes of private memory of a work-item.
        vgpr_spills: Vector registers that were spilled.
        sgpr_spills: Scalar registers that were spilled.
        wavefront: Lanes of a wavefront.
        kernarg: Bytes of arguments, the implicit ones included.
        occupancy: Wavefronts that a SIMD can hold; None for a target that is not known.
        code: Bytes of code; None where the listing does not say.
        instructions: How many there are in the code. A pair issued at once is one.
        mnemonics: How often each occurs, without encoding; both halves of a pair.
    """

    symbol: str
    title: str
    vgprs: Count
    agprs: Count
    sgprs: Count
    lds: Count
    scratch: Count
    vgpr_spills: Count
    sgpr_spills: Count
    wavefront: Count
    kernarg: Count
    occupancy: Count | None
    code: Count | None
    instructions: Count
    mnemonics: dict[str, Count]

    @property
    def function(self) -> str:
        """Its name without template arguments."""
        return function_of(self.title)

    @property
    def works(self) -> bool:
        """Whether it does anything but end."""
        return self.instructions > 1

    @property
    def spills(self) -> int:
        """Registers that were spilled."""
        return self.vgpr_spills + self.sgpr_spills


class Listing(Model):
    """What a listing says.

    Attributes:
        kernels: The kernels, in the order of the listing.
        functions: Instructions of each function that is no kernel and was not inlined.
        unresolved: Functions that are called and not there.
    """

    kernels: Annotated[tuple[Kernel, ...], Field(strict=False)]
    functions: dict[str, Count]
    unresolved: Annotated[tuple[str, ...], Field(strict=False)]

    @property
    def instructions(self) -> int:
        """All instructions, also those of functions that were not inlined."""
        return sum(kernel.instructions for kernel in self.kernels) + sum(self.functions.values())


@dataclass
class _Body:
    """What is counted of one function."""

    instructions: int = 0
    mnemonics: Counter[str] = field(default_factory=Counter)
    code: int | None = None
    wgp: bool = False


def read_listing(text: str, target: str) -> Listing:
    """Read a listing."""
    body, _, rest = text.partition("\t.amdgpu_metadata")
    code = _Code(body)
    metadata = list(_read_metadata(rest))
    if len(metadata) != len(code.kernels) or not code.functions.keys() >= set(code.kernels):
        raise ValueError(f"{len(metadata)} kernels, and code of {len(code.kernels)}")
    # Both are written in the order of the functions; names are quoted in different ways.
    kernels = [
        _kernel(symbol, facts, code.functions.pop(symbol), target)
        for symbol, facts in zip(code.kernels, metadata, strict=True)
    ]
    return Listing(
        kernels=tuple(kernels),
        functions={title_of(name): one.instructions for name, one in code.functions.items()},
        unresolved=tuple(sorted(title_of(name) for name in code.referenced - code.defined)),
    )


class _Code:
    """The code of a listing, read row by row."""

    def __init__(self, text: str) -> None:
        self.functions: dict[str, _Body] = {}
        self.kernels: list[str] = []
        self.defined: set[str] = set()
        self.referenced: set[str] = set()
        #: Where instructions go, and what a remark after a function is about.
        self._inside = self._latest = _Body()
        bare = _ASSEMBLY.sub(lambda one: _COMMENT.sub("", one[0]), text)
        for row in bare.split("\n"):
            stripped = row.lstrip()
            if stripped.startswith("."):
                self._directive(row, stripped)
            elif stripped.startswith(";"):
                if found := _CODE_SIZE.match(stripped):
                    self._latest.code = int(found[1])
            elif row[:1] not in {"", "\t", " ", "#", "@"} and (found := _DEFINED.match(row)):
                symbol = _bare(found[1])
                self.defined.add(symbol)
                if symbol in self.functions:
                    self._inside = self._latest = self.functions[symbol]
            else:
                _count(stripped, self._inside, self.referenced)

    def _directive(self, row: str, stripped: str) -> None:
        if found := _FUNCTION.match(row):
            self.functions[_bare(found[1])] = _Body()
        elif stripped.startswith(_KERNEL_DESCRIPTOR):
            symbol = _bare(stripped.removeprefix(_KERNEL_DESCRIPTOR))
            self.kernels.append(symbol)
            self._latest = self.functions.get(symbol, self._latest)
        elif stripped.startswith(_WGP):
            self._latest.wgp = True
        elif stripped.startswith(".Lfunc_end") and stripped.endswith(":"):
            self._latest, self._inside = self._inside, _Body()


def _bare(symbol: str) -> str:
    """Return a symbol without the quotes that it may stand in."""
    return symbol[1:-1].replace('\\"', '"') if symbol.startswith('"') else symbol


def _count(row: str, body: _Body, referenced: set[str]) -> None:
    """Count the instruction of a row, if it is one."""
    found = _MNEMONIC.match(row)
    if not found:
        return
    body.instructions += 1
    body.mnemonics[plain(found[0])] += 1
    code = row.partition(";")[0]
    if "::" in code and (second := _SECOND.search(code)):
        body.mnemonics[plain(second[1])] += 1
    if "@" in code:
        referenced.update(map(_bare, _REFERENCE.findall(code)))


def _read_metadata(text: str) -> Iterator[dict[str, str]]:
    """Yield the scalars of each kernel."""
    facts: dict[str, str] = {}
    for row in text.split("\n"):
        if row.startswith(_ITEM):
            if "name" in facts:
                yield facts
            facts = {}
        if found := _SCALAR.fullmatch(row.rstrip()):
            facts[found[1]] = found[2].strip("'\"")
    if "name" in facts:
        yield facts


def _kernel(symbol: str, facts: dict[str, str], body: _Body, target: str) -> Kernel:
    def number(name: str, default: int = 0) -> int:
        return int(facts.get(name, default))

    use = Use(
        vgprs=number("vgpr_count"),
        sgprs=number("sgpr_count"),
        lds=number("group_segment_fixed_size"),
        wavefront=number("wavefront_size", 64),
        workgroup=number("max_flat_workgroup_size", _FULL_BLOCK),
        wgp=body.wgp,
    )
    return Kernel(
        symbol=symbol,
        title=title_of(symbol),
        vgprs=use.vgprs,
        agprs=number("agpr_count"),
        sgprs=use.sgprs,
        lds=use.lds,
        scratch=number("private_segment_fixed_size"),
        vgpr_spills=number("vgpr_spill_count"),
        sgpr_spills=number("sgpr_spill_count"),
        wavefront=use.wavefront,
        kernarg=number("kernarg_segment_size"),
        occupancy=occupancy(target, use),
        code=body.code,
        instructions=body.instructions,
        mnemonics=dict(sorted(body.mnemonics.items())),
    )


def by_class(kernels: tuple[Kernel, ...]) -> dict[str, int]:
    """Return how many instructions of each class some kernels hold; halves of pairs count."""
    total: Counter[str] = Counter()
    for kernel in kernels:
        for mnemonic, count in kernel.mnemonics.items():
            total[class_of(mnemonic)] += count
    return dict(sorted(total.items()))
