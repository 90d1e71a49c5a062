"""An instruction's pseudo-code, AMD's or a replacement, and the translation to C++."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from contribbot.emulate.decode import Instruction

#: AMD's documents bound these functions by 1 ULP; subnormals count as zero for float32 ("1ULP
#: accuracy, denormals are flushed", AMD's documents of CDNA 3, RDNA 3 and 4).
_APPROXIMATE: Final = {
    "RCP": "1.0 / {}",
    "RCP_IFLAG": "1.0 / {}",
    "RSQ": "1.0 / sqrt({})",
    "EXP": "exp2({})",
    "LOG": "log2({})",
    "SQRT": "sqrt({})",
}
#: As measured on gfx1100 and gfx1201 by AMD's rocjitsu (ROCm/rocm-systems, division.h); the text
#: of the documents would scale a denominator to infinity.
_DIV_SCALE: Final = """
by = 0;
n = exponent(S2.{f});
d = exponent(S1.{f});
VCC.u64[laneId] = abs(n - d) >= {far};
if n - d >= {far} then
by = S0.{f} == S1.{f} ? {by} : 0
elsif d == 0 then
by = {by}
elsif d >= {huge} then
by = n - d <= -{far} && S0.{f} != S1.{f} ? 0 : -{by}
elsif n - d <= -{far} then
by = S0.{f} == S1.{f} ? 0 : {by}
elsif n <= {tiny} then
by = {by}
endif
D0.{f} = S1.{f} == 0.0{F} || S2.{f} == 0.0{F} ? -NAN.{f} : ldexp(S0.{f}, by)
"""
_OVERRIDES: Final = {
    "V_DIV_SCALE_F32": _DIV_SCALE.format(f="f32", F="F", far=96, by=64, huge=253, tiny=24),
    "V_DIV_SCALE_F64": _DIV_SCALE.format(f="f64", F="", far=768, by=128, huge=2045, tiny=53),
    # Product and sum are rounded separately, and subnormals are never kept (LLVM's
    # SIISelLowering.cpp on FMAD_FTZ).
    "V_MAD_F32": "p = flush(flush(S0.f32) * flush(S1.f32)); D0.f32 = flush(p + flush(S2.f32))",
    # The documents' 2 ** 32 would not undo V_DIV_SCALE, and a subnormal quotient that is rounded
    # twice would not be the nearest.
    "V_DIV_FMAS_F32": "D0.f32 = VCC.u64[laneId] ? scaled_fma(S0.f32, S1.f32, S2.f32,"
    " exponent(S2.f32) > 127 ? 64 : -64) : fma(S0.f32, S1.f32, S2.f32)",
    "V_DIV_FMAS_F64": "D0.f64 = VCC.u64[laneId] ? scaled_fma(S0.f64, S1.f64, S2.f64,"
    " exponent(S2.f64) > 1023 ? 128 : -128) : fma(S0.f64, S1.f64, S2.f64)",
    "V_MBCNT_LO_U32_B32": "D0.u32 = S1.u32 + bitCount(S0.u32 & LANES_BELOW.u32)",
    "V_MBCNT_HI_U32_B32": "D0.u32 = S1.u32 + bitCount(S0.u32 & LANES_BELOW[63 : 32].u32)",
    "V_BCNT_U32_B32": "D0.u32 = S1.u32 + bitCount(S0.u32)",
    **dict.fromkeys(("V_BFREV_B32", "S_BREV_B32"), "D0.u32 = reverse(S0.u32)"),
    "V_LDEXP_F32": "D0.f32 = ldexp(S0.f32, S1.i32)",
    "V_LDEXP_F16": "D0.f16 = ldexp(S0.f16, S1.i16)",
    "V_LDEXP_F64": "D0.f64 = ldexp(S0.f64, S1.i32)",
    "V_FREXP_EXP_I32_F32": "D0.i32 = frexp_exponent(S0.f32)",
    "V_FREXP_EXP_I32_F64": "D0.i32 = frexp_exponent(S0.f64)",
    "V_PERM_B32": "both = { S0.u32, S1.u32 }; D0.u32 = (select_byte(both, S2.u32)"
    " | (select_byte(both, S2.u32 >> 8U) << 8U) | (select_byte(both, S2.u32 >> 16U) << 16U)"
    " | (select_byte(both, S2.u32 >> 24U) << 24U))",
    **dict.fromkeys(
        ("V_MAD_U64_U32", "V_MAD_CO_U64_U32"),
        "D0.u64 = 64'U(S0.u32) * 64'U(S1.u32) + S2.u64; VCC.u64[laneId] = D0.u64 < S2.u64",
    ),
    # The carry is that of signed numbers: whether the sum's sign is wrong.
    **dict.fromkeys(
        ("V_MAD_I64_I32", "V_MAD_CO_I64_I32"),
        "p = 64'I(S0.i32) * 64'I(S1.i32); D0.i64 = p + S2.i64; VCC.u64[laneId] ="
        " (p < 0LL) ^ (S2.i64 < 0LL) ^ (64'U(D0.u64) < 64'U(p.u64))",
    ),
    "V_PK_MOV_B32": "t = OPSEL[0] ? S0.u64 >> 32U : S0.u64; u = OPSEL[1] ? S1.u64 >> 32U : S1.u64;"
    " D0.u64 = { u.u32, t.u32 }",
    **dict.fromkeys(
        ("S_FF1_I32_B32", "S_CTZ_I32_B32", "V_FFBL_B32", "V_CTZ_I32_B32"),
        "D0.i32 = trailing_zeros(S0.u32)",
    ),
    **dict.fromkeys(("S_FF1_I32_B64", "S_CTZ_I32_B64"), "D0.i32 = trailing_zeros(S0.u64)"),
    **dict.fromkeys(
        ("S_FLBIT_I32_B32", "S_CLZ_I32_U32", "V_FFBH_U32", "V_CLZ_I32_U32"),
        "D0.i32 = leading_zeros(S0.u32)",
    ),
    "S_BCNT1_I32_B32": "D0.u32 = bitCount(S0.u32); SCC = D0.u32 != 0U",
    "S_BCNT1_I32_B64": "D0.u32 = bitCount(S0.u64); SCC = D0.u32 != 0U",
}
#: If a division overflows, its chain subtracts infinity from infinity: the quotient is NaN.
_OVERFLOWN: Final = (
    "D0.f32 = sign_out ? -abs(S0.f32) : abs(S0.f32)",
    "size = isNAN(S0.f32) ? INF.f32 : abs(S0.f32); D0.f32 = sign_out ? -size : size",
)
_TO_SCALED: Final = re.compile(r"(b?f16|f32)_to_([fb][pf]8)_scale\(([^;]*?), scale\.u8\)")
_FROM_SCALED: Final = re.compile(
    r"(fp4|[fb][pf]8)_to_(b?f16|f32)_scale\(([^;]*?), scale(?:\.u8)?\)"
)
#: Dot products: sums of products of small numbers.
_DOT: Final = re.compile(
    r"V_DOT(?P<terms>[24])(?P<on>C|ACC)?_(?P<to>F32|BF16)_(?P<a>B?F16|[FB]F?P?8)(_(?P<b>[FB]F?P?8|BF16))?$"
)
_WHOLE_DOT: Final = re.compile(r"V_DOT(?P<terms>[48])_I32_IU[84]$")
#: Sums, differences and products of integers that saturate under the clamp modifier.
_SATURATES: Final = re.compile(
    r"V_(PK_)?(ADD|SUB|SUBREV|MAD)(_NC|_LEGACY)?_[UI](16|32)(_[UI](16|24))?$"
)
_SUM: Final = re.compile(r"\.([ui])(16|32) = (?=\(?[S3])([^;\n]*)")
_TERM: Final = re.compile(r"(32'[UI]\()?S\d(\[[^]]*\])?\.[ui]\d+\)?")
_EXTREME: Final = re.compile(r"[VS]_(MIN|MAX)(?P<three>3?)(?P<num>_NUM)?_F(64|32|16)$")


def text_of(instruction: Instruction) -> str:
    """Return an instruction's corrected pseudo-code; empty: no pseudo-code can be used."""
    name = instruction.name
    base = name.removeprefix("V_S_").removeprefix("V_").removeprefix("S_")
    function, _, kind = base.rpartition("_")
    low = kind.lower()
    if function in _APPROXIMATE and kind in {"F32", "F16"}:
        flush = "flush" if kind == "F32" else ""
        # float64 has far more digits than the result, which is therefore rounded once.
        wide = f"64'F({flush}(S0.{low}))"
        exact = f"{low[1:]}'F({_APPROXIMATE[function].format(wide)})"
        return f"D0.{low} = {flush}(bounded({exact}))"
    if name in {"V_RCP_F64", "V_RSQ_F64", "V_SQRT_F64"}:
        return f"D0.f64 = coarse({_APPROXIMATE[function].format('S0.f64')})"
    if function in {"SIN", "COS"}:
        return f"D0.{low} = {kind[1:]}'F(rough({function.lower()}_turns(64'F(S0.{low}))))"
    if function in _APPROXIMATE or name == "V_DOT2_F16_F16":
        return ""  # the documents state no useful bound
    if function in {"FRACT", "RNDNE"}:
        # FRACT is below 1, as in LLVM's AMDGPUCodeGenPrepare.cpp (matchFractPat); RNDNE ties to
        # even.
        return f"D0.{low} = {'fract' if function == 'FRACT' else 'rint'}(S0.{low})"
    if dot := _DOT.match(name):
        return _dot(dot)
    if dot := _WHOLE_DOT.match(name):
        return _whole_dot(int(dot["terms"]))
    if name.startswith("V_BITOP3_"):
        return _bitop3(instruction, int(kind[1:]))
    if pick := _EXTREME.match(name):
        call = f"v_{pick[1].lower()}{(pick['num'] or '').lower()}_{low}"
        inner = f"{call}(S0.{low}, S1.{low})"
        return f"D0.{low} = {call}({inner}, S2.{low})" if pick["three"] else f"D0.{low} = {inner}"
    found = _OVERRIDES.get(name, instruction.pseudocode)
    if saturates(instruction):
        found = _SUM.sub(_saturated, found)
    found = found.replace("VGPR[laneId][VDST.u32]", "D0").replace("VGPR[laneId][SRC0.u32]", "S0")
    if name in {"V_DIV_FIXUP_F32", "V_DIV_FIXUP_F64"}:
        broken, mended = (part.replace("f32", kind.lower()) for part in _OVERFLOWN)
        found = found.replace(broken, mended)
        found = found.replace("64'F(0xfff8000000000000LL)", "-NAN.f64")
    # Scaled conversions divide by a scale or multiply by a scale, whose exponent alone counts.
    found = _TO_SCALED.sub(r"f32_to_\2(ldexp(\1_to_f32(\3), 127 - 32'I(scale)))", found)
    found = _FROM_SCALED.sub(r"f32_to_\2(ldexp(\1_to_f32(\3), 32'I(scale) - 127))", found)
    found = found.replace("f32_to_f32(", "(").replace(".fp4", ".u4")
    # NaN is neither less nor greater than a number.
    found = re.sub(r"(S0\.f\d+) <> (S1\.f\d+)", r"(\1 < \2 || \1 > \2)", found)
    # The text for gfx9 rounds twice, but LLVM uses these for fma (FeatureFmaMixInsts of
    # AMDGPU.td).
    found = found.replace("in[0] * in[1] + in[2]", "fma(in[0], in[1], in[2])")
    found = re.sub(r"if \([^\n]*\) then\nTRAPSTS\.INVALID = 1\nendif;\n", "", found)
    return found.replace("WAVE_MODE.IEEE", "IEEE_MODE")


def saturates(instruction: Instruction) -> bool:
    """Return whether an instruction's integers are clamped to the range of their type."""
    return bool(instruction.get("clmp") and _SATURATES.match(instruction.name))


def _saturated(found: re.Match[str]) -> str:
    """Return pseudo-code that assigns a sum, computed exactly and clamped to its type."""
    kind, exact = found[1] + found[2], _TERM.sub(r"64'I(\g<0>)", found[3])
    return f".{kind} = f64_to_{kind}({exact})"


def _dot(found: re.Match[str]) -> str:
    """Return a dot product's pseudo-code: rounded once; with `bounds`, at both ends over orders."""
    # The rounding of each addition is unknown (ROCm/rocm-systems#12056). On gfx1200,
    # V_DOT2_BF16_BF16 was measured to truncate (triton-lang/triton#11217).
    a, b = found["a"].lower(), (found["b"] or found["a"]).lower()
    before = "D0.f32" if found["on"] else "S2.f32"
    if found["to"] == "BF16":
        before = "bf16_to_flushed(S2.bf16)"
    ends = ["flushed" if kind == "bf16" else "f32" for kind in (a, b)]
    lines = [f"t = 64'F({before}); sizes = abs(t)"]
    bits = 32 // int(found["terms"]) if a[-1] == "8" else 16
    for low in range(0, bits * int(found["terms"]), bits):
        factors = [
            f"64'F({kind}_to_{end}(S{i}[{low + bits - 1} : {low}].{kind}))"
            for i, (kind, end) in enumerate(zip((a, b), ends, strict=True))
        ]
        lines.append(f"p = {' * '.join(factors)}; t += p; sizes += abs(p)")
    total = f"64'F(added(t, sizes, {found['terms']}))"
    truncates = found["to"] == "BF16"
    lines.append(f"D0.bf16 = truncated_bf16({total})" if truncates else f"D0.f32 = 32'F({total})")
    return "; ".join(lines)


def _whole_dot(terms: int) -> str:
    """Return an integer dot product's pseudo-code; NEG tells which operands are signed."""
    bits = 32 // terms
    products = (
        " * ".join(
            f"(NEG[{i}] ? 32'I(S{i}[{low + bits - 1} : {low}].i{bits})"
            f" : 32'I(S{i}[{low + bits - 1} : {low}].u{bits}))"
            for i in range(2)
        )
        for low in range(0, 32, bits)
    )
    return f"D0.i32 = S2.i32 + {' + '.join(products)}"


def _bitop3(instruction: Instruction, width: int) -> str:
    """Return BITOP3's pseudo-code by the truth table, which is in the fields omod, abs and neg."""
    table = instruction.get("omod") << 6 | instruction.get("abs") << 3 | instruction.get("neg")
    terms = [
        " & ".join(f"{'' if case >> 2 - i & 1 else '~'}S{i}.u{width}" for i in range(3))
        for case in range(8)
        if table >> case & 1
    ]
    return f"D0.u{width} = {' | '.join(f'({term})' for term in terms) or f'S0.u{width} & 0U'}"


MACHINE: Final = (Path(__file__).parent / "machine.hpp").read_text(encoding="utf-8")
_FUNCTIONS: Final = frozenset(
    re.findall(r"^(?:INLINE|T_) \S+ (\w+)\(", MACHINE.partition("namespace f {")[2], re.MULTILINE)
)
_PICK: Final = re.compile(r"(v_min(?:imum)?|v_max(?:imum)?)(3?)(_num)?_[fiu]\d+")
#: Conversions from or to floats; from integers only those that machine.hpp has by name.
_CONVERSION: Final = re.compile(r"(f(?:16|32|64)|[iu](?:16|32)(?=_to_f))_to_([fiu](?:8|16|32|64))")
_TOKEN: Final = re.compile(
    r"\d+'-?(0x[0-9a-fA-F]+|\d+(\.\d+)?)[UI]?|\d+'(BF|[UIFB])"  # of a stated width; a cast
    r"|0x[0-9a-fA-F]+U?L{0,2}|\d+\.\d+F?|\d+(ULL|LL|U|F)?|[A-Za-z_]\w*"
    r"|\*\*|<<|>>|<=|>=|==|!=|<>|&&|\|\||[-+*/%&|^]=|[-+*/%&|^~!<>=?:.,;(){}\[\]]"
)
_BINARY: Final = {
    *("+", "-", "*", "/", "%", "&", "|", "^", "<<", ">>", "&&", "||", "**"),
    *("<", ">", "<=", ">=", "==", "!=", "<>"),
}
#: Numeric constants without a type.
_NUMBERS: Final = frozenset(
    {"INF", "NAN", "PI", "DENORM", "UNDERFLOW_F32", "UNDERFLOW_F64", "OVERFLOW_F32", "OVERFLOW_F64"}
)
_TYPE: Final = re.compile(r"[ui]8|[uif](16|32|64)")
#: Functions for numbers of any width: a cast of the argument would only change NaN.
_WIDTHLESS: Final = frozenset({"isNAN", "isQuietNAN", "isSignalNAN", "cvtToQuietNAN", "sign"})
#: Destinations in which each lane writes one bit.
_MASKS: Final = frozenset({"D0", "VCC", "EXEC"})
_STOPS: Final = frozenset({"=", ";", "", "if", "elsif", "else", "endif", "for", "endfor"})
#: The forms are `("type", kind)`, `("slice", high, low)` and `("index", place)`.
_Suffix: TypeAlias = tuple[str, ...]


class NotModelledError(Exception):
    """An instruction, an operand or the pseudo-code has no translation to C++."""


class _Code(NamedTuple):
    """A C++ expression, its bits (0: unknown), and its pseudo-code type if C++ lacks the type."""

    text: str
    width: int = 0
    kind: str = ""  # such as "bf16", "fp8" and "bf8"

    def held(self) -> _Code:
        """Return the expression; NotModelledError: C++ cannot compute with a type such as bf16."""
        if self.kind:
            raise NotModelledError(f"pseudo-code computes with {self.kind}")
        return self


def _kind(code: str) -> str:
    """Return a pseudo-code type that C++ lacks, such as bf16; empty: C++ has the type."""
    return code if code.startswith(("bf", "fp")) else ""


def _type(kind: str) -> str:
    """Return the C++ type that stores a type of the pseudo-code."""
    held = {"b": "u", "bf": "u", "fp": "u"}.get(kind.rstrip("0123456789"), kind[0])
    held += kind.lstrip("bfpiu")
    if not _TYPE.fullmatch(held):
        raise NotModelledError(f"pseudo-code has the type {kind!r}")
    return held


class Translation:
    """The C++ of a pseudo-code text; `lanes`: for one lane, with mask bits in `lane_VCC` etc."""

    def __init__(
        self, text: str, names: Collection[str], *, lanes: bool, flush: Collection[str] = ()
    ) -> None:
        self._names, self._lanes, self._flush = names, lanes, flush
        self.lines: list[str] = []
        self.used = set[str]()
        self.assigned = set[str]()
        self.masks = set[str]()
        self.width = 0  # the number of bits of the value for D0
        self._arrays = set[str]()
        self._variables = dict[str, int]()  # with the number of bits of the last value; 0: unknown
        self._kinds = dict[str, str]()  # types of variables that C++ lacks
        self._truncates = False  # whether the text sets a rounding mode towards zero
        self._hoisted = 0  # the index in `lines` for declarations of variables
        self._tokens: list[str] = []
        text = re.sub(r"//[^\n]*", "", text)
        while text := text.lstrip():
            token = _TOKEN.match(text)
            if token is None:
                raise NotModelledError(f"pseudo-code not understood at {text[:20]!r}")
            self._tokens.append(token[0])
            text = text[token.end() :]
        self._tokens += ["", "", ""]
        self._place = 0
        self._block(0)
        self._take("")

    # Tokens

    @property
    def _next(self) -> str:
        return self._tokens[self._place]

    def _take(self, expected: str | None = None) -> str:
        token = self._next
        if expected is not None and token != expected:
            raise NotModelledError(f"pseudo-code has {token!r} where {expected!r} is expected")
        self._place += 1
        return token

    def _accept(self, token: str) -> bool:
        found = self._next == token
        self._place += found
        return found

    # Statements

    def _block(self, depth: int) -> None:
        while self._next not in {"elsif", "else", "endif", "endfor", ""}:
            if not self._accept(";"):
                if depth == 0:
                    self._hoisted = len(self.lines)
                self._statement(depth)

    def _statement(self, depth: int) -> None:
        match self._next:
            case "if":
                head = "if"
                while self._next in {"if", "elsif"}:
                    self._take()
                    self.lines.append(f"{head} ({self._expression().text}) {{")
                    self._take("then")
                    self._block(depth + 1)
                    head = "} else if"
                if self._accept("else"):
                    self.lines.append("} else {")
                    self._block(depth + 1)
                self._take("endif")
                self.lines.append("}")
            case "for":
                self._take()
                name = self._take()
                self._take("in")
                low = self._expression().text
                self._take(":")
                last = f"(int)({self._expression().text})"
                self.lines.append(f"for (int {name} = {low}; {name} <= {last}; {name}++) {{")
                self._take("do")
                self._variables[name] = 0
                self._block(depth + 1)
                self._take("endfor")
                self.lines.append("}")
            case "declare":
                self._take()
                name = self._take()
                self._take(":")
                width, letter = self._take().split("'")
                size = "".join(f"[{suffix[1]}]" for suffix in self._suffixes())
                self._arrays |= {name} if size else set()
                self._variables[name] = 0 if size else int(width)
                kind = _type(f"{letter.lower()}{width}" if int(width) > 7 else "u8")
                self.lines.append(f"{kind} {name}{size} = {{}};")
            case "break":
                self._take()
                self.lines.append("break;")
            case "nop" | "s_nop":
                self._expression()
            case _:
                self._assignment()

    def _assignment(self) -> _Code:
        """Write an assignment; return the assigned value for a chained assignment (a = b = c)."""
        name, suffixes = self._take(), self._suffixes()
        operator = self._take()
        if operator != "=" and operator[1:] != "=":
            raise NotModelledError(f"pseudo-code has the statement {name!r}")
        start = self._place
        while self._tokens[start] not in _STOPS:
            start += 1
        chained = self._tokens[start] == "="
        value, width, kind = self._assignment() if chained else self._expression()
        if len(operator) == 2:
            _Code(value, width, kind).held()
            value = f"{self._read(name, suffixes).held().text} {operator[0]} ({value})"
        declared = suffixes[-1][1] if suffixes and suffixes[-1][0] == "type" else ""
        if kind and declared not in {"", kind} and declared[0] not in "bu":
            raise NotModelledError(f"pseudo-code takes {kind} for {declared}")
        if all(suffix[0] == "type" for suffix in suffixes):
            self._kinds[name] = _kind(declared) or kind
        self._assign(name, suffixes, value, width)
        if name == "D0":
            typed = len(suffixes) == 1 and suffixes[0][0] == "type"
            width = int(suffixes[0][1].lstrip("bfui")) if typed else 32 if suffixes else width
            self.width = max(self.width, width or 32)
        return _Code(value, width, kind)

    def _assign(self, name: str, suffixes: Sequence[_Suffix], value: str, width: int) -> None:
        if name == "ROUND_MODE":
            self._truncates = "TOWARD_ZERO" in value
            return
        by_lane = suffixes[-1] == ("index", "laneId") if suffixes else name != "D0"
        if self._lanes and name in _MASKS and by_lane:
            self.masks.add(name)
            self.lines.append(f"lane_{name} = {value};")
            return
        if name in self._names:
            if name not in {"D0", "SCC", "EXEC", "VCC"}:
                raise NotModelledError(f"pseudo-code assigns to {name}")
            self.assigned.add(name)
        elif name not in self._variables:
            if not name.isidentifier() or name in {"SGPR", "VGPR", "MEM", "PC"}:
                raise NotModelledError("pseudo-code assigns to something unusual")
            simple = suffixes and suffixes[0][0] == "type"
            kind = _type(suffixes[0][1]) if simple else "u32" if suffixes else f"decltype({value})"
            self.lines.insert(self._hoisted, f"{kind} {name} = {{}};")
            self._variables[name] = 0 if suffixes else width
        if name in self._arrays and suffixes and suffixes[0][0] == "index":
            name, suffixes = f"{name}[{suffixes[0][1]}]", suffixes[1:]
        kind = _type(suffixes[-1][1]) if suffixes and suffixes[-1][0] == "type" else ""
        places = [suffix for suffix in suffixes if suffix[0] != "type"]
        if kind:
            value = f"to<{kind}>({value})"
        if not places:
            how = "as" if kind else "to"
            self.lines.append(f"{name} = {how}<__typeof__({name})>({value});")
        elif len(places) == 1:
            high, low = places[0][1], places[0][-1]
            self.lines.append(f"set({name}, {high}, {low}, as<u64>({value}));")
        else:
            raise NotModelledError("pseudo-code assigns to something unusual")

    # Expressions

    def _expression(self) -> _Code:
        parts: list[str] = []
        while True:
            signs = ""
            while self._next in {"-", "+", "~", "!"}:
                signs += f"{self._take()} "
            part = self._primary()
            if self._accept("**"):
                part = _Code(f"f::two({self._primary().text})")
            if signs or parts or self._next in _BINARY:
                part.held()
            parts.append(signs + part.text)
            if self._accept("?"):
                yes, _, no = self._expression(), self._take(":"), self._expression()
                code = f"({' '.join(parts)} ? {yes.text} : {no.text})"
                return _Code(code, yes.width, yes.kind or no.kind)
            if self._next not in _BINARY:
                return _Code(" ".join(parts), *part[1:] if len(parts) == 1 else (0, ""))
            parts.append(self._take().replace("<>", "!="))

    def _primary(self) -> _Code:
        token = self._take()
        if token == "(":  # noqa: S105
            inner = self._expression()
            self._take(")")
            return self._rendered(inner._replace(text=f"({inner.text})"), self._suffixes())
        if token == "{":  # noqa: S105
            parts = [self._expression()]
            while self._accept(","):
                parts.append(self._expression())
            self._take("}")
            return self._joined(parts)
        if "'" in token:
            return self._sized(token)
        if token[0].isdigit():
            return _Code(token.replace("F", "f") if "." in token else token)
        if not (token[0].isalpha() or token[0] == "_"):
            raise NotModelledError(f"pseudo-code has {token!r} where a value is expected")
        if self._next == "(":
            return self._rendered(self._call(token), self._suffixes())
        return self._read(token, self._suffixes())

    def _sized(self, token: str) -> _Code:
        """Parse a literal of a stated width, such as `16'0x7E00`, or a cast, such as `64'F(x)`."""
        size, value = token.split("'")
        width = int(size)
        letters = value.lower()
        if letters not in {"u", "i", "f", "b", "bf"}:
            held = max(8, 1 << (width - 1).bit_length())
            kind = "f16" if "." in value else f"{'u' if value[-1] == 'U' else 'i'}{held}"
            return _Code(f"({_type(kind)}){value.rstrip('UI')}", width)
        self._take("(")
        joined = self._next == "{"
        inner, _, form = self._expression()
        self._take(")")
        kind = _type(f"{letters}{width}") if width > 7 else "u8"
        if form and letters == "f":
            return self._rendered(_Code(f"({kind})f::{form}_to_f32({inner})", width), ())
        if form and letters != "b":
            raise NotModelledError(f"pseudo-code takes {form} for a whole number")
        if letters == "bf":
            return self._rendered(
                _Code(f"f::f32_to_bf16({inner})", width, "bf16"), self._suffixes()
            )
        bits = letters == "b" or (letters == "f" and (joined or inner.startswith("0x")))
        how = "as" if bits else "number"
        return self._rendered(_Code(f"{how}<{kind}>({inner})", width), self._suffixes())

    def _call(self, name: str) -> _Code:
        self._take("(")
        arguments: list[str] = []
        while not self._accept(")"):
            if name in _WIDTHLESS and re.match(r"\d+'F$", self._next):
                self._take()  # the parentheses remain
            argument = self._expression()
            if not name.startswith(f"{argument.kind}_to_"):
                argument.held()
            arguments.append(argument.text)
            self._accept(",")
        if name == "f32_to_f16" and self._truncates:
            name = "truncated_f16"
        if name in {"bounded", "coarse", "rough", "added"}:
            arguments.append("m->side")
        if pick := _PICK.fullmatch(name):
            name = f"{pick[1]}{pick[3] or ''}"
            if pick[2]:
                arguments = [f"f::{name}({', '.join(arguments[:2])})", arguments[2]]
        to = name.rpartition("_to_")[2]
        width = {"fp8": 8, "bf8": 8, "f16": 16, "bf16": 16}.get(to, 0)
        if conversion := _CONVERSION.fullmatch(name):
            name = f"convert<{to}, {conversion[1]}>"
        elif name not in _FUNCTIONS:
            raise NotModelledError(f"pseudo-code calls {name}")
        return _Code(f"f::{name}({', '.join(arguments)})", width, _kind(to))

    def _suffixes(self) -> list[_Suffix]:
        """Parse the types, slices and indices that follow a value."""
        found: list[_Suffix] = []
        while self._next in {".", "["}:
            if self._take() == ".":
                found.append(("type", self._take()))
                continue
            place = self._expression().text
            more = self._accept(":")
            found.append(("slice", place, self._expression().text) if more else ("index", place))
            self._take("]")
        return found

    def _read(self, name: str, suffixes: Sequence[_Suffix]) -> _Code:
        if name in _NUMBERS:
            kind = _type(suffixes[0][1]) if suffixes and name != "DENORM" else ""
            return _Code(f"number<{kind}>({name})" if kind else name)
        kind = suffixes[-1][1] if suffixes else ""
        if name == "S" and kind and suffixes[0][0] == "index":  # the source of number i
            self.used |= {"S0", "S1", "S2"}
            source = f"({suffixes[0][1]} == 0 ? S0 : {suffixes[0][1]} == 1 ? S1 : S2)"
            return self._flushed(self._rendered(_Code(source), suffixes[1:]), kind)
        if name not in self._variables:
            if name not in self._names:
                raise NotModelledError(f"pseudo-code uses {name}")
            self.used.add(name)
        if name in self._arrays and suffixes:
            return self._rendered(_Code(f"{name}[{suffixes[0][1]}]"), suffixes[1:])
        held = _Code(name, self._variables.get(name, 0), self._kinds.get(name, ""))
        code = self._rendered(held, suffixes)
        ours = name[0] in "SD" and name not in self._variables
        return self._flushed(code, kind) if ours else code

    def _flushed(self, code: _Code, kind: str) -> _Code:
        """Return an operand's code, with subnormals as zero if the mode flushes `kind`."""
        return code._replace(text=f"f::flush({code.text})") if kind in self._flush else code

    @staticmethod
    def _rendered(code: _Code, suffixes: Sequence[_Suffix]) -> _Code:
        for suffix in suffixes:
            text = code.text
            match suffix:
                case ("type", kind):
                    found = re.fullmatch(r"(bf|fp|[uifb])(\d+)", kind)
                    if not found:
                        raise NotModelledError(f"pseudo-code has the type {kind!r}")
                    width = int(found[2])
                    if found[1] in {"u", "i", "b"} and width not in {8, 16, 32, 64}:
                        how = "low_signed" if found[1] == "i" else "low"
                        held = f"{found[1].replace('b', 'u')}32"
                        code = _Code(f"({_type(held)}){how}(as<u64>({text}), {width})", width)
                    else:
                        code = _Code(f"as<{_type(kind)}>({text})", width, _kind(kind))
                case ("slice", high, low):
                    width = int(high) - int(low) + 1 if high.isdigit() and low.isdigit() else 0
                    if width < 0:
                        raise NotModelledError("pseudo-code reads bits in reverse order")
                    code = _Code(f"slice({text}, {high}, {low})", width)
                case (_, place):
                    code = _Code(f"bit({text}, {place})", 1)
        return code

    @staticmethod
    def _joined(parts: list[_Code]) -> _Code:
        total = sum(part.width for part in parts)
        if total > 64 or not all(part.width for part in parts):
            raise NotModelledError("pseudo-code joins bits of unknown width")
        place, pieces = total, list[str]()
        for part in parts:
            place -= part.width
            pieces.append(f"low(as<u64>({part.text}), {part.width}) << {place}")
        return _Code(f"({'u64' if total > 32 else 'u32'})({' | '.join(pieces)})", total)
