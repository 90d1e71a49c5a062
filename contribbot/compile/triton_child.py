"""A script that compiles a Triton kernel for an AMD target: `triton_child.py REQUEST ANSWER`."""

from __future__ import annotations

import base64
import functools
import importlib
import importlib.util
import json
import os
import sys
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Protocol

from contribbot.testing import TESTED, StandIn, StandInError, StandInModule, import_file

_LONGEST = 2000
_DEEPEST = 20


def _load(path: Path, real: list[str]) -> ModuleType:
    """Import a file by path, as an import by name would import the file's whole package."""
    if tree := os.environ.get("CONTRIBBOT_TREE"):
        return import_file(str(path.relative_to(tree)), real=real)
    spec = importlib.util.spec_from_file_location(f"compiled_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path.name}: not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


class _Kernel(Protocol):
    """The attributes of triton's JITFunction that this script uses."""

    fn: FunctionType


class _NeedsError(Exception):
    """A kernel uses stand-ins of modules, listed in `args[0]`, and needs the real modules."""


def _stand_ins(kernel: _Kernel, kind: type[_Kernel]) -> list[str]:
    """Return the tree's modules whose stand-ins a kernel or a called kernel uses."""
    found, kernels = [], [kernel]
    for caller in kernels:
        for name in caller.fn.__code__.co_names:
            used = caller.fn.__globals__.get(name)
            if isinstance(used, kind) and used not in kernels:
                kernels.append(used)
            module = used.module if isinstance(used, StandIn) else ""
            module = used.__name__ if isinstance(used, StandInModule) else module
            if module.partition(".")[0] in TESTED:
                found.append(module)
    return found


def _compile(request: dict[str, object], module: ModuleType) -> dict[str, object]:
    # Imported by name, so that a failure is reported, and because triton has no types.
    triton = importlib.import_module("triton")
    target_kind = importlib.import_module("triton.backends.compiler").GPUTarget
    source_kind = importlib.import_module("triton.compiler").ASTSource
    kernel_kind = importlib.import_module("triton.runtime.jit").JITFunction

    name = str(request["function"])
    kernel = functools.reduce(getattr, name.split("."), module)
    # Autotuners and heuristics wrap the JIT function.
    while not isinstance(kernel, kernel_kind):
        if not hasattr(kernel, "fn"):
            raise TypeError(f"{name} is no function under triton.jit")
        kernel = kernel.fn
    if needs := _stand_ins(kernel, kernel_kind):
        raise _NeedsError(needs)
    signature, attributes = {}, {}
    stated, constants = request["signature"], request["constants"]
    assert isinstance(stated, dict)  # noqa: S101  contribbot wrote the request
    assert isinstance(constants, dict)  # noqa: S101
    for parameter in (*stated, *constants):
        if parameter not in kernel.arg_names:
            # Triton would ignore an unknown parameter in a signature.
            raise TypeError(f"{name} has no parameter {parameter}")
    plain = [each.name for each in kernel.params if each.is_constexpr]
    stated = {**dict.fromkeys(plain, "constexpr"), **stated}
    if lacking := [name for name in kernel.arg_names if name not in stated]:
        raise TypeError(
            f"{name}: the signature has no type for {', '.join(lacking)}; `contribbot check NAME` "
            "prints the signature of what a check of [[emulated]] without `compile` launches"
        )
    for place, parameter in enumerate(kernel.arg_names):
        kind, _, multiple = str(stated[parameter]).partition(":")
        signature[parameter] = kind
        if multiple:
            attributes[place,] = [["tt.divisibility", int(multiple)]]
    constants = {name: _constant(value) for name, value in constants.items()}
    source = source_kind(kernel, signature, constants, attributes)
    target = target_kind("hip", request["target"], request["wavefront"])
    compiled = triton.compile(source, target=target, options=request["options"])
    # The listing does not count the shared memory that a launch adds.
    return {
        "listing": str(compiled.asm["amdgcn"]),
        "code_object": base64.b64encode(compiled.asm["hsaco"]).decode(),
        "shared": int(compiled.metadata.shared),
    }


def _constant(value: object) -> object:
    """Return a constant's value; a text such as `tl.float32` names one of triton's types."""
    if isinstance(value, str) and value.startswith("tl."):
        return getattr(importlib.import_module("triton.language"), value.removeprefix("tl."))
    return value


def _one_line(error: BaseException) -> str:
    """Return an error and its causes in one line, as triton wraps an error at each level."""
    chain = [error]
    while (cause := chain[-1].__cause__) is not None and len(chain) < _DEEPEST:
        chain.append(cause)
    lines = (" ".join(f"{type(link).__name__}: {link}".split()) for link in reversed(chain))
    return " <- ".join(lines)


def _answer(request: dict[str, object]) -> dict[str, object]:
    module, real = None, request["real"]
    assert isinstance(real, list)  # noqa: S101  contribbot wrote the request
    try:
        module = _load(Path(str(request["file"])), real)
        return _compile(request, module)
    except _NeedsError as error:
        return {"error": "the kernel uses a stand-in", "broken": True, "needs": error.args[0]}
    except StandInError as error:
        needs = [error.module] if error.module.partition(".")[0] in TESTED else []
        return {"error": str(error)[:_LONGEST], "broken": True, "needs": needs}
    except Exception as error:  # noqa: BLE001  any error is an answer
        return {
            "error": _one_line(error)[:_LONGEST],
            "broken": isinstance(error, ImportError)
            or (module is None and isinstance(error, FileNotFoundError)),
            "failed_pass": isinstance(error, RuntimeError),
        }


def main() -> None:
    """Read a JSON request from one file, compile, and write a JSON answer to another file."""
    request, answer = map(Path, sys.argv[1:])
    document = _answer(json.loads(request.read_text(encoding="utf-8")))
    answer.write_text(json.dumps(document), encoding="utf-8")


if __name__ == "__main__":
    main()
