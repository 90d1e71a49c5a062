"""Pseudo-code where the vendor's is loops, or less than is documented elsewhere."""

from __future__ import annotations

import re
from typing import Final

from contribbot.emulate.decode import Instruction

#: Documents bound these to 1 ULP and do not fix them; subnormals count as zero in those of float32
#: ("1ULP accuracy, denormals are flushed", AMD's documents of CDNA 3, RDNA 3 and 4).
_APPROXIMATE: Final = {
    "RCP": "1.0 / {}", "RCP_IFLAG": "1.0 / {}", "RSQ": "1.0 / sqrt({})", "EXP": "exp2({})",
    "LOG": "log2({})", "SQRT": "sqrt({})",
}  # fmt: skip
#: As measured on gfx1100 and gfx1201 by AMD's rocjitsu (ROCm/rocm-systems, division.h): the
#: documents' text would scale a denominator to infinity.
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
_TEXTS: Final = {
    "V_DIV_SCALE_F32": _DIV_SCALE.format(f="f32", F="F", far=96, by=64, huge=253, tiny=24),
    "V_DIV_SCALE_F64": _DIV_SCALE.format(f="f64", F="", far=768, by=128, huge=2045, tiny=53),
    # Product and sum are rounded each, and subnormals are never kept (LLVM's SIISelLowering.cpp on
    # FMAD_FTZ).
    "V_MAD_F32": "p = flush(flush(S0.f32) * flush(S1.f32)); D0.f32 = flush(p + flush(S2.f32))",
    # The documents' 2 ** 32 would not undo what V_DIV_SCALE does; and rounded twice, a
    # subnormal quotient would not be the nearest.
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
    # The carry is of signed numbers: whether the sum is not the sign's.
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
}  # fmt: skip
#: In the chain of a division that overflows, infinity less infinity makes NaN of the quotient.
_OVERFLOWN: Final = (
    "D0.f32 = sign_out ? -abs(S0.f32) : abs(S0.f32)",
    "size = isNAN(S0.f32) ? INF.f32 : abs(S0.f32); D0.f32 = sign_out ? -size : size",
)
_TO_SCALED: Final = re.compile(r"(b?f16|f32)_to_([fb][pf]8)_scale\(([^;]*?), scale\.u8\)")
_FROM_SCALED: Final = re.compile(r"([fb][pf]8)_to_(b?f16|f32)_scale\(([^;]*?), scale(?:\.u8)?\)")
#: Sums of products of small numbers.
_DOT: Final = re.compile(
    r"V_DOT(?P<terms>[24])(?P<on>C|ACC)?_(?P<to>F32|BF16)_(?P<a>B?F16|[FB]F?P?8)(_(?P<b>[FB]F?P?8|BF16))?$"
)
_WHOLE_DOT: Final = re.compile(r"V_DOT(?P<terms>[48])_I32_IU[84]$")
#: Sums, differences and products of integers, which the clamp modifier has saturate.
_SATURATES: Final = re.compile(
    r"V_(PK_)?(ADD|SUB|SUBREV|MAD)(_NC|_LEGACY)?_[UI](16|32)(_[UI](16|24))?$"
)
_SUM: Final = re.compile(r"\.([ui])(16|32) = (?=\(?[S3])([^;\n]*)")
_TERM: Final = re.compile(r"(32'[UI]\()?S\d(\[[^]]*\])?\.[ui]\d+\)?")
_PICK: Final = re.compile(r"[VS]_(MIN|MAX)(?P<three>3?)(?P<num>_NUM)?_F(64|32|16)$")


def text(instruction: Instruction) -> str:
    """Return an instruction's pseudo-code as it is translated."""
    name = instruction.name
    base = name.removeprefix("V_S_").removeprefix("V_").removeprefix("S_")
    function, _, kind = base.rpartition("_")
    low = kind.lower()
    if function in _APPROXIMATE and kind in {"F32", "F16"}:
        flush = "flush" if kind == "F32" else ""
        # float64 holds far more digits than the result, which is then rounded once.
        wide = f"64'F({flush}(S0.{low}))"
        exact = f"{low[1:]}'F({_APPROXIMATE[function].format(wide)})"
        return f"D0.{low} = {flush}(bounded({exact}))"
    if name in {"V_RCP_F64", "V_RSQ_F64", "V_SQRT_F64"}:
        return f"D0.f64 = coarse({_APPROXIMATE[function].format('S0.f64')})"
    if function in {"SIN", "COS"}:
        return f"D0.{low} = {kind[1:]}'F(rough({function.lower()}_turns(64'F(S0.{low}))))"
    if function in _APPROXIMATE or name == "V_DOT2_F16_F16":
        return ""  # documents do not bound them closely enough
    if function in {"FRACT", "RNDNE"}:
        # Below 1, as LLVM's AMDGPUCodeGenPrepare.cpp has it (matchFractPat); ties to even.
        return f"D0.{low} = {'fract' if function == 'FRACT' else 'rint'}(S0.{low})"
    if dot := _DOT.match(name):
        return _dot(dot)
    if dot := _WHOLE_DOT.match(name):
        return _whole_dot(int(dot["terms"]))
    if name.startswith("V_BITOP3_"):
        return _bitop3(instruction, int(kind[1:]))
    if pick := _PICK.match(name):
        call = f"v_{pick[1].lower()}{(pick['num'] or '').lower()}_{low}"
        inner = f"{call}(S0.{low}, S1.{low})"
        return f"D0.{low} = {call}({inner}, S2.{low})" if pick["three"] else f"D0.{low} = {inner}"
    found = _TEXTS.get(name, instruction.pseudocode)
    if saturates(instruction):
        found = _SUM.sub(_saturated, found)
    found = found.replace("VGPR[laneId][VDST.u32]", "D0").replace("VGPR[laneId][SRC0.u32]", "S0")
    if name in {"V_DIV_FIXUP_F32", "V_DIV_FIXUP_F64"}:
        broken, mended = (part.replace("f32", kind.lower()) for part in _OVERFLOWN)
        found = found.replace(broken, mended)
        found = found.replace("64'F(0xfff8000000000000LL)", "-NAN.f64")
    # Scaled conversions divide by a scale, or multiply with it; only its exponent counts.
    found = _TO_SCALED.sub(r"f32_to_\2(ldexp(\1_to_f32(\3), 127 - 32'I(scale)))", found)
    found = _FROM_SCALED.sub(r"f32_to_\2(ldexp(\1_to_f32(\3), 32'I(scale) - 127))", found)
    found = found.replace("f32_to_f32(", "(")
    # NaN is neither less nor greater than a number.
    found = re.sub(r"(S0\.f\d+) <> (S1\.f\d+)", r"(\1 < \2 || \1 > \2)", found)
    # The text for gfx9 rounds twice; LLVM selects these for fma (FeatureFmaMixInsts of AMDGPU.td).
    found = found.replace("in[0] * in[1] + in[2]", "fma(in[0], in[1], in[2])")
    found = re.sub(r"if \([^\n]*\) then\nTRAPSTS\.INVALID = 1\nendif;\n", "", found)
    return found.replace("WAVE_MODE.IEEE", "IEEE_MODE")


def saturates(instruction: Instruction) -> bool:
    """Say whether an instruction's integers are clamped to what their type holds."""
    return bool(instruction.get("clmp") and _SATURATES.match(instruction.name))


def _saturated(found: re.Match[str]) -> str:
    """Return an assignment of a sum that is exact before it is clamped."""
    kind, exact = found[1] + found[2], _TERM.sub(r"64'I(\g<0>)", found[3])
    return f".{kind} = f64_to_{kind}({exact})"


def _dot(found: re.Match[str]) -> str:
    """Return a sum of products, rounded once; `bounds` takes both ends of what any order gives."""
    # How each addition is rounded is not known (ROCm/rocm-systems#12056); V_DOT2_BF16_BF16 truncates
    # on gfx1200 (triton-lang/triton#11217).
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
    """Return a sum of products of small integers; NEG says which operands have signs."""
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
    """Return a bitwise function of three sources; its truth table stands in the modifiers."""
    table = instruction.get("omod") << 6 | instruction.get("abs") << 3 | instruction.get("neg")
    terms = [
        " & ".join(f"{'' if case >> 2 - i & 1 else '~'}S{i}.u{width}" for i in range(3))
        for case in range(8)
        if table >> case & 1
    ]
    return f"D0.u{width} = {' | '.join(f'({term})' for term in terms) or f'S0.u{width} & 0U'}"
