"""Compiling HIP C++ to a listing, on a machine that need not have an AMD GPU."""

from __future__ import annotations

import hashlib
import importlib.util
import re
import shlex
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NotRequired, TypedDict, Unpack

from contribbot import process
from contribbot.compile.cache import (
    Compiled,
    CompileError,
    compile_key,
    compile_lock,
    recall,
    remember,
)
from contribbot.compile.listing import read_listing, read_object, without_facts
from contribbot.compile.toolchain import HEADERS, INSTALL, Toolchain, device_library

_FULL_DISK: Final = re.compile(r"No space left on device", re.IGNORECASE)
#: Words of clang's driver, and of programs, for a killed compiler or a lack of memory.
_NO_MEMORY: Final = re.compile(
    r"unable to execute command: Killed|LLVM ERROR: out of memory|std::bad_alloc"
    r"|[Cc]annot allocate memory|^MemoryError\b",
    re.MULTILINE,
)
_ERROR: Final = re.compile(r"^(?P<place>[^\n]*?):? ?\b(?:fatal )?error: .*$", re.MULTILINE)
#: Words of the driver for a crash of the compiler proper.
_CRASH: Final = re.compile(
    r"fatal error: error in backend: (?P<back>.+)|clang frontend command failed|"
    r"PLEASE submit a bug report|unable to execute command: (?P<how>.+)"
)
#: Exit status of an absent program (POSIX shells, and os.spawnvp).
_NOT_STARTED: Final = 127
#: Prefixes of variables by which clang finds ROCm; contribbot uses clang's options instead.
_STEERING: Final = ("HIP_", "ROCM_")
#: Headers that come with ROCm, or with a ROCm build of torch, and have no stand-in.
_TORCH_HEADER: Final = re.compile(
    r"fatal error: '(torch/(?:csrc|headeronly)/[^']+)' file not found"
)
_ROCM_HEADER: Final = re.compile(
    r"fatal error: '((?:hip|hipblas|hipblaslt|hipcub|hipdnn|hipfft|hiprand|hipsolver|hipsparse"
    r"|rccl|rocblas|rocfft|rocprim|rocrand|rocsolver|rocthrust|rocwmma|thrust|ck|ck_tile"
    r"|ATen/hip|c10/hip)/[^']+)' file not found"
)
#: How the functions of ROCm's device library begin (ROCm/llvm-project, amd/device-libs/doc).
_LIBRARY: Final = ("__ocml_", "__ockl_")
#: Constants for the library's functions: ROCm has oclc_*.bc files, a wheel of triton has none. The
#: values follow clang's choice of these files for HIP without options (RocmInstallation-
#: Detector::getCommonBitcodeLibs); meanings: amd/device-libs/doc/OCML.md, "Controls". No function
#: tells code object 5 from 6.
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


@dataclass(frozen=True)
class HipSource:
    """A source and the options of its compile."""

    path: Path
    include: tuple[Path, ...]
    defines: tuple[str, ...]  # macros, as `NAME` or `NAME=VALUE`; `!NAME`: none
    standard: str
    torch: bool  # whether the source needs torch's headers
    folders: tuple[Path, ...]  # the tree's folders, whose names must not matter


def torch_include() -> Path | None:
    """Return torch's include folder without an import of torch; None: no such folder."""
    spec = importlib.util.find_spec("torch")
    for place in (spec.submodule_search_locations or ()) if spec is not None else ():
        include = Path(place) / "include"
        if (include / "torch").is_dir():
            return include
    return None


def headers_digest() -> str:
    """Return the SHA-256 over the stand-in headers, in hexadecimal."""
    total = hashlib.sha256()
    for path in sorted(path for path in HEADERS.rglob("*") if path.is_file()):
        total.update(path.relative_to(HEADERS).as_posix().encode())
        total.update(path.read_bytes())
    return total.hexdigest()


class CompilerCall(TypedDict):
    """The arguments of every compile: compiler, folder, time limit, and the scrub of texts."""

    using: Toolchain
    folder: Path
    timeout: float
    scrub: NotRequired[Callable[[str], str]]


def compile_hip(source: HipSource, target: str, **call: Unpack[CompilerCall]) -> Compiled:
    """Compile a source for a target and read the listing."""
    compiler, using, torch = Compiler(target=target, **call), call["using"], torch_include()
    scrub = compiler.scrub
    named = [(str(HEADERS), "<stand-ins>"), *using.folders]
    named += [(str(torch), "<torch>/include")] if torch is not None else []

    def scrub_headers(text: str) -> str:
        # Folders of headers get fixed names, wherever the folders are.
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
        key = compile_key(make("-E"), [*command, library.name if library else ""], using.identity)
        with compile_lock(key):
            result = recall(key)
            if result is not None:
                return result.model_copy(update={"command": compiler.command})
            listing = make("-S")
            try:
                result = compiler.read_linked(listing, make)
            except CompileError:
                # Where the source's own assembly is wrong, the compiler names the source's line.
                make("-S", "-Xclang", "-emit-obj")
                raise
            # Errors are not remembered: a comment may move their lines, and they are quickly found.
            remember(key, result)
            return result
    except CompileError as failure:
        return compiler.result(failure)


def _arguments(source: HipSource, target: str, using: Toolchain, torch: Path | None) -> list[str]:
    """Return the compiler's options without the input and output."""
    system: Sequence[Path] = ()
    if torch is not None:
        system = (HEADERS / "torch_cpu", torch, torch / "torch/csrc/api/include")
    return [
        "-x",
        "hip",
        "--cuda-device-only",
        f"--offload-arch={target}",
        f"-std={source.standard}",
        "-O3",
        "-D__HIP_PLATFORM_AMD__",
        *(f"-U{macro[1:]}" if macro[0] == "!" else f"-D{macro}" for macro in source.defines),
        *(f"-I{root}" for root in source.include),
        *using.flags,
        *(word for root in system for word in ("-isystem", str(root))),
        # The folder's name must not get into the code by __FILE__.
        *(f"-ffile-prefix-map={folder}=." for folder in source.folders),
        "-w",
        "-ferror-limit=1",
        "-fno-color-diagnostics",
        "-fno-caret-diagnostics",
    ]


def code_object(source: HipSource, target: str, **call: Unpack[CompilerCall]) -> tuple[bytes, str]:
    """Return a source's code object with its line table, and the name of its device library."""
    using = call["using"]
    arguments = _arguments(source, target, using, torch_include() if source.torch else None)
    compiler = Compiler(target=target, **call)
    # Equal code must give equal bytes, wherever the source is.
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
    """Return those of the given symbols that AMD's device libraries define, sorted."""
    return sorted(symbol for symbol in symbols if symbol.startswith(_LIBRARY))


class NoLibraryError(CompileError):
    """The compiler has no device library that the compiler's LLVM can read."""


@dataclass
class Compiler:
    """The calls of a toolchain for one source, in a separate folder."""

    using: Toolchain
    target: str
    folder: Path
    timeout: float
    scrub: Callable[[str], str] = str
    command: str = ""  # the compiler's command line, for a record
    seconds: float = 0.0  # the run time of all programs

    @property
    def output(self) -> Path:
        """The file that every program writes."""
        return self.folder / "output"

    def result(self, failure: CompileError) -> Compiled:
        """Return the result of a failed compile."""
        facts = {"command": self.command, "seconds": self.seconds}
        return failure.result.model_copy(update=facts)

    def run(self, argv: Sequence[str | Path]) -> bytes:
        """Run a program and return the content of `output`."""
        self._supervised(argv)
        try:
            written = self.output.read_bytes()
            # The preprocessed source is large, and is no longer needed.
            self.output.unlink()
        except FileNotFoundError:
            raise CompileError(crashed=f"{self.using.name} wrote nothing") from None
        return written

    def read(self, listing: bytes) -> Compiled:
        """Assemble a listing and read the object."""
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
        """Read a listing; if the source calls the device library, the listing with the library."""
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
        """Return the listing with the device library, and the library's name."""
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
                # Without the library the source compiles: the bitcode is of a newer LLVM.
                why = f"{self.using.name} cannot read {library.name} ({failure}): install ROCm"
        raise NoLibraryError(missing=f"calls {', '.join(called)} of ROCm's device library: {why}")

    def _controls(self) -> Path:
        """Return the file of bitcode with the constants that a device library reads."""
        # gfx90a is 9.0.10: major, minor and stepping, the last two each a hexadecimal digit.
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
        argv = [*self.using.argv, "-w", "-x", "c", "--target=amdgcn-amd-amdhsa", "-nogpulib"]
        argv += [f"-mcpu={self.target}", "-c", "-emit-llvm"]
        compiled.write_bytes(self.run([*argv, "-o", self.output, source]))
        return compiled

    def assemble(self, listing: bytes) -> bytes:
        """Return the object that a listing makes."""
        return self.run(self._assembler(listing.decode("utf-8", "replace")))

    def link(self, content: bytes) -> bytes:
        """Link an object into a code object."""
        assembled = self.folder / "object.o"
        assembled.write_bytes(content)
        return self.run([*self.using.linker, "-shared", "-o", self.output, assembled])

    def _assembler(self, text: str) -> list[str]:
        """Return the driver's command of its assembler for a text."""
        path = self.folder / LISTING
        path.write_text(text, encoding="utf-8")
        # Not every release of clang passes assembler options on to the assembler.
        done = self._supervised(
            [
                *self.using.argv,
                "-###",
                "-x",
                "assembler",
                "--target=amdgcn-amd-amdhsa",
                f"-mcpu={self.target}",
                "-c",
                "-o",
                self.output,
                path,
            ]
        )
        called = _ASSEMBLER.search(done.output.decode("utf-8", "replace"))
        if not called:
            raise CompileError(missing=f"{self.using.name} does not say how it assembles")
        return shlex.split(called[1])

    def _supervised(self, argv: Sequence[str | Path]) -> process.Supervised:
        # No variable may lead the compiler to other headers or libraries.
        clean = process.clean_environment({"HOME": str(self.folder), "TMPDIR": str(self.folder)})
        env = {name: value for name, value in clean.items() if not name.startswith(_STEERING)}
        done = process.supervise(
            argv, cwd=self.folder, timeout=self.timeout, env=env, tethered=True
        )
        self.seconds += done.seconds
        text = self.scrub(done.output.decode("utf-8", "replace"))
        if done.returncode != 0:
            raise_for_machine(done, text, self.using.name, self.timeout)
            raise self._trouble(done, text)
        return done

    def _trouble(self, done: process.Supervised, text: str) -> CompileError:
        """Return the error of a compiler that the machine did not stop."""
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
    """Return the way in which a compiler crashed, or nothing."""
    if done.flooded:
        return "it never stopped writing, and was ended"
    if done.returncode < 0:
        return f"killed by signal {-done.returncode}"
    if done.returncode == _NOT_STARTED:
        return "it could not be started"
    crash = _CRASH.search(text)
    return f"crashed: {(crash['how'] or crash['back'] or crash[0]).strip()}" if crash else ""


def raise_for_machine(done: process.Supervised, text: str, name: str, timeout: float) -> None:
    """Raise if a compiler failed for lack of time, memory or disk."""
    if _FULL_DISK.search(text):
        raise process.no_space("what a compiler writes")
    if done.timed_out:
        raise CompileError(missing=f"{name}: not finished after {timeout:g} s")
    # The killer matters: a kernel's file runs under Triton, and can end its own process.
    if done.starved or _NO_MEMORY.search(text):
        raise CompileError(missing=f"{name}: killed, or out of memory", starved=True)
