"""Build a patch's changed kernels with torch's cpp_extension, or a tree by upstream's recipe."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import json
import os
import re
import runpy
import shutil
import sys
import sysconfig
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, TypedDict

from pydantic import JsonValue

from contribbot import process
from contribbot.compile.toolchain import Lack
from contribbot.errors import CommandError, check_stopping
from contribbot.git.repository import Store
from contribbot.model.checks import Build
from contribbot.model.evidence import Machine
from contribbot.model.patch import BuildRecipe, PatchFile, digest_of
from contribbot.process import remove_tree

Kind = Literal["cpp", "cuda", "hip"]


@dataclass(frozen=True)
class BuildTools:
    """The compilers and environment for an extension, or (`missing`) the tool that is missing."""

    kind: Kind
    env: dict[str, str] = field(default_factory=dict)
    identity: tuple[str, ...] = ()
    programs: tuple[Path, ...] = ()
    missing: str = ""


@functools.cache
def torch_build() -> dict[str, str | None]:
    """Return the values in torch's `version.py`, without importing torch; empty: no torch."""
    spec = importlib.util.find_spec("torch")
    version = Path(spec.origin).with_name("version.py") if spec and spec.origin else None
    return runpy.run_path(str(version)) if version and version.is_file() else {}


def build_tools(target: str, machine: Machine) -> BuildTools:
    """Return the compilers for an extension on a target, or the missing tool."""
    kind: Kind = "hip" if target.startswith("gfx") else "cuda" if target == "cuda" else "cpp"
    host, env = _host_compilers()
    compiler, missing = None, ""
    if not torch_build():
        missing = "torch is not installed"
    elif importlib.util.find_spec("setuptools") is None:
        missing = "the Python package setuptools is not installed, which cpp_extension needs"
    elif not host:
        missing = "no C++ compiler on this machine (Debian: apt-get install g++)"
    elif shutil.which("ninja") is None:
        missing = "no ninja on this machine, which cpp_extension needs: pip install ninja"
    elif kind != "cpp":
        compiler, missing = _toolkit(kind)
    if missing:
        return BuildTools(kind, missing=missing)
    env |= target_environment(target, machine)
    programs = host if compiler is None else (*host, compiler)
    identity = (
        f"torch {torch_build()['__version__']}",
        *map(_stamp, programs),
        *(f"{name}={value}" for name, value in sorted(env.items())),
        # The extension may include headers of this Python release.
        str(sysconfig.get_config_var("SOABI")),
    )
    if compiler is not None:
        env[f"{_TOOLKITS[kind][0].upper()}_HOME"] = str(compiler.parents[1])
    return BuildTools(kind, env=env, identity=identity, programs=programs[1:])


#: By kind of GPU: the toolkit's name, its usual path, a file in the toolkit (a lone compiler on
#: PATH may have no toolkit), and the message if the toolkit is missing.
_TOOLKITS: Final = {
    "cuda": (
        "CUDA",
        ("/usr/local/cuda", "/usr/lib/cuda"),
        ("bin/nvcc", "include/cuda_runtime.h"),
        "no CUDA toolkit on this machine (install CUDA {} with nvcc)",
    ),
    "hip": (
        "ROCm",
        ("/opt/rocm",),
        ("bin/hipcc",),
        "no hipcc on this machine (install ROCm's hip-dev)",
    ),
}


def _toolkit(kind: Kind) -> tuple[Path | None, str]:
    """Return the compiler of torch's CUDA or ROCm toolkit, or None and the missing part as text."""
    label, usual, files, missing = _TOOLKITS[kind]
    release = torch_build().get(kind)
    if not release:
        return None, f"torch {torch_build()['__version__']} is no {label} build"
    named = (os.environ.get(f"{label.upper()}_{end}") for end in ("HOME", "PATH"))
    roots = [Path(root) for root in named if root]
    if program := shutil.which(Path(files[0]).name):
        roots.append(Path(program).resolve().parents[1])
    for root in (*roots, *map(Path, usual)):
        if all((root / file).is_file() for file in files):
            return root / files[0], ""
    return None, missing.format(release)


def tool_versions(tools: BuildTools) -> list[str]:
    """Return, for a record, a line for torch, each compiler's version and each variable."""
    lines = [*tools.identity[:1]]
    for program in tools.programs:
        try:
            text = process.run([program, "--version"], timeout=20).stdout.decode(errors="replace")
        except CommandError:
            text = ""
        # g++ and hipcc print the version first, nvcc after its copyright.
        row = next((row for row in text.splitlines() if re.search(r"\d+\.\d+", row)), "")
        lines.append(f"{program.name}: {row.strip() or 'it does not say'}")
    # A record must not contain paths of this machine.
    stated = (pair for pair in sorted(tools.env.items()) if not pair[0].endswith("_HOME"))
    return [*lines, *(f"{name}={value}" for name, value in stated)]


def target_environment(target: str, machine: Machine) -> dict[str, str]:
    """Return the variables that tell torch's build tools for which GPUs to compile."""
    if target.startswith("gfx"):
        return {"PYTORCH_ROCM_ARCH": target}
    if target != "cuda":
        return {}
    nvidia = [gpu.target.removeprefix("sm_") for gpu in machine.gpus if gpu.vendor == "nvidia"]
    # The last digit is the minor version: sm_90 is 9.0, sm_120 is 12.0.
    capabilities = (f"{digits[:-1]}.{digits[-1]}" for digits in dict.fromkeys(nvidia))
    return {"TORCH_CUDA_ARCH_LIST": ";".join(capabilities)}


def _host_compilers() -> tuple[tuple[Path, ...], dict[str, str]]:
    """Return the C and C++ compilers (this Python's or GCC's), and the variables CC and CXX."""
    own = [str(sysconfig.get_config_var(name) or name.lower()).split()[0] for name in ("CC", "CXX")]
    for names in (own, ["gcc", "g++"]):
        places = [Path(place) for name in names if (place := shutil.which(name))]
        if len(places) == len(names):
            return tuple(places), dict(zip(("CC", "CXX"), names, strict=True))
    return (), {}


def _stamp(program: Path) -> str:
    """Return a program's path, size and modification time, which differ between releases."""
    real = program.resolve()
    status = real.stat()
    return f"{real} {status.st_size} {status.st_mtime_ns}"


#: The largest output of a build in bytes; the log gets all output.
_MAX_OUTPUT: Final = 64 * 2**20
#: A program that runs commands in order until a command fails, and ends with the status of the
#: last command (128 and more: a signal). If contribbot ends, this program is ended, too.
_RUNNER: Final = """\
import json, os, shlex, sys
for argv in json.loads(sys.argv[1]):
    print("+", shlex.join(argv), flush=True)
    status = os.spawnvp(os.P_WAIT, argv[0], argv)
    if status:
        sys.exit(status if status > 0 else 128 - status)
"""
#: Patterns of errors of compilers, linkers, CMake and make, the clearest kind of error first.
_COMPLAINTS: Final = (
    re.compile(
        r"\berror\b\s*(?:#\d+\s*)?:|^nvcc fatal\b|\bundefined reference to\b|\bcannot find -l"
        r"|\bmultiple definition of\b|^CMake Error\b"
    ),
    re.compile(r"^(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception)\b(?::|$)"),
    re.compile(r"\*\*\* .*(?:Error \d+|No rule|Stop)"),
    re.compile(r"^FAILED:"),
)
#: Patterns of lines that name no error: warnings, quoted source, linkers' last lines, commands.
_PASSED_OVER: Final = re.compile(
    r"\bwarning\b\s*(?:#\d+[-\w]*\s*)?:|^\d* *\| |^\+ "
    r"|^\[\d+/\d+\] |ld returned \d+ exit status|linker command failed"
)
#: Messages of a compiler driver whose compiler was killed, or of a compiler without memory.
_NO_MEMORY: Final = re.compile(
    r"Killed signal terminated program|virtual memory exhausted|std::bad_alloc"
    r"|[Cc]annot allocate memory|out of memory allocating"
)
_CRASHED: Final = re.compile(
    r"^.*(?:internal compiler error|Segmentation fault|PLEASE submit a (?:full )?bug report"
    r"|Internal error|signal \d+ received|died due to signal).*$",
    re.MULTILINE,
)
_NO_SPACE: Final = re.compile(r"No space left on device", re.IGNORECASE)
#: From this exit status on, a signal ended the program (POSIX shells).
_SIGNALLED: Final = 128
_KILLED: Final = 128 + 9
_MODULE: Final = "python:"


@dataclass(frozen=True)
class Ran:
    """The result of a build's commands; at most one of `error`, `lacking` and `crash` is set."""

    output: str = ""
    seconds: float = 0.0
    error: str = ""  # the tree's fault in one line
    lacking: str = ""  # what this machine lacks
    crash: str = ""  # how a compiler crashed

    @property
    def well(self) -> bool:
        """Whether all commands succeeded."""
        return not (self.error or self.lacking or self.crash)


def run_commands(
    commands: Sequence[Sequence[str]],
    *,
    cwd: Path,
    env: Mapping[str, str],
    timeout: float,
    scrub: Callable[[str], str],
) -> Ran:
    """Run commands in order until a command fails; no command outlives contribbot."""
    done = process.supervise(
        [sys.executable, "-I", "-S", "-c", _RUNNER, json.dumps([*map(list, commands)])],
        cwd=cwd,
        env=env,
        timeout=timeout,
        max_output=_MAX_OUTPUT,
    )
    # If this process is ending, the commands were killed for that reason.
    check_stopping()
    output = scrub(done.output.decode("utf-8", "replace"))
    status = done.returncode if done.returncode >= 0 else _SIGNALLED - done.returncode
    lacking = crash = error = ""
    if done.timed_out:
        lacking = f"not finished after {timeout:g} s"
    elif done.flooded:
        crash = f"it wrote more than {_MAX_OUTPUT >> 20} MiB"
    elif status and _NO_SPACE.search(output):
        lacking = "the disk is full"
    elif status == _KILLED or (status and _NO_MEMORY.search(output)):
        lacking = "killed, or out of memory"
    elif status and (crashed := _CRASHED.search(output)):
        crash = f"the compiler crashed: {crashed[0].strip()}"
    elif status > _SIGNALLED:
        crash = f"it was ended by signal {status - _SIGNALLED}"
    elif status:
        error = complaint(output) or f"exit status {status}"
    return Ran(output, done.seconds, error=error, lacking=lacking, crash=crash)


def complaint(output: str) -> str:
    """Return the first line of the clearest error in an output, or else the last line."""
    rows = [row.strip() for row in output.splitlines() if row.strip()]
    telling = [row for row in rows if not _PASSED_OVER.search(row)]
    errors = (row for pattern in _COMPLAINTS for row in telling if pattern.search(row))
    return next(errors, telling[-1] if telling else "")


def missing_for_recipe(recipe: BuildRecipe | None, target: str, upstream: str) -> Lack | None:
    """Return the first thing that this machine lacks for an upstream's recipe; None: nothing."""
    if recipe is None:
        return Lack(what=f"upstreams/{upstream}.toml has no [build]")
    if target not in recipe.targets:
        built = ", ".join(recipe.targets)
        return Lack(what=f"the recipe of {upstream} builds for {built}, not {target}")
    for need in recipe.requires:
        if need.startswith(_MODULE):
            name = need.removeprefix(_MODULE)
            if importlib.util.find_spec(name.partition(".")[0]) is None:
                what = f"the Python module {name} is not installed, which the recipe needs"
                return Lack(what=what)
        elif shutil.which(need) is None:
            return Lack(what=f"no {need} on this machine, which the recipe of {upstream} needs")
    return None


def absent_path(store: Store, tree: str, what: Build | BuildRecipe) -> str:
    """Return the first path of a build or recipe that a tree lacks; empty: the tree has all."""
    named = (
        (what.folder, *what.needs)
        if isinstance(what, BuildRecipe)
        else (*what.sources, *what.include)
    )
    lacking = (path for path in named if path != "." and store.resolve(f"{tree}:{path}") is None)
    return next(lacking, "")


def private_folders(folder: Path) -> dict[str, str]:
    """Make a build's private HOME and TMPDIR folders; return the two variables."""
    places = {"HOME": folder / "home", "TMPDIR": folder / "tmp"}
    for place in places.values():
        place.mkdir()
    return {name: str(place) for name, place in places.items()}


#: The folder of contribbot's files among the sources that are compiled.
_OWN: Final = ".contribbot"
_LIBRARY: Final = "extension.so"
_LOAD: Final = "from contribbot.compile.build import load_extension; load_extension"
#: Suffixes of files in `checks/` that an extension's binding may include.
_CODE: Final = (".c", ".cc", ".cpp", ".cu", ".cuh", ".cxx", ".h", ".hip", ".hpp", ".inc", ".inl")


def support_code(support: Iterable[PatchFile]) -> tuple[PatchFile, ...]:
    """Return the C and C++ files of `checks/`, which an extension's binding may include."""
    return tuple(file for file in support if file.name.endswith(_CODE))


def tree_roots(store: Store, tree: str, build: Build) -> dict[str, str]:
    """Return the git id of each top folder that a build reads, by path; `.`: the whole tree."""
    paths = (*build.sources, *build.include)
    if any("/" not in path for path in build.sources):
        return {".": tree}
    tops = sorted({path.partition("/")[0] for path in paths})
    return {top: store.resolve(f"{tree}:{top}") or "" for top in tops}


def extension_inputs(
    store: Store, tree: str, build: Build, *, support: Sequence[PatchFile], tools: BuildTools
) -> JsonValue:
    """Return all inputs of a compiled extension, as JSON data for a cache key."""
    stated = {"way", "sources", "binding", "include", "defines", "flags"}
    return {
        "build": build.model_dump(mode="json", include=stated),
        "roots": {**tree_roots(store, tree, build)},
        "absent": absent_path(store, tree, build),
        "code": digest_of(support_code(support)),
        "tools": [tools.kind, *tools.identity],
    }


def overlay_hipified(
    sources: Sequence[str], folder: Path, hipified: Path, outputs: Mapping[str, Path]
) -> Sequence[str]:
    """Copy hipified files over a tree's folders; return the sources with the names after hipify."""
    shutil.copytree(hipified, folder, symlinks=True, dirs_exist_ok=True)
    return tuple(
        outputs[source].relative_to(hipified).as_posix() if source in outputs else source
        for source in sources
    )


class Extension(TypedDict):
    """The arguments of `cpp_extension.load`; paths are relative to the current folder."""

    sources: list[str]
    extra_include_paths: list[str]
    extra_cflags: list[str]
    extra_cuda_cflags: list[str]
    with_cuda: bool
    build_directory: str


def load_extension(file: str) -> None:
    """Build the extension that a JSON file describes, and load the library; exit on an error."""
    from torch.utils import cpp_extension  # noqa: PLC0415  only in the child process

    extension: Extension = json.loads(Path(file).read_text(encoding="utf-8"))
    try:
        cpp_extension.load("extension", **extension, is_python_module=False, verbose=True)
    except OSError as error:
        sys.exit(f"error: it is built and cannot be loaded: {error}")
    except RuntimeError as error:  # the compiler has printed the reason
        sys.exit(f"{error}")
    sys.stdout.write("built and loaded\n")


def compile_extension(
    build: Build,
    names: Sequence[str],
    *,
    support: Sequence[PatchFile],
    tools: BuildTools,
    jobs: int,
    folder: Path,
    into: Path,
    timeout: float,
    scrub: Callable[[str], str],
) -> Ran:
    """Compile and load an extension from `folder/sources`; then copy the library into `into`."""
    sources = folder / "sources"
    own = sources / _OWN
    (own / "checks").mkdir(parents=True)
    for file in support_code(support):
        target = own / "checks" / file.name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(file.content)
    # The host's compiler understands only -std and -O among the flags for nvcc or hipcc.
    kernels = tools.kind != "cpp"
    host = [flag for flag in build.flags if not kernels or flag.startswith(("-std=", "-O"))]
    # The folder's path must not change the library.
    nowhere = f"-ffile-prefix-map={sources}=."
    defines = [f"-D{define}" for define in build.defines]
    extension = Extension(
        sources=[*names, *([f"{_OWN}/checks/{build.binding}"] if build.binding else [])],
        extra_include_paths=[str(sources / path) for path in (*build.include, f"{_OWN}/checks")],
        # -g0: debugging information would double the time of the host's compiler.
        extra_cflags=[*defines, *host, "-g0", nowhere],
        extra_cuda_cflags=[
            *defines,
            *build.flags,
            *(["-Xcompiler", nowhere] if tools.kind == "cuda" else [nowhere]),
        ],
        with_cuda=kernels,
        build_directory=f"{_OWN}/out",
    )
    (own / "out").mkdir()
    (own / "spec.json").write_text(json.dumps(extension), encoding="utf-8")
    environment = {
        **tools.env,
        **private_folders(folder),
        "MAX_JOBS": str(jobs),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
        "PYTHONPATH": process.own_path(),
    }
    ran = run_commands(
        [[sys.executable, "-P", "-c", f"{_LOAD}({_OWN + '/spec.json'!r})"]],
        cwd=sources,
        env=process.clean_environment(environment),
        timeout=timeout,
        scrub=lambda text: scrub(text.replace(f"{sources}/", "")).replace(
            f"{_OWN}/checks/", "checks/"
        ),
    )
    if ran.well:
        shutil.copyfile(own / "out" / _LIBRARY, into / _LIBRARY)
    # Remove the sources now: they may be a whole tree, and the run goes on.
    with contextlib.suppress(OSError):
        remove_tree(sources)
    return ran
