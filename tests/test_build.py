"""The stage `build`: compiles and products, extensions that checks load, and whole trees."""

from __future__ import annotations

import os
import re
import shutil
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from contribbot import process
from contribbot.compile import build as builds
from contribbot.compile import cache as build_cache
from contribbot.compile.build import Ran, build_tools, complaint, run_commands, target_environment
from contribbot.files import log_path
from contribbot.machine import this_machine
from contribbot.model.checks import Build
from contribbot.model.evidence import Gpu
from contribbot.model.patch import PatchFile, Upstream
from contribbot.queue.load import read_model, upstream_files
from tests.buildtoy import (
    BINDING,
    CHECK,
    FIXED_KERNEL,
    HEADER,
    KERNEL,
    LOADING,
    LOADING_TORCH,
    build_table,
    products,
    put_kernel_patch,
    with_sources,
)
from tests.conftest import Program, dig, until
from tests.hiptoy import program_file
from tests.test_bench import running
from tests.tools import kinds
from tests.toy import PASS_TO_PASS, Toy

COMPILES = pytest.mark.tool("g++", "ninja")
OTHER_CHECK = """
[[checks]]
name = "same"
file = "test_same.py"
expect = "pass-to-pass"
"""
BROKEN = KERNEL.replace("width + height;", "width + heigth;")


@COMPILES
@pytest.mark.slow
def test_a_kernel_goes_from_red_to_green_through_torch(toy: Toy, program: Program) -> None:
    put_kernel_patch(
        toy,
        build=build_table(binding='"binding.cpp"', flags='["-std=c++20"]', defines='["TOY=1"]'),
        check_files={"test_red.py": LOADING_TORCH, "binding.cpp": BINDING},
    )

    ran = program.ok("verify", "area", "--json")
    assert ran.report().verdict == "proved"
    build = ran.stages()["build area"]
    assert (build.outcome, build.reason) == ("passed", "area: the base and the patched tree build")
    base, patched = dig(build.details, "base"), dig(build.details, "patched")
    assert str(dig(build.details, "compilers", 0)).startswith("torch ")
    assert re.match(r"[^/]*\+\+: .*\d+\.\d+", str(dig(build.details, "compilers", 1)))
    assert dig(base, "sha256") != dig(patched, "sha256")
    assert dig(patched, "passed") == ["area"]
    log = log_path(toy.queue / ".contribbot/logs", f"{dig(patched, 'log_sha256')}")
    told = log.read_text(encoding="utf-8")
    assert "csrc/area.cpp" in told
    assert "built and loaded" in told
    assert str(toy.root.parent) not in told, "a folder of this machine is in the log"
    assert len(products(toy)) == 2
    program.ok("evidence", "check")


@COMPILES
def test_an_unchanged_build_is_not_repeated(toy: Toy, program: Program) -> None:
    # No check runs: each would be judged anew with the build, four times.
    put_kernel_patch(toy, checks="")
    assert program("verify", "area", "--json").stages()["build area"].outcome == "passed"
    stamps = {folder: (folder / "extension.so").stat().st_mtime_ns for folder in products(toy)}
    again = program("verify", "area", "--json").stages()["build area"]
    forced = program("verify", "area", "--json", "--force").stages()["build area"]
    put_kernel_patch(toy, checks="", change={"csrc/area.cpp": FIXED_KERNEL + "// as before\n"})
    changed = program("verify", "area", "--json").stages()["build area"]
    assert again.cached
    assert [dig(forced.details, side, "reused") for side in ("base", "patched")] == [True, True]
    assert [dig(changed.details, side, "reused") for side in ("base", "patched")] == [True, False]
    assert stamps == {folder: (folder / "extension.so").stat().st_mtime_ns for folder in stamps}


EXPECTED = {"expect": '"fail-to-pass"', "reason": '"heigth.* was not declared"'}


#: What the base has, what the patch changes, the table's keys, the outcome and its reason.
CASES: dict[str, tuple[str, dict[str, str | bytes], dict[str, str], str, str]] = {
    "broken": (KERNEL, {"csrc/area.cpp": BROKEN}, {}, "failed",
               r"area: the patched tree does not build: csrc/area.cpp:4:.*heigth"),
    "mended": (BROKEN, {"csrc/area.cpp": FIXED_KERNEL}, EXPECTED, "passed",
               "area: the base does not build, as stated, .* tree does: csrc/area.cpp:4:"),
    # A source that only the patch has is no red.
    "new": (KERNEL, {"csrc/new.cpp": FIXED_KERNEL},
            {**EXPECTED, "sources": '["csrc/new.cpp"]'}, "failed",
            r"area: the base is broken there, not wrong: it has no csrc/new.cpp"),
}  # fmt: skip


@COMPILES
@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_what_does_not_compile(toy: Toy, program: Program, name: str) -> None:
    base, change, table, outcome, said = CASES[name]
    checks = OTHER_CHECK if table else CHECK + OTHER_CHECK
    files = {"test_red.py": LOADING, "test_same.py": PASS_TO_PASS}
    stated = build_table(**table)
    put_kernel_patch(toy, base=base, build=stated, checks=checks, change=change, check_files=files)

    ran = program("verify", "area", "--json")

    build = ran.stages()["build area"]
    assert build.outcome == outcome
    assert re.match(said, build.reason), build.reason
    if outcome == "passed":
        assert ran.report().verdict == "proved"
        assert dig(build.details, "base", "failed", 0, "test") == "area"
        program.ok("evidence", "check")
    elif not table:
        check = ran.stages()["reproduce red"]
        assert (ran.code, check.outcome) == (1, "unavailable")
        assert check.reason.startswith(
            "red: its build area failed: the patched tree does not build"
        )


@COMPILES
@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"binding": '"binding.cpp"'}, "the build area names binding.cpp, and "),
        ({"sources": '["csrc/area.cu"]'}, "csrc/area.cu: for cpu, sources are .cpp, .cc, .cxx"),
        ({"sources": '["csrc/area.h"]'}, "csrc/area.h: cpp_extension compiles .cpp, "),
        ({"sources": ""}, "sources: an extension is made of some"),
        ({"way": '"full"'}, "way full: the upstream's recipe knows its sources"),
        ({"targets": '["rocm"]'}, "targets"),
    ],
)
def test_a_senseless_table(toy: Toy, program: Program, table: dict[str, str], said: str) -> None:
    put_kernel_patch(toy, build=build_table(**table))
    ran = program("verify", "area")
    assert ran.code == 2
    assert said in ran.err
    assert "patch.toml" in ran.err


@COMPILES
def test_without_compiler_its_package_is_named(toy: Toy, program: Program, tmp_path: Path) -> None:
    put_kernel_patch(toy)
    lean = tmp_path / "bin"
    lean.mkdir()
    for name in ("git", "rm"):
        found = shutil.which(name)
        assert found
        (lean / name).symlink_to(found)
    ran = program.process("verify", "area", "--json", PATH=str(lean))
    assert ran.report().verdict == "incomplete"
    build, check = ran.stages()["build area"], ran.stages()["reproduce red"]
    assert build.outcome == check.outcome == "unavailable"
    assert build.reason == "area: no C++ compiler on this machine (Debian: apt-get install g++)"
    assert check.reason.startswith("red: its build area is unavailable: no C++ compiler")


@COMPILES
@pytest.mark.slow
def test_a_build_that_takes_too_long_is_not_remembered(toy: Toy, program: Program) -> None:
    # GCC's driver starts what it would run as the arguments of its wrapper.
    wrapper = program_file(toy.root / "wrapper", "sleep 300")
    put_kernel_patch(toy, build=build_table(flags=f'["-wrapper", "{wrapper}"]', timeout="5"))
    for _ in range(2):
        build = program("verify", "area", "--json").stages()["build area"]
        assert (build.outcome, build.cached) == ("unavailable", False)
        assert build.reason == "area: on the base: not finished after 5 s"


GOOD = 'extern "C" int five() { return 5; }\n'


def compiled_extension(
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


@COMPILES
def test_several_sources_and_a_binding_become_one_library(tmp_path: Path) -> None:
    ran = compiled_extension(
        tmp_path,
        {"a/one.cpp": GOOD, "b/two.cpp": 'extern "C" int five(); int ten() { return 2 * five(); }'},
        binding='extern "C" int seven() { return 7; }\n',
    )
    assert (ran.error, ran.lacking, ran.crash) == ("", "", "")
    symbols = process.run(["nm", "-D", tmp_path / "product/extension.so"]).stdout.decode()
    assert all(f" T {name}" in symbols for name in ("five", "seven", "_Z3tenv"))
    assert not (tmp_path / "run/sources").exists(), "the copy of the sources was kept"


@COMPILES
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
    ran = compiled_extension(tmp_path, sources, flags=flags)
    assert said in ran.error, ran.output
    assert (ran.lacking, ran.crash) == ("", "")
    assert not list((tmp_path / "product").iterdir())


@COMPILES
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
    ran = compiled_extension(tmp_path, {"a.cpp": GOOD}, flags=("-wrapper", str(wrapper)))
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


MAKEFILE = """\
src/toy/libnative.so: csrc/area.cpp csrc/area.h
\t$(CXX) -shared -fPIC -Icsrc -o $@ csrc/area.cpp
"""
#: The package finds its library beside itself, as an upstream's does.
NATIVE = """\
import ctypes
from pathlib import Path

side_sum = ctypes.CDLL(str(Path(__file__).with_name("libnative.so"))).side_sum
"""
WHOLE_CHECK = """
[[checks]]
name = "red"
file = "test_red.py"
expect = "fail-to-pass"
reason = "AssertionError"
build = "whole"
"""
LOADING_NATIVE = """\
from toy.native import side_sum


def test_area():
    assert side_sum(2, 3) == 6
"""
RECIPE = {
    "targets": '["cpu"]', "commands": '[["make", "-j{jobs}"]]', "requires": '["make", "g++"]',
    "needs": '["Makefile"]', "python": '["src"]', "discard": '["csrc"]',
}  # fmt: skip


def put_full(toy: Toy, recipe: dict[str, str] | None = None, env: str = "", **entry: str) -> None:
    """Put the patch `area`, whose check loads what the toy's own recipe builds."""
    sources = {"Makefile": MAKEFILE, "csrc/area.cpp": KERNEL, "csrc/area.h": HEADER}
    with_sources(toy, {**sources, "src/toy/native.py": NATIVE})
    keys = "".join(f"{key} = {value}\n" for key, value in {**RECIPE, **(recipe or {})}.items())
    table = f"[build]\n{keys}" + (f"[build.env]\n{env}" if env else "")
    toy.put("upstreams/toy.toml", toy.upstream_toml() + table)
    stated = {"name": '"whole"', "way": '"full"', "sources": "", "include": "", **entry}
    toy.put_area(
        patch=toy.format_patch({"csrc/area.cpp": FIXED_KERNEL}),
        files=("csrc/area.cpp",),
        checks=build_table(**stated) + WHOLE_CHECK,
        check_files={"test_red.py": LOADING_NATIVE},
    )


@COMPILES
def test_checks_load_what_a_recipe_made_of_each_tree(toy: Toy, program: Program) -> None:
    put_full(toy)
    ran = program("verify", "area", "--json")
    again = program("verify", "area", "--json")
    assert ran.code == 0, ran.out + ran.err
    assert ran.report().verdict == "proved"
    build = ran.stages()["build whole"]
    assert build.outcome == "passed"
    assert ran.stages()["reproduce red"].outcome == "passed"
    assert again.stages()["build whole"].cached
    kept = products(toy)
    assert len(kept) == 2
    for folder in kept:
        assert (folder / "tree/src/toy/libnative.so").is_file()
        assert not (folder / "tree/csrc").exists(), "what the recipe discards was kept"
    log = log_path(toy.queue / ".contribbot/logs", f"{dig(build.details, 'base', 'log_sha256')}")
    assert log.read_text(encoding="utf-8").startswith("+ make -j")


@COMPILES
@pytest.mark.parametrize(
    ("recipe", "outcome", "said"),
    [
        ({"commands": '[["make", "nothing"]]'}, "failed",
         "the patched tree does not build, nor does the base: make: *** No rule to make"),
        ({"python": '["built"]'}, "failed", "the recipe ended well and made no built"),
        ({"needs": '["third_party/x"]'}, "unavailable",
         "the pinned tree has no third_party/x, which the recipe of toy needs"),
        ({"requires": '["no-such-tool"]'}, "unavailable", "no no-such-tool on this machine"),
        ({"requires": '["python:no_such"]'}, "unavailable", "the Python module no_such is not"),
        ({"targets": '["cuda"]'}, "unavailable", "the recipe of toy builds for cuda, not cpu"),
    ],
)  # fmt: skip
def test_a_recipe_that_cannot_end_well(
    toy: Toy, program: Program, recipe: dict[str, str], outcome: str, said: str
) -> None:
    put_full(toy, recipe)
    ran = program("verify", "area", "--json")
    build, check = ran.stages()["build whole"], ran.stages()["reproduce red"]
    assert (build.outcome, said in build.reason) == (outcome, True), build.reason
    assert check.outcome == "unavailable"
    assert "its build whole" in check.reason
    assert products(toy) == []


@COMPILES
def test_a_recipe_gets_what_it_states_and_nothing_personal(toy: Toy, program: Program) -> None:
    put_full(
        toy,
        {"commands": '[["sh", "-c", "env | sort; test $HOME != $OLD; pwd; exit 3"]]'},
        env='VERSION = "{version}"\nFOR = "{target} in {tree}"\nPYTHON = "{python}"\nOLD = "/x"\n',
    )
    program.env |= {"GITHUB_TOKEN": "x", "USER": "somebody"}
    ran = program("verify", "area", "--json")
    build = ran.stages()["build whole"]
    assert build.outcome == "failed"
    log = log_path(toy.queue / ".contribbot/logs", f"{dig(build.details, 'patched', 'log_sha256')}")
    written_text = log.read_text(encoding="utf-8")
    assert "VERSION=1.0\n" in written_text
    assert "FOR=cpu in <tree>\n" in written_text
    for private in ("GITHUB_TOKEN", "CONTRIBBOT_", "somebody", str(toy.root.parent)):
        assert private not in written_text


@COMPILES
@pytest.mark.parametrize(
    "how", [signal.SIGINT, pytest.param(signal.SIGKILL, marks=pytest.mark.slow)]
)
def test_no_command_outlives_contribbot(toy: Toy, program: Program, how: signal.Signals) -> None:
    pids = toy.root / "pids"
    pids.mkdir()
    # A command that waits for what it has started, as make does.
    slow = f"sleep 600 & echo $$ $! > {pids}/$$.part; mv {pids}/$$.part {pids}/$$; wait"
    put_full(toy, {"commands": f'[["true"], ["sh", "-c", "{slow}"]]'})
    child = program.start("verify", "area")
    try:
        assert until(lambda: bool(written(pids))), "no command was ever started"
        started = written(pids)
        assert all(map(running, started))
    finally:
        child.send_signal(how)
        child.communicate(timeout=60)

    try:
        # The other side's command may have started meanwhile.
        assert until(lambda: not any(map(running, {*started, *written(pids)})))
    finally:
        for pid in filter(running, written(pids)):
            os.kill(pid, signal.SIGKILL)
    assert products(toy) == []


def written(folder: Path) -> list[int]:
    files = [path for path in folder.iterdir() if path.suffix != ".part"]
    return [int(pid) for path in files for pid in path.read_text(encoding="utf-8").split()]


def test_an_unknown_placeholder_is_refused(toy: Toy, program: Program) -> None:
    put_full(toy, {"commands": '[["make", "PREFIX={prefix}"]]'})
    ran = program("verify", "area")
    assert ran.code == 2
    assert "{prefix}: not one of tree, python, jobs, target, version" in ran.err
    assert "upstreams/toy.toml" in ran.err


@pytest.mark.parametrize("name", ["pytorch", "sglang", "vllm"])
def test_the_recipes_that_come_along_are_for_amd_and_leave_the_environment_alone(name: str) -> None:
    recipe = read_model(upstream_files(Path("/nonexistent"))[name], Upstream).build
    assert recipe is not None
    assert "gfx942" in recipe.targets
    assert "hipcc" in recipe.requires
    assert "{target}" in {*recipe.env.values()}
    words = {word for argv in recipe.commands for word in argv}
    assert not words & {"develop", "-e"}
    # pip would install into the environment that runs it, without a folder of its own.
    assert all("--target" in argv for argv in recipe.commands if "install" in argv)
