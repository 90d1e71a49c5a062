"""What the stage `build` is made of: one compile, its complaints, the shelf, the compilers."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from contribbot import process
from contribbot.compile import build as builds
from contribbot.compile import cache as build_cache
from contribbot.compile.build import Ran, build_tools, complaint, run_commands, target_environment
from contribbot.machine import this_machine
from contribbot.model.checks import Build
from contribbot.model.evidence import Gpu
from contribbot.model.patch import PatchFile
from tests.hiptoy import program_file
from tests.tools import kinds

GOOD = 'extern "C" int five() { return 5; }\n'


def compiled(
    folder: Path, sources: dict[str, str], *, flags: tuple[str, ...] = (), binding: str = ""
) -> Ran:
    """Compile sources as one side of a build, without a queue around it."""
    build = Build(
        name="area", way="extension", sources=tuple(sources), flags=flags, targets=("cpu",),
        binding="binding.cpp" if binding else "",
    )  # fmt: skip

    (folder / "product").mkdir()
    for name, text in sources.items():
        (folder / "run/sources" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "run/sources" / name).write_text(text, encoding="utf-8")
    return builds.compile_extension(
        build, build.sources,
        support=[PatchFile("binding.cpp", binding.encode()), PatchFile("test_x.py", b"")],
        tools=build_tools("cpu", this_machine()), jobs=2, folder=folder / "run",
        into=folder / "product", timeout=120, scrub=lambda text: text.replace(str(folder), "<run>"),
    )  # fmt: skip


@pytest.mark.tool("g++", "ninja")
def test_several_sources_and_a_binding_become_one_library(tmp_path: Path) -> None:
    ran = compiled(
        tmp_path,
        {"a/one.cpp": GOOD, "b/two.cpp": 'extern "C" int five(); int ten() { return 2 * five(); }'},
        binding='extern "C" int seven() { return 7; }\n',
    )
    assert (ran.error, ran.lacking, ran.crash) == ("", "", "")
    symbols = process.run(["nm", "-D", tmp_path / "product/extension.so"]).stdout.decode()
    assert all(f" T {name}" in symbols for name in ("five", "seven", "_Z3tenv"))
    assert not (tmp_path / "run/sources").exists(), "the copy of the sources was kept"


@pytest.mark.tool("g++", "ninja")
@pytest.mark.parametrize(
    ("sources", "flags", "said"),
    kinds([
        ({"a.cpp": GOOD}, ("-fno-such-thing",), "unrecognized command-line option"),
        ({"a.cpp": '#include "gone.h"\n'}, (), "a.cpp:1:10: fatal error: gone.h: No such file"),
        ({"a.cpp": 'extern "C" int gone(); extern "C" int f() { return gone(); }'}, (),
         "error: it is built and cannot be loaded: "),
        ({"a.cpp": GOOD, "b.cpp": GOOD}, (), "multiple definition of `five'"),
        ({"a.cpp": GOOD + '#warning "error: just kidding"\nint f( { }\n'}, (), "a.cpp:3:"),
    ], lambda case: case[2] == "a.cpp:3:"),
    ids=["flag", "header", "symbol", "link", "after a warning"],
)  # fmt: skip
def test_the_first_thing_that_is_wrong_is_said(
    tmp_path: Path, sources: dict[str, str], flags: tuple[str, ...], said: str
) -> None:
    ran = compiled(tmp_path, sources, flags=flags)
    assert said in ran.error, ran.output
    assert (ran.lacking, ran.crash) == ("", "")
    assert not list((tmp_path / "product").iterdir())


@pytest.mark.tool("g++", "ninja")
@pytest.mark.parametrize(
    ("sent", "field", "said"),
    kinds([
        ("SEGV", "crash", "the compiler crashed: g++: internal compiler error: Segmentation fault"),
        ("KILL", "lacking", "killed, or out of memory"),
    ], lambda case: case[0] == "KILL"),
)  # fmt: skip
def test_a_crash_is_not_the_sources_error(tmp_path: Path, sent: str, field: str, said: str) -> None:
    # GCC's driver runs what it would run as the wrapper's arguments.
    wrapper = program_file(tmp_path / "wrapper", f"kill -{sent} $$")
    ran = compiled(tmp_path, {"a.cpp": GOOD}, flags=("-wrapper", str(wrapper)))
    assert ran.error == ""
    assert said in {"crash": ran.crash, "lacking": ran.lacking}[field], ran.output


#: What is written, and which of its lines is the one that says what is wrong.
OUTPUTS = (
    (("x.cu(7): warning #177-D: variable was declared\n"
     'csrc/x.cu(12): error: identifier "foo" is undefined\n1 error detected\n'), 1),
    ("nvcc fatal   : Unknown option '-foo'\n", 0),
    ("csrc/x.hip:3:10: fatal error: 'cuda_fp8.h' file not found\nRuntimeError: failed\n", 0),
    (("a.o: in function `f':\na.cpp:(.text+0x9): undefined reference to `gone'\n"
     "collect2: error: ld returned 1 exit status\n"), 1),
    ("CMake Error at CMakeLists.txt:5 (find_package):\n  not found\n", 0),
    (('Traceback (most recent call last):\n  File "setup.py"\n'
     "RuntimeError: The detected CUDA version mismatches\n"), 2),
    ("make: *** No rule to make target 'x', needed by 'all'.  Stop.\n", 0),
    ("+ make\nsomething odd\n", 1),
    ("\n", 0),
)  # fmt: skip


@pytest.mark.parametrize(("output", "row"), OUTPUTS)
def test_the_complaint_is_the_line_that_says_what_is_wrong(output: str, row: int) -> None:
    assert complaint(output) == output.splitlines()[row]


@pytest.mark.parametrize(
    ("command", "field", "said"),
    [
        (["sh", "-c", "dd if=/dev/zero of=/dev/full count=1"], "lacking", "the disk is full"),
        (["sh", "-c", "kill -9 $$"], "lacking", "killed, or out of memory"),
        (["sh", "-c", "kill -11 $$"], "crash", "it was ended by signal 11"),
        (["sleep", "60"], "lacking", "not finished after 3 s"),
        (["sh", "-c", "echo 'a.cpp:1:1: error: no'; exit 2"], "error", "a.cpp:1:1: error: no"),
        (["false"], "error", "exit status 1"),
        (["no-such-program"], "error", "exit status 127"),
    ],
)
def test_how_commands_end(tmp_path: Path, command: list[str], field: str, said: str) -> None:
    ran = run_commands(
        [["true"], command, ["touch", "never"]],
        cwd=tmp_path, env=process.clean_environment(), timeout=3, scrub=str,
    )  # fmt: skip
    complaints = {"error": ran.error, "lacking": ran.lacking, "crash": ran.crash}
    assert complaints == {"error": "", "lacking": "", "crash": "", field: said}
    assert not (tmp_path / "never").exists()


def test_a_product_is_there_only_when_it_is_finished() -> None:
    key = build_cache.json_digest({"of": "this test"})

    def dies(folder: Path) -> build_cache.CachedBuild | None:
        (folder / "half").write_text("half", encoding="utf-8")
        raise KeyboardInterrupt

    assert build_cache.make_product(key, lambda folder: (folder / "half").touch()) is None
    with pytest.raises(KeyboardInterrupt):
        build_cache.make_product(key, dies)
    assert build_cache.find_product(key) is None

    def works(folder: Path) -> build_cache.CachedBuild | None:
        assert list(folder.iterdir()) == [], "leftovers of an earlier build"
        (folder / "x.so").write_bytes(b"library")
        (folder / "python").mkdir()
        (folder / "python/a.py").write_text("A = 1\n", encoding="utf-8")
        return build_cache.CachedBuild(1.5, "0" * 64, extension="x.so", python=("python",))

    product = build_cache.make_product(key, works)
    assert product is not None
    assert product.environment == {
        "CONTRIBBOT_EXTENSION": str(product.folder / "x.so"),
        "PYTHONPATH": str(product.folder / "python"),
    }
    assert build_cache.find_product(key) == product
    (product.folder / "python/a.py").write_text("A = 2  # by someone\n", encoding="utf-8")
    assert build_cache.find_product(key) is None


def test_of_many_who_want_a_product_one_builds_it() -> None:
    key = build_cache.json_digest("wanted by many")
    built: list[Path] = []

    def build(folder: Path) -> build_cache.CachedBuild | None:
        built.append(folder)
        (folder / "x.so").write_bytes(b"library")
        return build_cache.CachedBuild(0.0, "", extension="x.so")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(build_cache.make_product, [key] * 8, [build] * 8))
    assert len(built) == 1


def test_hipified_files_replace_what_was_laid_out(tmp_path: Path) -> None:
    folder, product = tmp_path / "laid", tmp_path / "made"
    laid = {"csrc/cuda/a.cu": "cuda", "csrc/a.h": "cuda", "csrc/plain.cpp": "plain"}
    hipified = {"csrc/hip/a.hip": "hip", "csrc/a.h": "hip"}
    for root, files in ((folder, laid), (product, hipified)):
        for name, text in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text, encoding="utf-8")
    sources = builds.overlay_hipified(
        ("csrc/cuda/a.cu", "csrc/plain.cpp"),
        folder, product, {"csrc/cuda/a.cu": product / "csrc/hip/a.hip"},
    )  # fmt: skip
    assert sources == ("csrc/hip/a.hip", "csrc/plain.cpp")
    for name in ("csrc/a.h", "csrc/hip/a.hip"):
        assert (folder / name).read_text(encoding="utf-8") == "hip"


def test_the_hardware_to_compile_for_is_this_machines() -> None:
    names = ("sm_90", "sm_90", "sm_120")
    gpus = tuple(Gpu(vendor="nvidia", target=name, name="", driver="") for name in names)
    machine = this_machine().model_copy(update={"gpus": gpus})
    assert target_environment("cuda", machine) == {"TORCH_CUDA_ARCH_LIST": "9.0;12.0"}
    assert target_environment("gfx942", machine) == {"PYTORCH_ROCM_ARCH": "gfx942"}
    assert target_environment("cpu", machine) == {}
