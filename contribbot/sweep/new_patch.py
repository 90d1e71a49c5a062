"""Begin a patch from a sweep's finding: a failing check, a reproducer, and a draft of a test."""

from __future__ import annotations

import ast
import json
import re
import textwrap
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import jinja2

from contribbot.errors import UsageError
from contribbot.model.patch import Upstream
from contribbot.queue.load import Queue
from contribbot.queue.new import Draft, Wish, create
from contribbot.sweep.findings import (
    KIND_OF_FAULT,
    Capture,
    CapturedArgument,
    CapturedTensor,
    SweepFinding,
    packed_launch,
    read_launch,
)
from contribbot.sweep.folder import read_sweep

#: The largest number of elements of a storage that a script writes out, and the longest text.
_SMALL: Final = 16
_WIDE: Final = 85
#: The largest number of lines of a script that writes the arguments out.
_LONGEST: Final = 30
#: The values that Triton's AMD back end uses for options that a launch does not state.
_DEFAULTS: Final = {"waves_per_eu": 0, "matrix_instr_nonkdim": 0, "kpack": 1}
_INTEGERS: Final = {"int8": 1, "int16": 2, "int32": 4, "int64": 8, "uint8": 1}
_CHECK: Final = '''\
"""A finding of a sweep, launched again: red on the release, green with the patch."""

from pathlib import Path

from contribbot.sweep.capture import replay
from contribbot.testing import {imports}


def test_{name}() -> None:
    """{kind}: {line}."""
    replay(Path(__file__).with_name("launch.zip"), tree())
{rest}'''
_UNWRITTEN: Final = """\
    unwritten("compare what the launch left with what is right: nobody saw what was expected")
"""
_PROOF: Final = """\
[[emulated]]
name = "finding"
file = "test_finding.py"
targets = {{ targets | tojson }}
expect = "fail-to-pass"
reason = {{ reason | tojson }}
timeout = 600
"""
_SCRIPT: Final = '''\
"""{{ finding.kind }} in {{ kernel }}; to see it, run this under contribbot's emulated GPU."""
{{ imports }}
{{ body }}
'''
#: The script that reads the arguments from the launch's file.
_SHORT: Final = '''\
"""{{ finding.kind }} in {{ kernel }}; to see it, run this under contribbot's emulated GPU."""
import ast
import json
import zipfile

import torch
import triton.language as tl
from {{ told.module }} import {{ kernel }} as kernel

archive = zipfile.ZipFile("checks/launch.zip")
told = json.loads(archive.read("launch.json"))
read = lambda i: archive.read(f"{2 * i}.bin") or told["storages"][i]["size"]  # so many zeros
raw = [bytearray(read(i)) for i in range(len(told["storages"]))]
storages = [torch.frombuffer(each, dtype=torch.uint8).to("cuda") for each in raw]

def value(argument):
    if tensor := argument["tensor"]:
        dtype, layout = getattr(torch, tensor["dtype"]), (tensor["shape"], tensor["strides"])
        if tensor["storage"] < 0: return torch.empty(tensor["shape"], dtype=dtype, device="cuda")
        return storages[tensor["storage"]].view(dtype).as_strided(*layout, tensor["offset"])
    if argument["dtype"]: return tl.dtype(argument["dtype"])
    text = argument["literal"]
    return float(text) if text.lstrip("-") in {"inf", "nan"} else ast.literal_eval(text)

while not hasattr(kernel, "cache_key"): kernel = kernel.fn  # without autotuning
arguments = {each["name"]: value(each) for each in told["arguments"]}
kernel[tuple(told["grid"])](**arguments, **told["options"])
torch.cuda.synchronize()
'''
_TEST: Final = '''\
"""A draft of the upstream's own test: finish it, and move it into the upstream's tests."""
{{ imports }}

def test_{{ name }}() -> None:
    """TODO: what must hold, in the upstream's words."""
    # {{ finding.kind }} at {{ finding.line }}
{{ body | indent(4, first=true) }}
    # TODO: assert what is right; a stray read shows on no GPU by itself.
'''


def create_from(queue: Queue, wish: Wish, place: str) -> Draft:
    """Begin a patch from a finding such as `DIR#7`; UsageError: no finding or captured launch."""
    folder, _, number = place.rpartition("#")
    if not folder or not number.isdigit():
        raise UsageError(f"--from-finding {place}: no finding", hint="name one as DIR#7")
    finding = next(
        (each for each in read_sweep(Path(folder)).findings if each.number == int(number)), None
    )
    if finding is None:
        raise UsageError(
            f"{folder}: no finding {number} in it",
            hint=f"contribbot emulate --report {folder} lists them",
        )
    if not finding.captures:
        why = finding.uncaptured or f"nothing is launched where {finding.kind} is found"
        raise UsageError(
            f"{place}: no launch is captured: {why}",
            hint="write the check by hand: docs/emulate.md",
        )
    name = next(iter(finding.captures.values()))
    path = Path(folder) / "captures" / Path(name).name
    told, blobs = read_launch(path)
    if not wish.title:
        wish = replace(wish, title=f"Fix the {finding.kind} in {told.kernel}")

    def begin(draft: Draft) -> Draft:
        upstream = queue.upstreams[draft.pin.upstream]
        return replace(
            draft,
            problem=_problem(finding),
            proof=_proof(finding),
            files=_files(finding, _in_tree(told, upstream), blobs),
        )

    return create(queue, wish, begin)


def _in_tree(told: Capture, upstream: Upstream) -> Capture:
    """Return a capture with the kernel's path in the upstream's tree."""
    path = "/".join(told.module.split(".")) + ".py"
    roots = [root for root in upstream.python_roots if root != "."]
    known = told.file.endswith(path) and not {"", ".."} & {*told.file.split("/")}
    if known and (not roots or any(told.file.startswith(f"{root}/") for root in roots)):
        return told
    return told.model_copy(update={"file": "/".join([*roots[:1], path])})


def _problem(finding: SweepFinding) -> str:
    targets = ", ".join(finding.targets)
    text = (
        f"{finding.kind} in `{finding.kernel}` at {finding.line}, emulated for {targets} (not run "
        f"on a GPU):\n{finding.said}\nIn {len(finding.tests)} of the upstream's tests, such as "
        f"{finding.tests[0]}."
    )
    return "".join(char if char.isprintable() or char == "\n" else "\ufffd" for char in text)


def _proof(finding: SweepFinding) -> str:
    faults = [fault for fault, kind in KIND_OF_FAULT.items() if kind == finding.kind]
    reason = "^AssertionError: Tensor-likes are not close"
    if faults:
        reason = f"^KernelError: {re.escape(finding.line)}: .*: ({'|'.join(faults)}): "
    return _filled(_PROOF, targets=[*finding.captures], reason=reason)


def _filled(template: str, **names: object) -> str:
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined)  # noqa: S701  no HTML
    environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    return environment.from_string(template).render(names) + "\n"


def _files(finding: SweepFinding, told: Capture, blobs: Sequence[bytes]) -> dict[str, bytes]:
    """Return a patch's files: the check with its launch, the reproducer, a draft of a test."""
    kernel = told.kernel.rpartition(".")[2]
    name = re.sub(r"\W+", "_", kernel.strip("_"))
    lines, files = _storages(told, blobs)
    lines += _launch(told, kernel)
    imports = [
        *(["import zipfile", ""] if files else []),
        "import torch",
        "import triton.language as tl",
        f"from {told.module} import {kernel}",
    ]
    facts = {
        "finding": finding.model_copy(update={"line": _plain(finding.line)}),
        "told": told,
        "kernel": kernel,
        "name": name,
        "imports": "\n".join(imports),
        "body": "\n".join(lines),
    }
    seen = finding.kind != "wrong numbers" or told.expected is not None
    check = _CHECK.format(
        name=name,
        kind=finding.kind.capitalize(),
        line=_plain(finding.line),
        imports="tree" if seen else "tree, unwritten",
        rest="" if seen else _UNWRITTEN,
    )
    script = _filled(_SCRIPT, **facts)
    if script.count("\n") > _LONGEST:
        script = _filled(_SHORT, **facts)
    return {
        "checks/test_finding.py": check.encode(),
        "checks/launch.zip": packed_launch(told, blobs),
        "reproduce.py": script.encode(),
        f"draft_test_{name}.py": _filled(_TEST, **facts).encode(),
    }


def _plain(text: str) -> str:
    """Return a text with `?` for characters that could end a docstring."""
    return re.sub(r"[^\w .:/,()+-]", "?", text)


def _storages(told: Capture, blobs: Sequence[bytes]) -> tuple[list[str], bool]:
    """Return the lines that make a capture's storages, and whether a line reads `launch.zip`."""
    lines, read = list[str](), False
    for number, storage in enumerate(told.storages):
        raw = blobs[2 * number]
        dtypes = {
            each.tensor.dtype
            for each in told.arguments
            if each.tensor and each.tensor.storage == number
        }
        dtype = dtypes.pop() if len(dtypes) == 1 else "uint8"
        size = _INTEGERS.get(dtype, 0)
        if storage.zero or not any(raw):
            made = f"torch.zeros({storage.size}, dtype=torch.uint8)"
        elif size and len(raw) <= _SMALL * size and len(raw) % size == 0:
            numbers = [
                int.from_bytes(raw[at : at + size], "little", signed=dtype != "uint8")
                for at in range(0, len(raw), size)
            ]
            made = f"torch.tensor({numbers}, dtype=torch.{dtype})"
        else:
            made = ""
        if not made or len(made) > _WIDE:
            read = True
            made = f'torch.frombuffer(bytearray(raw("{2 * number}.bin")), dtype=torch.uint8)'
        lines.append(f's{number} = {made}.to("cuda")')
    if read:
        lines.insert(0, 'raw = zipfile.ZipFile("checks/launch.zip").read')
    return lines, read


def _launch(told: Capture, kernel: str) -> list[str]:
    """Return the lines of a script that call the kernel, as few lines as possible."""
    words = [f"{each.name}={_expression(each)}" for each in told.arguments]
    words += [
        f"{name}={value}" for name, value in told.options.items() if _DEFAULTS.get(name) != value
    ]
    text = textwrap.wrap(
        ", ".join(word.replace(" ", "\0") for word in words),
        96,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [
        "view = lambda storage, dtype, *layout: storage.view(dtype).as_strided(*layout)",
        f"kernel = {kernel}",
        'while not hasattr(kernel, "cache_key"): kernel = kernel.fn  # without autotuning',
        f"kernel[{told.grid}](",
        *(f"    {line}" for line in "\n".join(text).replace("\0", " ").split("\n")),
        ")",
        "torch.cuda.synchronize()",
    ]


def _expression(argument: CapturedArgument) -> str:
    if argument.tensor is not None:
        return _view(argument.tensor)
    if argument.dtype:
        return f"tl.dtype({argument.dtype!r})"
    if argument.literal.lstrip("-") in {"inf", "nan"}:
        return f"float({argument.literal!r})"
    try:
        return repr(ast.literal_eval(argument.literal))  # the text must be a literal
    except (ValueError, SyntaxError) as error:
        raise UsageError(
            f"{argument.name} of the captured launch is no literal",
            hint="sweep again into a new folder",
        ) from error


def _view(tensor: CapturedTensor) -> str:
    if tensor.storage < 0:
        return f'torch.empty({tensor.shape}, dtype=torch.{tensor.dtype}, device="cuda")'
    return (
        f"view(s{tensor.storage}, torch.{tensor.dtype}, {tensor.shape}, {tensor.strides}, "
        f"{tensor.offset})"
    )
