"""Compile Triton kernels for AMD targets, without a GPU and without ROCm."""

from __future__ import annotations

import base64
import contextlib
import importlib.util
import json
import os
import re
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Unpack

from pydantic import JsonValue, ValidationError

from contribbot import process
from contribbot.compile.cache import CachedBuild, Compiled, CompileError, json_digest, make_product
from contribbot.compile.hip import Compiler, CompilerCall, raise_for_machine
from contribbot.compile.toolchain import INSTALL, Lack, Toolchain, triton_version, wave_size
from contribbot.errors import CommandError, MachineError
from contribbot.model.base import Model

#: A compile imports at most about this many modules of the tree for real.
_MOST_REAL: Final = 30
#: From this release on, triton writes names of targets that older clangs cannot read
#: ("amdgpu9.42-amd-amdhsa-unknown-gfx942"; tried with clang 19 and 22).
_NEW_NAMES: Final = (3, 9)
_READS_THEM: Final = 23  # the oldest clang that can read them
#: The folder of packages in a cached release of triton.
_SITE: Final = "site"
_PIP: Final = (
    *("--quiet", "--disable-pip-version-check", "--no-input"),
    *("--no-deps", "--only-binary", ":all:"),
)
_SECONDS: Final = 3600.0
_CHILD: Final = Path(__file__).with_name("triton_child.py")
#: Errors of triton: an unknown target, no AMD back end, and the first error of a pass.
_UNKNOWN: Final = re.compile(r"unsupported target: '[^']*'")
_NO_AMD: Final = re.compile(r"\b0 compatible backends for target")
_FIRST_ERROR: Final = re.compile(r"error: (.+)")


class _Answer(Model):
    """The child process's answer: the compiled code, or the exception and its kind."""

    listing: str = ""
    code_object: str = ""  # encoded in base64
    shared: int = 0  # the bytes of shared memory that a launch adds
    error: str = ""
    broken: bool = False  # whether the file cannot be imported
    failed_pass: bool = False
    needs: tuple[str, ...] = ()  # modules of the tree that must be imported for real


@dataclass(frozen=True)
class TritonSource:
    """A Triton kernel and the options to compile it; `python`: folders for PYTHONPATH."""

    path: Path
    function: str
    signature: Mapping[str, str]
    constants: Mapping[str, JsonValue]
    num_warps: int
    python: Sequence[Path]
    num_stages: int | None = None  # the stages of a loop's pipeline; None: the target's default
    #: The tree, whose other modules are replaced by stand-ins; None: a normal import.
    tree: Path | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    version: str = ""  # triton's version; empty: the installed version


def triton_missing() -> Lack | None:
    """Return a lack if triton is not installed; else None."""
    if importlib.util.find_spec("triton") is None:
        return Lack(what="triton is not installed", line=INSTALL)
    return None


def triton_unread(using: Toolchain, version: str = "") -> Lack | None:
    """Return a lack if a compiler cannot read the LLVM IR of this Triton; else None."""
    release = re.match(r"(\d+)\.(\d+)", version or triton_version())
    newer = release is not None and (int(release[1]), int(release[2])) >= _NEW_NAMES
    if not newer or using.kind == "rocm" or int(using.version.partition(".")[0]) >= _READS_THEM:
        return None
    oldest = ".".join(map(str, _NEW_NAMES))
    return Lack(
        what=f"{triton_name(version)} writes code that {using.name} cannot read back",
        line=f"python -m pip install 'triton<{oldest}'",
    )


def triton_name(version: str = "") -> str:
    """Return `triton VERSION`, by default with the installed version."""
    return f"triton {version or triton_version()}"


def bring_triton(version: str) -> tuple[Path, ...]:
    """Return a triton release's PYTHONPATH folders; pip downloads the release; empty: installed."""
    if version in {"", triton_version()}:
        return ()

    def bring(folder: Path) -> CachedBuild:
        # The constraints of this environment do not apply to the new folder.
        env = {**process.user_environment()}
        env.pop("PIP_CONSTRAINT", None)
        place = folder / _SITE
        argv = [sys.executable, "-m", "pip", "install", *_PIP, "--target", str(place)]
        try:
            process.run([*argv, f"triton=={version}"], env=env, timeout=_SECONDS, tethered=True)
        except CommandError as error:
            last = error.stderr.strip().rpartition("\n")[2]
            raise MachineError(
                f"triton {version}: pip does not bring it: {last}",
                hint="check the network, and the indexes in `pip config list`",
            ) from error
        return CachedBuild(0.0, log="", python=(_SITE,))

    python = f"{sys.implementation.cache_tag} {sysconfig.get_platform()}"
    product = make_product(json_digest(["triton", version, python]), bring)
    if product is None:
        raise MachineError(f"triton {version}: pip's files have changed", hint="try again")
    return (product.folder / _SITE,)


def triton_code_object(
    source: TritonSource, target: str, **call: Unpack[CompilerCall]
) -> tuple[bytes, int]:
    """Compile a kernel for a target; return the code object and a launch's extra LDS bytes."""
    compiler, done, answer = _compiled(source, target, **call)
    answered = _listing(compiler, done, answer, source.version)
    return base64.b64decode(answered.code_object), answered.shared


def compile_triton(source: TritonSource, target: str, **call: Unpack[CompilerCall]) -> Compiled:
    """Compile a kernel for a target; return the result, with a listing or with the failure."""
    compiler, done, answer = _compiled(source, target, **call)
    try:
        return compiler.read(_listing(compiler, done, answer, source.version).listing.encode())
    except CompileError as failure:
        return compiler.result(failure)


def _compiled(
    source: TritonSource, target: str, **call: Unpack[CompilerCall]
) -> tuple[Compiler, process.Supervised, _Answer]:
    """Compile a kernel in a child process; return compiler, process result and answer."""
    compiler, folder = Compiler(target=target, **call), call["folder"]
    options = {"num_warps": source.num_warps}
    if source.num_stages is not None:
        options["num_stages"] = source.num_stages
    asked = {
        "file": str(source.path),
        "function": source.function,
        "target": target,
        "signature": dict(source.signature),
        "constants": dict(source.constants),
        "options": options,
        "wavefront": wave_size(target),
    }
    request, answer = folder / "request.json", folder / "answer.json"
    try:
        brought = bring_triton(source.version)
    except MachineError as error:
        raise CompileError(missing=error.message) from error
    path = [*map(str, (*brought, *source.python)), process.own_path()]
    # The child process gets none of the user's environment variables.
    environment = {
        **source.env,
        "HOME": str(folder),
        "TMPDIR": str(folder),
        "TRITON_CACHE_DIR": str(folder / "triton"),
        "PYTHONPATH": os.pathsep.join(filter(None, path)),
        "OMP_NUM_THREADS": "1",
    }
    if source.tree is not None:
        environment |= {"CONTRIBBOT_TREE": str(source.tree), "CONTRIBBOT_DEVICE": target}
    real: list[str] = []
    while True:
        request.write_text(json.dumps({**asked, "real": real}), encoding="utf-8")
        done = process.supervise(
            # -P: modules in the script's folder must not hide modules of triton or the tree.
            [sys.executable, "-B", "-P", _CHILD, request, answer],
            cwd=folder,
            timeout=compiler.timeout,
            env=process.clean_environment(environment),
        )
        answered = _Answer()
        with contextlib.suppress(OSError, ValidationError):  # the process may end without one
            answered = _Answer.model_validate_json(answer.read_bytes())
        more = {*answered.needs} - {*real}
        if not more or len(real) > _MOST_REAL:
            break
        real += sorted(more)
        answer.unlink()
    compiler.seconds = done.seconds
    compiler.command = compiler.scrub(
        f"triton.compile({source.function} of {source.path}, "
        f'GPUTarget("hip", "{target}", {wave_size(target)}), '
        f"{', '.join(f'{name}={value}' for name, value in options.items())})"
    )
    return compiler, done, answered


def _listing(
    compiler: Compiler, done: process.Supervised, answer: _Answer, version: str
) -> _Answer:
    """Return the child process's answer if the answer has a listing; else raise CompileError."""
    if answer.listing:
        return answer
    output, name = done.output.decode("utf-8", "replace"), triton_name(version)
    error = compiler.scrub(answer.error)
    raise_for_machine(done, error or output, name, compiler.timeout)
    if not error:
        last = "".join(output.strip().splitlines()[-1:])
        killed = f"killed by signal {-done.returncode}"
        how = killed if done.returncode < 0 else f"exit status {done.returncode}: {last}"
        raise CompileError(crashed=f"{name}: {how}")
    missing = f"the file cannot be imported here: {error}" if answer.broken else ""
    if _UNKNOWN.search(f"{error}\n{output}"):
        missing = f"{name} does not know {compiler.target}"
    elif _NO_AMD.search(error):
        missing = f"{name} has no back end for AMD: pip install --force-reinstall triton"
    # The exception of a failed pass has no reason; standard error has the reason.
    elif answer.failed_pass and (first := _FIRST_ERROR.search(output)):
        error = f"{error}: {compiler.scrub(first[1])}"
    raise CompileError(error=error, missing=missing)
