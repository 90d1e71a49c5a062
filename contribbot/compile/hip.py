"""Compile HIP C++ to a listing or a code object; no AMD GPU is needed."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import re
import shlex
import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NotRequired, TypedDict, Unpack

from pydantic import ValidationError

from contribbot import process
from contribbot.compile.cache import Compiled, CompileError, compile_cache, json_digest
from contribbot.compile.listing import read_listing, read_object, without_facts
from contribbot.compile.toolchain import HEADERS, INSTALL, Toolchain, device_library
from contribbot.files import folder_digest, used, write_atomically

_FULL_DISK: Final = re.compile(r"No space left on device", re.IGNORECASE)
#: Messages of clang's driver or of programs about a killed compiler or a lack of memory.
_NO_MEMORY: Final = re.compile(
    r"unable to execute command: Killed|LLVM ERROR: out of memory|std::bad_alloc"
    r"|[Cc]annot allocate memory|^MemoryError\b",
    re.MULTILINE,
)
_ERROR: Final = re.compile(r"^(?P<place>[^\n]*?):? ?\b(?:fatal )?error: .*$", re.MULTILINE)
#: Messages of clang's driver about a crash of the compiler.
_CRASH: Final = re.compile(
    r"fatal error: error in backend: (?P<back>.+)|clang frontend command failed|"
    r"PLEASE submit a bug report|unable to execute command: (?P<how>.+)"
)
#: The exit status for a program that does not exist (POSIX shells, and os.spawnvp).
_NOT_STARTED: Final = 127
#: Prefixes of variables by which clang finds ROCm; they are removed, as options say the same.
_STEERING: Final = ("HIP_", "ROCM_")
#: Messages about missing headers of torch, and of ROCm, that have no stand-in.
_TORCH_HEADER: Final = re.compile(
    r"fatal error: '(torch/(?:csrc|headeronly)/[^']+)' file not found"
)
_ROCM_HEADER: Final = re.compile(
    r"fatal error: '((?:hip|hipblas|hipblaslt|hipcub|hipdnn|hipfft|hiprand|hipsolver|hipsparse"
    r"|rccl|rocblas|rocfft|rocprim|rocrand|rocsolver|rocthrust|rocwmma|thrust|ck|ck_tile"
    r"|ATen/hip|c10/hip)/[^']+)' file not found"
)
#: Prefixes of functions in ROCm's device library (ROCm/llvm-project, amd/device-libs/doc).
_LIBRARY: Final = ("__ocml_", "__ockl_")
#: Constants that the library's functions read. ROCm has them in oclc_*.bc; triton's wheel lacks
#: these files. The values are clang's defaults for HIP (RocmInstallation-
#: Detector::getCommonBitcodeLibs); for meanings see amd/device-libs/doc/OCML.md, "Controls". No
#: function distinguishes code object version 5 from 6.
_CONTROLS: Final = {
    "finite_only_opt": 0,
    "unsafe_math_opt": 0,
    "daz_opt": 0,
    "correctly_rounded_sqrt32": 1,
    "wavefrontsize64": 0,
    "ISA_version": 0,
    "ABI_version": 500,
}
LISTING: Final = "listing.s"
_ASSEMBLER: Final = re.compile(r'^ (".+" "-cc1as" .+)$', re.MULTILINE)


#: Line markers of the preprocessor, and empty lines, which are removed before a digest: a changed
#: folder or comment does not change the digest.
_MARKER = re.compile(rb"^(?:# ?(?:\d+|line) .*)?[ \t]*\n", re.MULTILINE)
_guards: dict[str, threading.Lock] = {}


@dataclass(frozen=True)
class HipSource:
    """A HIP source file and the options to compile it."""

    path: Path
    include: tuple[Path, ...]
    defines: tuple[str, ...]  # macros, as `NAME` or `NAME=VALUE`; `!NAME` undefines a macro
    standard: str
    torch: bool  # whether the source needs torch's headers
    folders: tuple[Path, ...]  # the tree's folders, whose paths must not change the code


def torch_include() -> Path | None:
    """Return torch's include folder, without importing torch; None: no such folder."""
    spec = importlib.util.find_spec("torch")
    for place in (spec.submodule_search_locations or ()) if spec is not None else ():
        include = Path(place) / "include"
        if (include / "torch").is_dir():
            return include
    return None


def headers_digest() -> str:
    """Return the SHA-256 of contribbot's stand-in headers, in hexadecimal."""
    return folder_digest(HEADERS)


class CompilerCall(TypedDict):
    """Arguments of each compile; `scrub` is a function that removes paths from texts."""

    using: Toolchain
    folder: Path
    timeout: float
    scrub: NotRequired[Callable[[str], str]]


def compile_hip(source: HipSource, target: str, **call: Unpack[CompilerCall]) -> Compiled:
    """Compile a source for a target; return the result, with a listing or with the failure."""
    compiler, using, torch = Compiler(target=target, **call), call["using"], torch_include()
    scrub = compiler.scrub
    named = [(str(HEADERS), "<stand-ins>"), *using.folders]
    named += [(str(torch), "<torch>/include")] if torch is not None else []

    def scrub_headers(text: str) -> str:
        # Replace the paths of header folders by fixed names.
        for place, placeholder in named:
            text = text.replace(place, placeholder)
        return scrub(text)

    arguments = _arguments(source, target, using, torch if source.torch else None)
    words = (*using.command, *arguments, "-S", str(source.path))
    command = [scrub_headers(word) for word in words]
    compiler.scrub, compiler.command = scrub_headers, process.describe(command)

    def make(*how: str) -> bytes:
        return compiler.run([*using.argv, *arguments, *how, "-o", compiler.output, source.path])

    library = device_library(using)
    try:
        source_digest = hashlib.sha256(_MARKER.sub(b"", make("-E"))).hexdigest()
        # Older code of this package may have read listings in another way.
        own = folder_digest(Path(__file__).parent, ".py")
        words = (*command, library.name if library else "", using.identity, own)
        key = json_digest([source_digest, *words])
        file = compile_cache().folder / key[:2] / f"{key}.json"
        # An equal compile waits for the first one.
        with _guards.setdefault(key, threading.Lock()):
            with contextlib.suppress(OSError, ValidationError):
                known = Compiled.model_validate_json(file.read_bytes())
                used(file)
                return known.model_copy(update={"cached": True, "command": compiler.command})
            listing = make("-S")
            try:
                result = compiler.read_linked(listing, make)
            except CompileError:
                # If inline assembly is wrong, a compile to an object names the source's line.
                make("-S", "-Xclang", "-emit-obj")
                raise
            # Only success is cached: errors name lines, which a comment moves, and come quickly.
            write_atomically(file, result.model_dump_json().encode())
            return result
    except CompileError as failure:
        return compiler.result(failure)


def _arguments(source: HipSource, target: str, using: Toolchain, torch: Path | None) -> list[str]:
    """Return the compiler's options, without the options for input and output."""
    system: Sequence[Path] = ()
    if torch is not None:
        system = (HEADERS / "torch_cpu", torch, torch / "torch/csrc/api/include")
    fixed = f"-x hip --cuda-device-only --offload-arch={target} -std={source.standard} -O3"
    return [
        *fixed.split(),
        "-D__HIP_PLATFORM_AMD__",
        *(f"-U{macro[1:]}" if macro[0] == "!" else f"-D{macro}" for macro in source.defines),
        *(f"-I{root}" for root in source.include),
        *using.flags,
        *(word for root in system for word in ("-isystem", str(root))),
        # __FILE__ must not bring the folder's path into the code.
        *(f"-ffile-prefix-map={folder}=." for folder in source.folders),
        *["-w", "-ferror-limit=1", "-fno-color-diagnostics", "-fno-caret-diagnostics"],
    ]


def code_object(source: HipSource, target: str, **call: Unpack[CompilerCall]) -> tuple[bytes, str]:
    """Return a source's code object with line table, and the linked device library's name."""
    using = call["using"]
    arguments = _arguments(source, target, using, torch_include() if source.torch else None)
    compiler = Compiler(target=target, **call)
    # Equal code must give equal bytes, whatever the source's folder.
    lines = ["-gline-tables-only", "-fdebug-compilation-dir=.", "-fuse-cuid=none"]

    def make(*how: str) -> bytes:
        written = "-o", compiler.output, source.path
        return compiler.run([*using.argv, *arguments, *lines, *how, *written])

    library, assembled = "", compiler.assemble(make("-S"))
    if called := library_calls(read_object(assembled)[1]):
        listing, library = compiler.with_library(make, called)
        assembled = compiler.assemble(listing)
    return compiler.link(assembled), library


def library_calls(symbols: Collection[str]) -> list[str]:
    """Return, sorted, the symbols that AMD's device library defines."""
    return sorted(symbol for symbol in symbols if symbol.startswith(_LIBRARY))


class NoLibraryError(CompileError):
    """There is no device library, or the compiler's LLVM cannot read the library."""


@dataclass
class Compiler:
    """Runs a toolchain's compiler, assembler and linker for one source, in a private folder."""

    using: Toolchain
    target: str
    folder: Path
    timeout: float
    scrub: Callable[[str], str] = str
    command: str = ""  # the compiler's command line, for a record
    seconds: float = 0.0  # the run time of all programs so far

    @property
    def output(self) -> Path:
        """The file that each program writes."""
        return self.folder / "output"

    def result(self, failure: CompileError) -> Compiled:
        """Return the result of a failed compile, with command and time."""
        facts = {"command": self.command, "seconds": self.seconds}
        return failure.result.model_copy(update=facts)

    def run(self, argv: Sequence[str | Path]) -> bytes:
        """Run a program; return the content of `output`."""
        self._supervised(argv)
        try:
            written = self.output.read_bytes()
            # The output, such as a preprocessed source, may be large, and is not needed again.
            self.output.unlink()
        except FileNotFoundError:
            raise CompileError(crashed=f"{self.using.name} wrote nothing") from None
        return written

    def read(self, listing: bytes) -> Compiled:
        """Assemble a listing; return the result with the kernels of listing and object file."""
        text = listing.decode("utf-8", "replace")
        try:
            assemble = self._assembler(without_facts(text))
            content = self.run(assemble)
            encodings = self.run([*assemble, "-filetype", "asm", "-show-encoding"])
            kernels = read_listing(text, encodings.decode("utf-8", "replace"), content)
        except (CompileError, ValueError, LookupError) as failure:
            if isinstance(failure, CompileError) and not failure.result.error:
                raise
            unread = f"{self.using.name} cannot read the code back: {failure}"
            raise CompileError(missing=unread) from failure
        (self.folder / LISTING).write_text(text, encoding="utf-8")
        log = hashlib.sha256(text.encode()).hexdigest()
        return Compiled(listing=kernels, log=log, command=self.command, seconds=self.seconds)

    def read_linked(self, listing: bytes, make: Callable[..., bytes]) -> Compiled:
        """Read a listing; if the code calls the device library, link the library and read again."""
        result = self.read(listing)
        called = library_calls(result.listing.unresolved) if result.listing else ()
        if not called:
            return result
        try:
            listing, library = self.with_library(make, called)
        except NoLibraryError:
            return result
        return self.read(listing).model_copy(update={"library": library})

    def with_library(
        self, make: Callable[..., bytes], called: Collection[str]
    ) -> tuple[bytes, str]:
        """Return the listing with the device library linked in, and the library's name."""
        library = device_library(self.using)
        if library is None:
            why = f"no ocml.bc and ockl.bc are here: {INSTALL}"
        else:
            try:
                linked = replace(library, files=(*library.files, self._controls()))
                return make("-S", *linked.options), library.name
            except CompileError as failure:
                if failure.result.missing:
                    raise
                # The source compiles without the library, so the bitcode is of a newer LLVM.
                why = f"{self.using.name} cannot read {library.name} ({failure}): install ROCm"
        raise NoLibraryError(missing=f"calls {', '.join(called)} of ROCm's device library: {why}")

    def _controls(self) -> Path:
        """Return a new bitcode file with the constants that the device library reads."""
        # gfx90a is 9.0.10: major, minor and stepping; the last two are hexadecimal digits.
        major, minor, stepping = self.target[3:-2], self.target[-2], self.target[-1]
        version = 1000 * int(major) + 100 * int(minor, 16) + int(stepping, 16)
        values = {**_CONTROLS, "ISA_version": version, "wavefrontsize64": int(major == "9")}
        source, compiled = self.folder / "controls.c", self.folder / "controls.bc"
        rows = (
            f"const {'int' if name.endswith('version') else 'unsigned char'} "
            f"__attribute__((address_space(4))) __oclc_{name} = {value};\n"
            for name, value in values.items()
        )
        source.write_text("".join(rows), encoding="utf-8")
        how = f"-w -x c --target=amdgcn-amd-amdhsa -nogpulib -mcpu={self.target} -c -emit-llvm -o"
        compiled.write_bytes(self.run([*self.using.argv, *how.split(), self.output, source]))
        return compiled

    def assemble(self, listing: bytes) -> bytes:
        """Return the object file that the assembler makes of a listing."""
        return self.run(self._assembler(listing.decode("utf-8", "replace")))

    def link(self, content: bytes) -> bytes:
        """Return the code object that the linker makes of an object file."""
        assembled = self.folder / "object.o"
        assembled.write_bytes(content)
        return self.run([*self.using.linker, "-shared", "-o", self.output, assembled])

    def _assembler(self, text: str) -> list[str]:
        """Return the command by which the compiler's driver would assemble a text."""
        path = self.folder / LISTING
        path.write_text(text, encoding="utf-8")
        # `-###` prints the command: not every clang passes options on to the assembler.
        how = f"-### -x assembler --target=amdgcn-amd-amdhsa -mcpu={self.target} -c -o"
        done = self._supervised([*self.using.argv, *how.split(), self.output, path])
        called = _ASSEMBLER.search(done.output.decode("utf-8", "replace"))
        if not called:
            raise CompileError(missing=f"{self.using.name} does not say how it assembles")
        return shlex.split(called[1])

    def _supervised(self, argv: Sequence[str | Path]) -> process.Supervised:
        # Without variables that lead the compiler to other headers or libraries.
        clean = process.clean_environment({"HOME": str(self.folder), "TMPDIR": str(self.folder)})
        env = {name: value for name, value in clean.items() if not name.startswith(_STEERING)}
        done = process.supervise(argv, cwd=self.folder, timeout=self.timeout, env=env)
        self.seconds += done.seconds
        text = self.scrub(done.output.decode("utf-8", "replace"))
        if done.returncode != 0:
            raise_for_machine(done, text, self.using.name, self.timeout)
            raise self._trouble(done, text)
        return done

    def _trouble(self, done: process.Supervised, text: str) -> CompileError:
        """Return the error for a program that failed, but not for lack of time, memory or disk."""
        if crash := _crash(done, text):
            return CompileError(crashed=f"{self.using.name}: {crash}")
        first = _ERROR.search(text)
        lines = text.strip().splitlines() or [f"exit status {done.returncode}, and not a word"]
        error = first[0] if first else lines[-1]
        missing = ""
        if header := _TORCH_HEADER.search(error):
            what = f"needs <{header[1]}>, which the torch here has not"
            missing = f"{what}: install the torch it is for"
        elif self.using.kind != "rocm" and (header := _ROCM_HEADER.search(error)):
            what = f"needs <{header[1]}>, for which contribbot has no stand-in"
            missing = f"{what}: install ROCm"
        return CompileError(error=error, missing=missing)


def _crash(done: process.Supervised, text: str) -> str:
    """Return how a compiler crashed; empty: no crash."""
    if done.flooded:
        return "it never stopped writing, and was ended"
    if done.returncode < 0:
        return f"killed by signal {-done.returncode}"
    if done.returncode == _NOT_STARTED:
        return "it could not be started"
    crash = _CRASH.search(text)
    return f"crashed: {(crash['how'] or crash['back'] or crash[0]).strip()}" if crash else ""


def raise_for_machine(done: process.Supervised, text: str, name: str, timeout: float) -> None:
    """Raise CompileError for lack of time or memory in a compiler, NoSpaceError for a full disk."""
    if _FULL_DISK.search(text):
        raise process.no_space("what a compiler writes")
    if done.timed_out:
        raise CompileError(missing=f"{name}: not finished after {timeout:g} s")
    # `starved`: a killed process alone proves no lack, as a kernel's file can end its process.
    if done.starved or _NO_MEMORY.search(text):
        raise CompileError(missing=f"{name}: killed, or out of memory", starved=True)
