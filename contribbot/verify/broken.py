"""What an exception says of the check and of the machine, rather than of what is tested."""

from __future__ import annotations

import enum
import errno
import os
import re
import socket
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Final

#: A shell's status for a program that is not there.
_NOT_FOUND: Final = 127
#: What Python, a shell and the loader of shared libraries say, also in a child process whose
#: output is quoted.
_NOT_LOADED: Final = re.compile(
    r"(?:^|\\n|^AssertionError: )(?:ModuleNotFoundError|ImportError|SyntaxError): "
    r"|cannot open shared object file|undefined symbol: |invalid ELF header"
    r"|version `\S+' not found|Exec format error"
    r"|where (?:127 = CompletedProcess\(|32512 = <built-in function system>)",
    re.MULTILINE,
)
_NO_MEMORY: Final = re.compile(
    r"(?:CUDA|HIP)(?: error:)? out of memory|hipErrorOutOfMemory"
    r"|Triton Error \[(?:CUDA|HIP)\]: .*out of memory|(?:CU|HIP)BLAS_STATUS_ALLOC_FAILED"
    r"|\[Errno 12\] Cannot allocate memory|out of shared memory"
    r"|DefaultCPUAllocator: (?:not enough|can't allocate) memory"
)
#: What the CUDA and HIP runtimes say of a GPU that is not there (any more), or is broken.
_NO_DEVICE: Final = re.compile(
    r"no (?:CUDA|ROCm)-capable device|[Nn]o (?:CUDA|HIP) GPUs are available"
    r"|device\(s\) is/are busy or unavailable|device is unavailable"
    r"|uncorrectable ECC error|GPU is lost|(?:cuda|hip)ErrorNoDevice"
    r"|(?:CUDA|HIP) driver (?:initialization failed|version is insufficient)"
)
#: pytest's words for a coroutine that no plugin runs.
_ASYNC: Final = "async def functions are not natively supported"


class Broken(enum.StrEnum):
    """Why a failure shows nothing of what its check claims."""

    #: The check's own mistake, or what it needs is not here.
    CHECK = "check"
    #: The tree imports what is not installed here.
    IMPORTS = "imports"
    #: The tree imports a name that its own module does not have.
    OWN_IMPORT = "own import"
    NETWORK = "network"
    READ_ONLY = "read-only"


def machine_fault(error: BaseException) -> str:
    """Say what the machine, not the code, could not do: `memory`, `device`; or nothing.

    torch names the one by a type and by words, the other by the words of the runtime
    below (CUDA, HIP) alone.
    """
    names = {base.__name__ for base in type(error).__mro__}
    if names & {"MemoryError", "OutOfMemoryError"} or _NO_MEMORY.search(str(error)):
        return "memory"
    return "device" if _NO_DEVICE.search(str(error)) else ""


def why_broken(error: BaseException, checks: str, trees: Sequence[str]) -> Broken | None:
    """Say why an exception shows nothing, by it and by what it was raised for; None: it does.

    `checks` is the folder of the checks, in one that the run may write to; `trees` are the
    tree's folders.
    """
    kinds = (_kind(origin, checks, trees) for origin in _origins(error))
    return next((kind for kind in kinds if kind), None)


def _origins(error: BaseException) -> Iterator[BaseException]:
    yield error
    for inner in error.exceptions if isinstance(error, BaseExceptionGroup) else ():
        yield from _origins(inner)
    before = error.__cause__
    if before is None and error.__context__ is not None and _translates(error, error.__context__):
        before = error.__context__
    if before is not None:
        yield from _origins(before)


def _translates(error: BaseException, caught: BaseException) -> bool:
    """Say whether a handler itself raised an error in place of the one that it caught.

    What fails in a fallback that the handler calls has the same context, and is another matter.
    """
    handler = caught.__traceback__.tb_frame if caught.__traceback__ else None
    raised = [frame for frame in _frames(error) if not frame.f_locals.get("__tracebackhide__")]
    return not isinstance(error, AssertionError) and raised[-1:] == [handler]


def _kind(error: BaseException, checks: str, trees: Sequence[str]) -> Broken | None:
    number = error.errno if isinstance(error, OSError) else None
    if isinstance(error, ImportError):
        by = next((folder for folder in _files(error) if _is_inside(folder, [checks, *trees])), "")
        if not _is_inside(by, trees):
            return Broken.CHECK
        own = type(error) is ImportError and _is_inside(error.path or "", trees)
        return Broken.OWN_IMPORT if own else Broken.IMPORTS
    if isinstance(error, socket.gaierror) or number in {errno.ENETUNREACH, errno.EHOSTUNREACH}:
        return Broken.NETWORK
    if number == errno.EROFS or (
        isinstance(error, PermissionError)
        and not _is_inside(_path(error), [str(Path(checks).parent)])
    ):
        return Broken.READ_ONLY
    own_mistake = (
        isinstance(error, SyntaxError | FileNotFoundError)
        or (isinstance(error, NameError) and _is_inside(next(_files(error), ""), [checks]))
        or type(error).__name__ == "FixtureLookupError"
        or _ASYNC in str(error)
        or getattr(error, "contribbot_broken", False) is True  # a library for checks says so
    )
    return Broken.CHECK if own_mistake or _not_loaded(error) else None


def _frames(error: BaseException) -> list[FrameType]:
    return [frame for frame, _ in traceback.walk_tb(error.__traceback__)]


def _files(error: BaseException) -> Iterator[str]:
    """Yield the files that an error came through, from where it was raised outwards."""
    return (frame.f_code.co_filename for frame in reversed(_frames(error)))


def _path(error: OSError) -> str:
    name = error.filename
    return str(Path.cwd() / os.fsdecode(name)) if isinstance(name, str | bytes) else str(Path.cwd())


def _is_inside(path: str, folders: Sequence[str]) -> bool:
    return any(Path(path).is_relative_to(folder) for folder in folders)


def _not_loaded(error: BaseException) -> bool:
    """Say whether a program was not found, or something is not there for it to import or load."""
    if type(error).__name__ == "CalledProcessError":
        said = getattr(error, "stderr", None) or getattr(error, "output", None) or b""
        text = said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)
        return getattr(error, "returncode", 0) == _NOT_FOUND or bool(_NOT_LOADED.search(text))
    return bool(_NOT_LOADED.search(f"{type(error).__name__}: {error}"))
