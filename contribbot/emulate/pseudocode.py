"""From the vendor's pseudo-code of an instruction to Python source over arrays.

The pseudo-code speaks of one lane; the source that comes out of it works on arrays of (waves,
lanes). Conditions become masks, loops are unrolled, and what is known of the instruction
(OPSEL, rounding, wave size) is decided here and not at every execution.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

Node: TypeAlias = tuple["Node | str | int | float | None", ...]


class NotModelledError(Exception):
    """The pseudo-code has something that has no translation here."""


_TOKEN: Final = re.compile(
    r"(?P<sized>\d+'-?(?:0x[0-9a-fA-F]+|\d+)(?:U|I)?)|(?P<cast>\d+'(?:BF|[UIFB]))"
    r"|(?P<number>0x[0-9a-fA-F]+U?L{0,2}|\d+\.\d+F?|\d+(?:ULL|LL|U|F)?)"
    r"|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<sign>\+:|\*\*|<<|>>|<=|>=|==|!=|<>|&&|\|\||[-+*/%&|^]=|[-+*/%&|^~!<>=?:.,;(){}\[\]])"
)
#: Binary operators, the loosest first.
_LEVELS: Final = (
    ("||",), ("&&",), ("|",), ("^",), ("&",), ("==", "!=", "<>"), ("<", "<=", ">", ">="),
    ("<<", ">>"), ("+", "-"), ("*", "/", "%"), ("**",),
)  # fmt: skip
_TYPE: Final = re.compile(r"([uifb]|bf|fp)(\d+)$")
#: The bits of infinity in float32.
_INFINITY: Final = 0x7F800000
_ENDS: Final = ("elsif", "else", "endif", "endfor", "")


class _Parser:
    """Reads one instruction's text into statements."""

    def __init__(self, text: str) -> None:
        text = re.sub(r"//[^\n]*", "", text)
        self.tokens: list[str] = []
        place = 0
        while text := text[place:].lstrip():
            token = _TOKEN.match(text)
            if token is None:
                raise NotModelledError(f"pseudo-code not understood at {text[:20]!r}")
            self.tokens.append(token[0])
            place = token.end()
        self.tokens.append("")
        self.place = 0

    @property
    def next(self) -> str:
        return self.tokens[self.place]

    def take(self, expected: str = "") -> str:
        token = self.next
        if expected and token != expected:
            raise NotModelledError(f"pseudo-code has {token!r} where {expected!r} is expected")
        self.place += 1
        return token

    def accept(self, token: str) -> bool:
        if self.next == token:
            self.place += 1
            return True
        return False

    def block(self) -> Node:
        statements: list[Node] = []
        while self.next not in _ENDS:
            if not self.accept(";"):
                statements.append(self.statement())
        return tuple(statements)

    def statement(self) -> Node:
        if self.accept("if"):
            arms: list[Node] = []
            condition = self.expression()
            self.take("then")
            arms.append((condition, self.block()))
            while self.accept("elsif"):
                condition = self.expression()
                self.take("then")
                arms.append((condition, self.block()))
            other = self.block() if self.accept("else") else ()
            self.take("endif")
            return ("if", tuple(arms), other)
        if self.accept("for"):
            name = self.take()
            self.take("in")
            low = self.binary(0)
            self.take(":")
            high = self.expression()
            self.take("do")
            body = self.block()
            self.take("endfor")
            return ("for", name, low, high, body)
        if self.accept("declare"):
            name = self.take()
            self.take(":")
            kind = self.take()
            count: Node | None = None
            if self.accept("["):
                count = self.expression()
                self.take("]")
            return ("declare", name, kind, count)
        if self.accept("break"):
            return ("break",)
        return self.assignment()

    def assignment(self) -> Node:
        target = self.expression()
        if self.accept("="):
            return ("set", target, self.assignment())
        if len(self.next) == 2 and self.next[1] == "=" and self.next[0] in "+-*/%&|^":
            operator = self.take()[0]
            return ("set", target, ("binary", operator, target, self.expression()))
        return target

    def expression(self) -> Node:
        condition = self.binary(0)
        if not self.accept("?"):
            return condition
        yes = self.expression()
        self.take(":")
        return ("choose", condition, yes, self.expression())

    def binary(self, level: int) -> Node:
        if level == len(_LEVELS):
            return self.unary()
        left = self.binary(level + 1)
        while self.next in _LEVELS[level]:
            operator = self.take()
            left = ("binary", operator, left, self.binary(level + 1))
        return left

    def unary(self) -> Node:
        if self.next in {"-", "+", "~", "!"}:
            return ("unary", self.take(), self.unary())
        return self.postfix(self.primary())

    def primary(self) -> Node:
        token = self.take()
        if token == "(":  # noqa: S105
            inner = self.expression()
            self.take(")")
            return inner
        if token == "{":  # noqa: S105
            parts = [self.expression()]
            while self.accept(","):
                parts.append(self.expression())
            self.take("}")
            return ("concat", tuple(parts))
        if "'" in token:
            width, value = token.split("'")
            if value.rstrip("BFUI") == "":
                self.take("(")
                inner = self.expression()
                self.take(")")
                return ("cast", f"{value.lower()}{width}", inner)
            signed = "u" if value.endswith("U") else "i"
            return ("literal", f"{signed}{width}", int(value.rstrip("UI"), 0))
        if token[0].isdigit():
            return _literal(token)
        if not (token[0].isalpha() or token[0] == "_"):
            raise NotModelledError(f"pseudo-code has {token!r} where a value is expected")
        if self.accept("("):
            arguments: list[Node] = []
            while not self.accept(")"):
                arguments.append(self.expression())
                self.accept(",")
            return ("call", token, tuple(arguments))
        return ("name", token)

    def postfix(self, value: Node) -> Node:
        while True:
            if self.accept("."):
                value = ("type", self.take(), value)
            elif self.accept("["):
                high = self.expression()
                if self.accept(":"):
                    value = ("slice", value, high, self.expression())
                else:
                    value = ("index", value, high)
                self.take("]")
            else:
                return value


def _literal(token: str) -> Node:
    if "." in token or (token.endswith("F") and not token.startswith("0x")):
        return ("literal", "f32" if token.endswith("F") else "f0", float(token.rstrip("F")))
    digits = token.rstrip("UL")
    suffix = token[len(digits) :]
    kind = {"": "i0", "U": "u32", "LL": "i64", "ULL": "u64"}[suffix]
    return ("literal", kind, int(digits, 0))


@functools.cache
def parse(text: str) -> Node:
    """Return an instruction's statements."""
    parser = _Parser(text)
    statements = parser.block()
    parser.take("")
    return statements


@dataclass(frozen=True)
class Value:
    """An expression: its source and type, or a number that is known.

    Types are numpy's (`u32`, `i64`, `f16`, `bool`); a known number without a type has width 0.
    """

    code: str
    kind: str
    number: float | None = None

    @property
    def bits(self) -> int:
        """How wide it is; 0: as wide as is needed."""
        return 1 if self.kind == "bool" else int(self.kind[1:])


def known(number: float, kind: str = "i0") -> Value:
    """Return a number that is known."""
    return Value("", kind, number)


def _container(kind: str) -> str:
    """Return numpy's type for one of the pseudo-code: `u8` for `u3`, `u16` for `bf16`."""
    if kind == "bool" or kind[1:] == "0":
        return kind
    match = _TYPE.match(kind)
    if match is None:
        raise NotModelledError(f"pseudo-code has the type {kind!r}")
    letter, width = match[1], int(match[2])
    size = next((size for size in (8, 16, 32, 64) if width <= size), 0)
    if not size:
        raise NotModelledError(f"pseudo-code has the type {kind!r}")
    return f"{letter}{size}" if letter in {"i", "f"} else f"u{size}"


#: What is called by name: the function in `arithmetic`, and its result's type (`=`: as given).
_FUNCTIONS: Final[Mapping[str, tuple[str, str]]] = {
    "abs": ("np.abs", "="), "floor": ("np.floor", "="), "trunc": ("np.trunc", "="),
    "sqrt": ("np.sqrt", "="), "log2": ("np.log2", "="), "fract": ("a.fract", "="),
    "sin": ("np.sin", "="), "cos": ("np.cos", "="), "exp2": ("np.exp2", "="),
    "rint": ("np.rint", "="), "ldexp": ("a.ldexp", "="),
    "fma": ("a.fma", "="), "scaled_fma": ("a.scaled_fma", "="),
    "mantissa": ("a.mantissa", "="), "isEven": ("a.is_even", "bool"),
    "frexp_exponent": ("a.frexp_exponent", "i32"), "exponent": ("a.exponent", "i32"),
    "isNAN": ("a.is_nan", "bool"), "isQuietNAN": ("a.is_quiet_nan", "bool"),
    "isSignalNAN": ("a.is_signal_nan", "bool"), "isDENORM": ("a.is_denorm", "bool"),
    "cvtToQuietNAN": ("a.quiet", "="), "sign": ("np.signbit", "bool"),
    "f16_to_f32": ("a.f16_to_f32", "f32"), "bf16_to_f32": ("a.bf16_to_f32", "f32"),
    "f32_to_bf16": ("a.f32_to_bf16", "u16"), "f32_to_f64": ("a.to_f64", "f64"),
    "f64_to_f32": ("a.to_f32", "f32"), "i32_to_f32": ("a.to_f32", "f32"),
    "u32_to_f32": ("a.to_f32", "f32"), "i32_to_f64": ("a.to_f64", "f64"),
    "u32_to_f64": ("a.to_f64", "f64"), "u16_to_f16": ("a.to_f16", "f16"),
    "i16_to_f16": ("a.to_f16", "f16"), "f32_to_i32": ("a.to_i32", "i32"),
    "f64_to_i32": ("a.to_i32", "i32"), "f32_to_u32": ("a.to_u32", "u32"),
    "f64_to_u32": ("a.to_u32", "u32"), "f16_to_i16": ("a.to_i16", "i16"),
    "f16_to_u16": ("a.to_u16", "u16"), "f32_to_u8": ("a.to_u8", "u8"),
    "v_cvt_i16_f32": ("a.to_i16", "i16"), "v_cvt_u16_f32": ("a.to_u16", "u16"),
    "f32_to_fp8": ("f.fp8.encode", "u8"), "f32_to_bf8": ("f.bf8.encode", "u8"),
    "fp8_to_f32": ("f.fp8.decode", "f32"), "bf8_to_f32": ("f.bf8.decode", "f32"),
    "v_max_num_f32": ("a.maximum_number", "="), "v_min_num_f32": ("a.minimum_number", "="),
    "v_max_num_f16": ("a.maximum_number", "="), "v_min_num_f16": ("a.minimum_number", "="),
    "v_max_f32": ("f.maximum", "="), "v_min_f32": ("f.minimum", "="),
    "v_max_f16": ("f.maximum", "="), "v_min_f16": ("f.minimum", "="),
    "bitCount": ("a.count_bits", "u32"), "reverse": ("a.reverse_bits", "u32"),
    "leading_zeros": ("a.leading_zeros", "i32"), "trailing_zeros": ("a.trailing_zeros", "i32"),
    "select_byte": ("a.select_byte", "u32"), "bounded": ("f.bounded", "="),
    "coarse": ("f.coarse", "="),
    "flush": ("a.flush", "="),
    **{f"v_{pick}_{kind}": (f"np.{pick}imum", "=")
       for pick in ("min", "max") for kind in ("i16", "u16", "i32", "u32")},
    **{f"v_{pick}3_{kind}": (f"np.{pick}imum", "=")
       for pick in ("min", "max") for kind in ("i16", "u16", "i32", "u32")},
    **{f"{name}_to_{kind}": (f"a.to_{kind}_plain", kind)
       for name, kind in (("i16", "i32"), ("i8", "i32"), ("u16", "u32"), ("u8", "u32"))},
}  # fmt: skip
#: What looks at a number whatever its width: a cast before it would only change NaN.
_WIDTHLESS: Final = frozenset(
    {"isNAN", "isQuietNAN", "isSignalNAN", "cvtToQuietNAN", "sign", "isEven"}
)


@dataclass
class Translation:
    """The source of one instruction: its lines, and what they leave in which destination."""

    operand: Callable[[str], Value | None]
    constant: Callable[[float, str], str]
    prefix: str
    lines: list[str] = field(default_factory=list)
    values: dict[str, Value] = field(default_factory=dict)
    #: Destinations that are masks over lanes: `D0`, `VCC`, `EXEC`.
    masks: dict[str, Value] = field(default_factory=dict)
    assigned: set[str] = field(default_factory=set)
    _mask: str | None = None
    _kinds: dict[str, str] = field(default_factory=dict)
    _stopped: bool = False
    _count: int = 0

    def run(self, text: str) -> None:
        """Translate an instruction's text."""
        self._block(parse(text))

    def source(self, value: Value, kind: str) -> str:
        """Return a value's source in one of numpy's types, converted as numbers are."""
        if value.number is not None:
            return self.constant(value.number, kind)
        if value.kind == kind:
            return value.code
        return f"{value.code}.astype({kind})"

    def raw(self, value: Value, width: int) -> str:
        """Return the source of a value's bits, `width` of them."""
        kind = f"u{width}"
        return self.source(self.typed(value, kind), kind)

    def typed(self, value: Value, kind: str) -> Value:
        """Return a value's lowest bits as another type."""
        kind = _container(kind)
        if value.number is not None:
            return self._reinterpreted(value, kind)
        if value.kind == kind:
            return value
        if value.kind == "bool":
            return Value(self.source(value, kind), kind)
        code, bits, width = value.code, value.bits, int(kind[1:])
        if bits == width:
            return Value(f"{code}.view({kind})", kind)
        unsigned = code if value.kind[0] == "u" else f"{code}.view(u{bits})"
        resized = f"{unsigned}.astype(u{width})"
        return Value(resized if kind[0] == "u" else f"{resized}.view({kind})", kind)

    def _reinterpreted(self, value: Value, kind: str) -> Value:
        """Return the bits of a known number as another type; one of no width takes any."""
        floats = (value.kind[0] == "f") + (kind[0] == "f")
        if value.bits == 0 or floats != 1 or value.number is None:
            return known(value.number or 0, kind)
        if kind[0] == "f":  # not a number that is known: NaN would lose its bits
            return Value(f"{self.constant(value.number, f'u{kind[1:]}')}.view({kind})", kind)
        return Value(
            f"{self.constant(value.number, value.kind)}.view(u{value.bits}).astype({kind})", kind
        )

    def _temporary(self, value: Value) -> Value:
        if value.number is not None or value.code.isidentifier():
            return value
        self._count += 1
        name = f"{self.prefix}{self._count}"
        self.lines.append(f"{name} = {value.code}")
        return Value(name, value.kind)

    # Statements

    def _block(self, statements: Node) -> None:
        for statement in statements:
            assert isinstance(statement, tuple)  # noqa: S101  the parser made it
            if not self._stopped:
                self._statement(statement)

    def _statement(self, statement: Node) -> None:
        match statement:
            case ("set", tuple() as target, tuple() as value):
                self._set(target, value)
            case ("if", tuple() as arms, tuple() as other):
                self._if(arms, other)
            case ("for", str() as name, tuple() as low, tuple() as high, tuple() as body):
                self._for(name, low, high, body)
            case ("declare", str() as name, str() as kind, _):
                width, letter = kind.split("'")
                self._kinds[name] = f"{letter.lower().replace('b', 'u')}{width}"
            case ("break",):
                if self._mask is not None:
                    raise NotModelledError("pseudo-code leaves a loop in some lanes only")
                self._stopped = True
            case ("call", str() as name, _) if name in {"nop", "s_nop"}:
                pass
            case _:
                raise NotModelledError(f"pseudo-code has the statement {statement[0]!r}")

    def _for(self, name: str, low: Node, high: Node, body: Node) -> None:
        first, last = self.value(low).number, self.value(high).number
        if first is None or last is None:
            raise NotModelledError("pseudo-code has a loop whose length is computed")
        for place in range(int(first), int(last) + 1):
            self.values[name] = known(place, "i32")
            self._block(body)
            if self._stopped:
                break
        self._stopped = False

    def _if(self, arms: Node, other: Node) -> None:
        outside, remaining = self._mask, self._mask
        for arm in (*arms, (None, other)):
            match arm:
                case (None, tuple() as body):
                    self._mask = remaining
                    self._block(body)
                case (tuple() as condition, tuple() as body):
                    test = self.truth(self.value(condition))
                    if test.number is not None:
                        if not test.number:
                            continue
                        self._mask = remaining
                        self._block(body)
                        break
                    here = self._temporary(test).code
                    both = here if remaining is None else f"({remaining} & {here})"
                    self._mask = self._temporary(Value(both, "bool")).code
                    self._block(body)
                    rest = f"~{here}" if remaining is None else f"({remaining} & ~{here})"
                    remaining = self._temporary(Value(rest, "bool")).code
        self._mask = outside

    def _set(self, target: Node, value: Node) -> None:
        if value[0] == "set":  # a = b = c
            assert isinstance(value[1], tuple) and isinstance(value[2], tuple)  # noqa: S101,PT018
            self._set(value[1], value[2])
            value = value[2]
        match target:
            case ("name", str() as name):
                self._store(name, self.value(value))
            case ("type", str() as kind, ("name", str() as name)):
                self._store(name, self._converted(self.value(value), _container(kind)))
            case ("index", ("type", _, ("name", str() as name)), ("name", "laneId")):
                self._store_mask(name, self.truth(self.value(value)))
            case ("slice", tuple(), _, _) | ("type", str(), ("slice", tuple(), _, _)):
                self._store_slice(target, self.value(value))
            case ("index", ("name", str() as name), tuple() as place):
                number = self.value(place).number
                if number is None:
                    raise NotModelledError("pseudo-code writes to a computed place")
                kind = self._kinds.get(name, "u32")
                stored = self._converted(self.value(value), _container(kind))
                self._store(f"{name}#{int(number)}", stored)
            case ("index", ("type", _, ("name", str() as name)), tuple() as place):
                self._store_bit(name, self.value(place), self.value(value))
            case ("type", _, ("type", _, _) as inner):
                self._set(inner, value)
            case _:
                raise NotModelledError("pseudo-code assigns to something unusual")

    def _store(self, name: str, value: Value) -> None:
        if name in {"VCC", "EXEC"} and value.number in {0, 1}:
            self._store_mask(name, self.truth(value))
            return
        declared = self._kinds.get(name)
        if declared:
            value = self.typed(value, declared)
        value = self._temporary(value)
        old = self.values.get(name)
        if self._mask is not None and old is not None:
            kind = value.kind if old.bits == 0 else old.kind
            if kind[1:] == "0":
                kind = f"{kind[0]}32"
            new = self.typed(value, kind) if kind != value.kind else value
            merged = f"np.where({self._mask}, {self.source(new, kind)}, {self.source(old, kind)})"
            value = self._temporary(Value(merged, kind))
        self.values[name] = value
        self.assigned.add(name)

    def _store_mask(self, name: str, value: Value) -> None:
        new = self.source(value, "bool")
        old = self.masks.get(name)
        if self._mask is not None:
            before = self.source(old, "bool") if old else self.constant(0, "bool")
            new = f"np.where({self._mask}, {new}, {before})"
        self.masks[name] = self._temporary(Value(new, "bool"))

    def _whole(self, name: str) -> Value:
        """Return what a destination or variable holds, before some of its bits change."""
        if name in self.values:
            return self.values[name]
        value = self.operand(name) if name in {"D0", "D1"} else None
        if value is None:
            kind = self._kinds.get(name, "u32")
            value = known(0, _container(kind))
        return value

    def _store_slice(self, target: Node, value: Value) -> None:
        kind = ""
        if target[0] == "type":
            kind = str(target[1])
            assert isinstance(target[2], tuple)  # noqa: S101
            target = target[2]
        match target:
            case ("slice", ("type", _, ("name", str() as name)), tuple() as first, tuple() as last):
                pass
            case ("slice", ("name", str() as name), tuple() as first, tuple() as last):
                pass
            case _:
                raise NotModelledError("pseudo-code writes bits of something unusual")
        high, low = self.value(first).number, self.value(last).number
        if high is None or low is None:
            raise NotModelledError("pseudo-code writes a computed slice")
        width, place = int(high) - int(low) + 1, int(low)
        if kind:
            value = self._converted(value, _container(kind))
        whole = self._whole(name)
        if whole.bits in {0, width} and place == 0:
            self._store(name, self.typed(value, f"u{width}"))
            return
        size = max(whole.bits, place + width)
        if value.bits and value.bits < width:
            value = self.typed(value, f"u{width}")
        mask = ((1 << width) - 1) << place
        kept = f"({self.raw(whole, size)} & {self.constant(~mask & ((1 << size) - 1), f'u{size}')})"
        if whole.number == 0:
            kept = self.constant(0, f"u{size}")
        new = self.raw(value, size)
        if place:
            new = f"({new} << {self.constant(place, f'u{size}')})"
        self._kinds.pop(name, None)
        self._store(name, Value(f"({kept} | {new})", f"u{size}"))

    def _store_bit(self, name: str, place: Value, value: Value) -> None:
        whole = self._whole(name)
        kind = f"u{whole.bits}"
        one = self.constant(1, kind)
        by = self.source(self._converted(place, kind), kind)
        new = self.source(self._converted(value, kind), kind)
        raw = self.raw(whole, whole.bits)
        self._store(name, Value(f"(({raw} & ~({one} << {by})) | ({new} << {by}))", kind))

    # Expressions

    def truth(self, value: Value) -> Value:
        """Return whether a value is not 0."""
        if value.kind == "bool":
            return value
        if value.number is not None:
            return known(int(bool(value.number)), "bool")
        return Value(f"({value.code} != {self.constant(0, value.kind)})", "bool")

    def _converted(self, value: Value, kind: str) -> Value:
        """Convert a number to another type; bits of the same width stay as they are."""
        if value.number is not None:
            if value.bits == int(kind[1:]):
                return self._reinterpreted(value, kind)
            return known(float(value.number) if kind[0] == "f" else value.number, kind)
        if value.kind == kind:
            return value
        floats = (value.kind[0] == "f") + (kind[0] == "f")
        if floats == 1 and value.kind != "bool" and value.bits == int(kind[1:]):
            return self.typed(value, kind)
        return Value(self.source(value, kind), kind)

    def value(self, node: Node) -> Value:
        """Return what an expression comes to."""
        match node:
            case ("literal", str() as kind, (int() | float()) as number):
                # A literal may be of one bit or four: what it meets decides.
                return known(number, kind if kind[1:] in {"0", "8", "16", "32", "64"} else "i0")
            case ("name", str() as name):
                return self._name(name)
            case ("type", str() as kind, ("name", str() as name)) if name in _NUMBERS:
                return known(_NUMBERS[name], _container(kind))
            case ("type", str() as kind, tuple() as inner):
                value = self.value(inner)
                if value.number is not None and value.bits == 0 and kind[0] == "f":
                    return known(value.number, _container(kind))
                return self._read(inner, self._narrow(self.typed(value, kind), kind))
            case ("cast", str() as kind, tuple() as inner):
                value = self.value(inner)
                if kind[0] == "b":
                    return self.typed(value, kind)
                return self._converted_number(value, _container(kind))
            case ("slice", tuple() as inner, tuple() as high, tuple() as low):
                return self._slice(self.value(inner), self.value(high), self.value(low))
            case ("index", ("name", str() as name), tuple() as place) if (
                f"{name}#{self.value(place).number}" in self.values or name == "S"
            ):
                number = int(self.value(place).number or 0)
                element = f"{name}#{number}"
                return self.values[element] if element in self.values else self._name(f"S{number}")
            case ("index", ("type", _, ("name", str() as name)), ("name", "laneId")):
                mask = self.masks.get(name) or self.operand(f"{name}[laneId]")
                if mask is None:
                    raise NotModelledError(f"pseudo-code reads {name} by lane")
                return mask
            case ("index", tuple() as inner, tuple() as place):
                return self._bit(self.value(inner), self.value(place))
            case ("unary", str() as operator, tuple() as inner):
                return self._unary(operator, self.value(inner))
            case ("binary", ("==" | "!=") as operator, tuple() as left, ("type", _, right)) if (
                right == ("name", "DENORM")
            ):
                test = self._call("isDENORM", (left,))
                return test if operator == "==" else self._unary("!", test)
            case ("binary", str() as operator, tuple() as left, tuple() as right):
                return self._binary(operator, self.value(left), self.value(right))
            case ("choose", tuple() as condition, tuple() as yes, tuple() as no):
                test = self.truth(self.value(condition))
                if test.number is not None:
                    return self.value(yes if test.number else no)
                first, second, kind = self._common(self.value(yes), self.value(no))
                return Value(f"np.where({test.code}, {first}, {second})", kind)
            case ("concat", tuple() as parts):
                return self._concat(parts)
            case ("call", str() as name, tuple() as arguments):
                return self._call(name, arguments)
        raise NotModelledError(f"pseudo-code has the expression {node[0]!r}")

    def _narrow(self, value: Value, kind: str) -> Value:
        """Return a value whose width no type of numpy has, such as `u24`, within that width."""
        match = _TYPE.match(kind)
        width = int(match[2]) if match else 0
        if not match or width >= value.bits or value.number is not None:
            return value
        if match[1] != "i":
            return Value(
                f"({value.code} & {self.constant((1 << width) - 1, value.kind)})", value.kind
            )
        by = self.constant(value.bits - width, value.kind)
        return Value(f"(({value.code} << {by}) >> {by})", value.kind)

    def _read(self, inner: Node, value: Value) -> Value:
        """Return an operand read as a number: subnormals may count as zero."""
        if value.kind[0] != "f" or inner[0] != "name" or not str(inner[1]).startswith(("S", "D")):
            return value
        flushes = self.operand(f"FLUSH_{value.kind}")
        if flushes is not None and flushes.number:
            return Value(f"a.flush({value.code})", value.kind)
        return value

    def _converted_number(self, value: Value, kind: str) -> Value:
        if value.number is not None:
            if kind == "f32" and value.kind[0] != "f" and value.number >= _INFINITY:
                return self._reinterpreted(known(value.number, "u32"), kind)  # 32'F(0xffc00000)
            number = float(value.number) if kind[0] == "f" else int(value.number)
            return known(number, kind)
        return Value(self.source(value, kind), kind)

    def _name(self, name: str) -> Value:
        if name in self.values:
            return self.values[name]
        if name in _NUMBERS:
            return known(_NUMBERS[name], "f0")
        value = self.operand(name)
        if value is None:
            raise NotModelledError(f"pseudo-code uses {name}")
        return value

    def _slice(self, value: Value, high: Value, low: Value) -> Value:
        if high.number is None or low.number is None:
            raise NotModelledError("pseudo-code reads a computed slice")
        width, place = int(high.number) - int(low.number) + 1, int(low.number)
        if width < 1:
            raise NotModelledError("pseudo-code reads bits in reverse order")
        mask = (1 << width) - 1
        if value.number is not None:
            return known((int(value.number) >> place) & mask, _container(f"u{width}"))
        bits = value.bits
        code = self.raw(value, bits)
        if place:
            code = f"({code} >> {self.constant(place, f'u{bits}')})"
        if width in {8, 16, 32, 64}:
            return self.typed(Value(code, f"u{bits}"), f"u{width}")
        if place + width < bits:
            code = f"({code} & {self.constant(mask, f'u{bits}')})"
        return Value(code, f"u{bits}")

    def _bit(self, value: Value, place: Value) -> Value:
        if value.number is not None and place.number is not None:
            return known((int(value.number) >> int(place.number)) & 1, "bool")
        bits = value.bits or 64
        kind = f"u{bits}"
        by = self.source(self._converted(place, kind), kind)
        raw = self.raw(value, bits)
        return Value(f"((({raw} >> {by}) & {self.constant(1, kind)}) != 0)", "bool")

    def _unary(self, operator: str, value: Value) -> Value:
        if operator == "!":
            value = self.truth(value)
            if value.number is not None:
                return known(int(not value.number), "bool")
            return Value(f"~{value.code}", "bool")
        if operator == "+":
            return value
        if value.number is not None:
            number = -value.number if operator == "-" else ~int(value.number)
            return known(number, value.kind)
        return Value(f"({operator}{value.code})", value.kind)

    def _common(self, left: Value, right: Value) -> tuple[str, str, str]:
        """Return two values in the type that both can take."""
        kinds = [value.kind for value in (left, right) if value.number is None or value.bits]
        if not kinds:
            kind = "f32" if "f" in (left.kind[0], right.kind[0]) else "i32"
        elif all(kind == "bool" for kind in kinds):
            kind = "bool"
        elif floats := [kind for kind in kinds if kind[0] == "f"]:
            kind = max(floats, key=lambda kind: int(kind[1:]))
        elif "f" in (left.kind[0], right.kind[0]):
            kind = "f32"
        else:
            width = max(32 if kind == "bool" else int(kind[1:]) for kind in kinds)
            letter = "u" if any(kind[0] in "ub" for kind in kinds) else "i"
            kind = f"{letter}{width}"
        return self.source(left, kind), self.source(right, kind), kind

    def _binary(self, operator: str, left: Value, right: Value) -> Value:
        if left.number is not None and right.number is not None:
            return self._folded(operator, left, right)
        if operator in {"&&", "||"}:
            first, second = self.truth(left), self.truth(right)
            for mine, other in ((first, second), (second, first)):
                if mine.number is not None:
                    decided = bool(mine.number) == (operator == "||")
                    return known(int(decided), "bool") if decided else other
            return Value(f"({first.code} {operator[0]} {second.code})", "bool")
        if operator in {"<<", ">>"}:
            kind = left.kind if left.bits > 1 else "i32"
            by = self.source(self._converted(right, kind), kind)
            return Value(f"({self.source(left, kind)} {operator} {by})", kind)
        if operator == "**":
            if left.number != 2 or right.kind[0] != "i":
                raise NotModelledError("pseudo-code raises something else than 2 to a power")
            return Value(f"pow2:{right.code}", left.kind)
        if operator == "*" and right.code.startswith("pow2:"):
            exponent = right.code.removeprefix("pow2:")
            return Value(f"a.ldexp({left.code}, {exponent})", left.kind)
        first_code, second_code, kind = self._common(left, right)
        if operator in {"==", "!=", "<>", "<", "<=", ">", ">="}:
            sign = "!=" if operator == "<>" else operator
            return Value(f"({first_code} {sign} {second_code})", "bool")
        if operator == "/" and kind[0] != "f":
            operator = "//"
        if kind == "bool" and operator in {"+", "-", "*"}:
            kind = "u32"
            first_code, second_code = self.source(left, kind), self.source(right, kind)
        return Value(f"({first_code} {operator} {second_code})", kind)

    @staticmethod
    def _folded(operator: str, left: Value, right: Value) -> Value:
        a, b = left.number, right.number
        assert a is not None and b is not None  # noqa: S101,PT018
        kind = left.kind if left.bits >= right.bits else right.kind
        operator = "!=" if operator == "<>" else operator
        if operator in {"==", "!=", "<", "<=", ">", ">=", "&&", "||"}:
            tests = {
                "==": a == b, "!=": a != b, "<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b,
                "&&": bool(a and b), "||": bool(a or b),
            }  # fmt: skip
            return known(int(tests[operator]), "bool")
        if operator == "**":
            return known(a**b, kind)
        if operator in {"+", "-", "*", "/"}:
            divided = 0.0 if b == 0 else (a / b if kind[0] == "f" else a // b)
            return known({"+": a + b, "-": a - b, "*": a * b, "/": divided}[operator], kind)
        i, j = int(a), int(b)
        numbers = {"&": i & j, "|": i | j, "^": i ^ j, "<<": i << (j & 63), ">>": i >> (j & 63)}
        if operator not in numbers:
            raise NotModelledError(f"pseudo-code computes {operator!r} of two constants")
        return known(numbers[operator], kind)

    def _concat(self, parts: Node) -> Value:
        values = [self.value(part) for part in parts if isinstance(part, tuple)]
        total = sum(value.bits for value in values)
        kind = _container(f"u{total}")
        pieces, place = [], total
        for value in values:
            place -= value.bits
            piece = self.raw(value, int(kind[1:]))
            pieces.append(f"({piece} << {self.constant(place, kind)})" if place else piece)
        return Value(f"({' | '.join(pieces)})", kind)

    def _call(self, name: str, nodes: Node) -> Value:
        arguments = [node for node in nodes if isinstance(node, tuple)]
        if name in _WIDTHLESS and arguments[0][0] == "cast":
            inner = arguments[0][2]
            assert isinstance(inner, tuple)  # noqa: S101
            arguments = [inner]
        values = [self.value(node) for node in arguments]
        if name in {"signext", "i4_to_i32", "u4_to_u32"}:
            value = values[0]
            return value if value.number is not None else self._converted_number(value, "i64")
        if name == "signext_from_bit":
            count = self.source(self._converted_number(values[1], "i32"), "i32")
            return Value(f"a.extend({values[0].code}, {count})", values[0].kind)
        if name == "pow":
            return Value(f"np.exp2({values[1].code})", values[1].kind)
        if name == "f32_to_f16":
            mode = self.values.get("ROUND_MODE")
            number = int(mode.number or 0) if mode is not None else 0
            return Value(f"a.f32_to_f16({self.source(values[0], 'f32')}, {number})", "f16")
        base = re.sub(r"(v_(?:min|max|minimum|maximum))3(_num)?_", r"\1\2_", name)
        if base != name and len(values) == 3:
            first = self._apply(base, values[:2])
            return self._apply(base, [first, values[2]])
        return self._apply(name, values)

    def _apply(self, name: str, values: list[Value]) -> Value:
        if name not in _FUNCTIONS:
            raise NotModelledError(f"pseudo-code calls {name}")
        function, result = _FUNCTIONS[name]
        kind = next((value.kind for value in values if value.number is None), values[0].kind)
        sources = [
            self.source(value, kind) if value.number is not None else value.code for value in values
        ]
        if name in {"ldexp", "scaled_fma"}:
            sources[-1] = self.source(values[-1], "i32")
        return Value(f"{function}({', '.join(sources)})", kind if result == "=" else result)


#: Rounding to nearest even, what is too large is infinite, and what is too small is 0.
_NUMBERS: Final = {
    "INF": float("inf"), "NAN": float("nan"), "PI": 3.141592653589793,
    "UNDERFLOW_F32": 0.0, "UNDERFLOW_F64": 0.0,
    "OVERFLOW_F32": float("inf"), "OVERFLOW_F64": float("inf"),
}  # fmt: skip
