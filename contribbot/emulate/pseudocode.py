"""From the vendor's pseudo-code of an instruction to C++, over the functions of machine.hpp."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

MACHINE: Final = (Path(__file__).parent / "machine.hpp").read_text(encoding="utf-8")
_FUNCTIONS: Final = frozenset(
    re.findall(r"^(?:INLINE|T_) \S+ (\w+)\(", MACHINE.partition("namespace f {")[2], re.MULTILINE)
)
_PICK: Final = re.compile(r"(v_min(?:imum)?|v_max(?:imum)?)(3?)(_num)?_[fiu]\d+")
#: Conversions of floats, or to them; of integers only those that machine.hpp has by name.
_CONVERSION: Final = re.compile(r"(f(?:16|32|64)|[iu](?:16|32)(?=_to_f))_to_([fiu](?:8|16|32|64))")
_TOKEN: Final = re.compile(
    r"\d+'-?(0x[0-9a-fA-F]+|\d+(\.\d+)?)[UI]?|\d+'(BF|[UIFB])"  # of a stated width; a cast
    r"|0x[0-9a-fA-F]+U?L{0,2}|\d+\.\d+F?|\d+(ULL|LL|U|F)?|[A-Za-z_]\w*"
    r"|\*\*|<<|>>|<=|>=|==|!=|<>|&&|\|\||[-+*/%&|^]=|[-+*/%&|^~!<>=?:.,;(){}\[\]]"
)
_BINARY: Final = frozenset({
    "+", "-", "*", "/", "%", "&", "|", "^", "<<", ">>", "<", ">", "<=", ">=", "==", "!=", "<>",
    "&&", "||", "**",
})  # fmt: skip
#: Numbers of no type of their own.
_NUMBERS: Final = frozenset({
    "INF", "NAN", "PI", "DENORM", "UNDERFLOW_F32", "UNDERFLOW_F64", "OVERFLOW_F32", "OVERFLOW_F64",
})  # fmt: skip
_TYPE: Final = re.compile(r"[ui]8|[uif](16|32|64)")
#: What looks at a number whatever its width: a cast before it would only change NaN.
_WIDTHLESS: Final = frozenset({"isNAN", "isQuietNAN", "isSignalNAN", "cvtToQuietNAN", "sign"})
#: Destinations of which an instruction writes the bit of its lane.
_MASKS: Final = frozenset({"D0", "VCC", "EXEC"})
#: What a statement may end before.
_STOPS: Final = frozenset({"=", ";", "", "if", "elsif", "else", "endif", "for", "endfor"})
#: `("type", kind)`, `("slice", high, low)` or `("index", place)`.
_Suffix: TypeAlias = tuple[str, ...]


class NotModelledError(Exception):
    """The pseudo-code has something that has no translation here."""


class _Code(NamedTuple):
    """An expression, its bits (0: unknown), and its kind where C++ only holds and converts it."""

    text: str
    width: int = 0
    kind: str = ""  # "bf16", "fp8", "bf8"

    def held(self) -> _Code:
        """Return it where it takes part in arithmetic."""
        if self.kind:
            raise NotModelledError(f"pseudo-code computes with {self.kind}")
        return self


def _kind(code: str) -> str:
    """Return what a type of the pseudo-code is where C++ has none; empty: it has one."""
    return code if code.startswith(("bf", "fp")) else ""


def _type(kind: str) -> str:
    """Return the C++ type that holds a type of the pseudo-code."""
    held = {"b": "u", "bf": "u", "fp": "u"}.get(kind.rstrip("0123456789"), kind[0])
    held += kind.lstrip("bfpiu")
    if not _TYPE.fullmatch(held):
        raise NotModelledError(f"pseudo-code has the type {kind!r}")
    return held


class Translation:
    """The C++ of an instruction's text; with `lanes` for one lane, masks left in `lane_VCC` etc."""

    def __init__(
        self, text: str, names: Collection[str], *, lanes: bool, flush: Collection[str] = ()
    ) -> None:
        self._names, self._lanes, self._flush = names, lanes, flush
        self.lines: list[str] = []
        self.used = set[str]()
        self.assigned = set[str]()
        self.masks = set[str]()
        self.width = 0  # bits of what D0 gets
        self._arrays = set[str]()
        self._variables = dict[str, int]()  # and how many bits the last value has; 0: unknown
        self._kinds = dict[str, str]()  # what the variables hold for which C++ has no type
        self._truncates = False  # whether a rounding mode towards zero is set
        self._hoisted = 0  # where in `lines` a variable is declared that a block assigns first
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
        """Write an assignment, and return what it assigns (a = b = c)."""
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
        """Return a number of a stated width, or a conversion."""
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
                self._take()  # the parentheses stay
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
        """Return types, slices and bits that stand behind a value."""
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
        if name == "S" and kind and suffixes[0][0] == "index":  # S[i]: the source of that number
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
        """Return an operand, or zero where it is a subnormal of a type that has none."""
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
