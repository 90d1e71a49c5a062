"""`contribbot.testing`: one file of a tree, imported without what it does not need."""

from __future__ import annotations

import importlib.metadata
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch

from contribbot import testing
from contribbot.testing import StandInError, UnwrittenCheckError, answers, import_file, unwritten
from contribbot.verify.pytest_plugin import why_broken
from tests.buildtoy import with_sources
from tests.conftest import Program
from tests.test_verify import PATH, put
from tests.tools import unpack
from tests.toy import AREA, Toy

CORE = """\
import dataclasses
import importlib.util
from typing import Optional, TypeVar

import pydantic

import absent
from absent.deep import Base, helper
from demo.near import Mixed, limit
from demo import near

try:
    import maybe
except (ImportError, AttributeError):
    maybe = None

KNOWN = importlib.util.find_spec("faraway")
SIZE = absent.size(3)
T = TypeVar("T", bound=absent.Kind)
NAMES = [helper.__name__]


@absent.jit(warps=4)
def kernel(x): ...


class Derived(Base, Mixed, frozen=True):
    pass


class Narrower(Derived[int, T]):
    pass


class Model(pydantic.BaseModel):
    kind: absent.Kind
    held: Base | None = None


@dataclasses.dataclass
class Held:
    kind: absent.Kind | None = absent.KIND
    many: Optional[list[Base]] = None


def area(width, height):
    return width * height


USES = {
    "calls": lambda: helper(1),
    "calls it": lambda: kernel(2),
    "takes an item of": lambda: kernel[1](2),
    "computes with": lambda: SIZE + 1,
    "computes with it": lambda: 2 * SIZE,
    "decides by": lambda: 1 if near.flag else 2,
    "compares": lambda: SIZE == 3,
    "compares it": lambda: SIZE < 3,
    "goes through": lambda: [*limit],
    "enters": lambda: enter(),
    "makes an object of a class below": lambda: Derived(),
}


def enter():
    with absent.lock:
        pass


def is_base(value):
    return isinstance(value, Base)
"""


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An exported tree; what is imported from it, and stood in for, is forgotten afterwards."""
    modules, finders = {*sys.modules}, [*sys.meta_path]
    root = tmp_path / "tree"
    package = root / "src/demo"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('all of it')\n")
    (package / "core.py").write_text(CORE)
    (package / "near.py").write_text("from absent import Mixed\nlimit = [1]\nflag = True\n")
    (root / "tool.py").write_text("import absent\nVALUE = 3\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CONTRIBBOT_TREE", str(root))
        patch.syspath_prepend(str(root / "src"))
        monkeypatch.setattr(sys, "meta_path", finders)
        yield root
    # A library that the test has loaded late stays: torch.distributed refuses a second import.
    for name in {*sys.modules} - modules:
        if "site-packages" not in (getattr(sys.modules[name], "__file__", None) or ""):
            del sys.modules[name]
    for kept in (testing.TESTED, testing.REAL, testing.GIVEN):
        kept.clear()


@pytest.mark.usefixtures("tree")
def test_the_real_file_is_there_and_all_else_refuses() -> None:
    core = import_file("src/demo/core.py")
    assert core.area(2, 3) == 6
    assert core.maybe is None
    assert core.KNOWN is None
    assert not core.is_base(3)
    assert core.NAMES == ["helper"]
    assert core.Model.model_fields.keys() == {"kind", "held"}
    assert repr(core.helper) == "<stand-in for absent.deep.helper>"
    for use, act in core.USES.items():
        with pytest.raises(StandInError) as caught:
            act()
        assert re.search(f"the check {use.removesuffix(' it')} it, and", str(caught.value)), use
        # It says nothing of the patch: neither red nor green.
        assert why_broken(caught.value, "/checks", ["/tree"]) == "check"


@pytest.mark.usefixtures("tree")
def test_the_error_names_module_attribute_place_and_what_to_do() -> None:
    core = import_file("src/demo/core.py")
    with pytest.raises(StandInError) as caught:
        core.USES["decides by"]()
    assert str(caught.value).startswith("demo.near.flag at demo.core:")
    to_do = "real=['demo.near'], or given={'demo.near': {'flag': …}} of import_file"
    assert to_do in str(caught.value)
    assert caught.value.name == "demo.near.flag"
    with pytest.raises(StandInError, match=r"absent\.deep is a stand-in: install it, or given="):
        core.USES["calls"]()


@pytest.mark.usefixtures("tree")
def test_what_is_real_and_what_is_given() -> None:
    core = import_file(
        "src/demo/core.py",
        real=["demo.near"],
        given={"absent.deep": {**answers("helper", answer=7)}, "maybe": ModuleType("maybe")},
    )
    assert core.USES["calls"]() == 7
    assert core.USES["decides by"]() == 1
    assert core.maybe is sys.modules["maybe"]
    assert import_file("src/demo/core.py", given={"absent": {"KIND": 3}}) is core


@pytest.mark.usefixtures("tree")
def test_code_of_the_tree_that_asks_for_its_version_gets_the_pins() -> None:
    import_file("src/demo/core.py")
    with pytest.raises(importlib.metadata.PackageNotFoundError):
        importlib.metadata.version("demo")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CONTRIBBOT_VERSION", "1.2.3")
        assert importlib.metadata.version("demo") == "1.2.3"
        with pytest.raises(importlib.metadata.PackageNotFoundError):
            importlib.metadata.version("absent")


def test_what_cannot_be_imported_is_said(tree: Path) -> None:
    core = import_file("src/demo/core.py", given={"tomlkit.none": None})
    cases: tuple[tuple[Callable[[], object], type[Exception], str], ...] = (
        (lambda: import_file("src/demo/gone.py"), FileNotFoundError, "has no such file"),
        (lambda: import_file("test/gone.py"), FileNotFoundError, "no test at all; a git source"),
        (lambda: import_file("src/demo/near.py"), ValueError, "is a stand-in since an earlier"),
        (lambda: import_file("tool.py", given={"sys": {}}), ValueError, "imported before"),
    )
    for act, kind, said in cases:
        with pytest.raises(kind, match=said):
            act()
    # A module that the tree itself lacks is the tree's fault, not one to stand in for.
    (tree / "src/demo/wrong.py").write_text("from demo.typo import area\n")
    with pytest.raises(ModuleNotFoundError, match=r"demo\.typo"):
        import_file("src/demo/wrong.py")
    assert core.area(1, 2) == 2
    with pytest.raises(ModuleNotFoundError):
        __import__("absent_for_the_check_itself")


@pytest.mark.usefixtures("tree")
def test_a_file_of_no_package() -> None:
    tool = import_file("tool.py")
    assert (tool.VALUE, tool.__name__) == (3, "tool")
    assert import_file("tool.py") is tool


def test_the_upstreams_own_test(tree: Path) -> None:
    (tree / "test_own.py").write_text(
        "from demo import core\nfrom demo.near import Case\nfrom demo.near import register\n"
        "register(1)\n\n\nclass TestCore(Case):\n    area = staticmethod(core.area)\n"
    )
    own = import_file("test_own.py", real=["demo.core"], given={"demo.near": {"Case": object}})
    assert own.TestCore().area(2, 3) == 6
    assert "all of it" not in repr(sys.modules["demo"])


def test_triton_comes_as_it_is_through_the_upstreams_own_module(tree: Path) -> None:
    triton = pytest.importorskip("triton")
    (tree / "src/demo/triton_utils.py").write_text("raise RuntimeError('no driver is active')\n")
    (tree / "src/demo/kernels.py").write_text(
        "from demo.triton_utils import HAS_TRITON, LOG2E, other, tl, tldevice, triton\n\n\n"
        "@triton.jit\ndef kernel(x_ptr, N: tl.constexpr): ...\n"
    )
    kernels = import_file("src/demo/kernels.py")
    assert kernels.HAS_TRITON is True
    assert kernels.kernel.arg_names == ["x_ptr", "N"]
    assert (kernels.triton, kernels.tl) == (triton, triton.language)
    assert pytest.approx(1.4426950408889634) == kernels.LOG2E
    with pytest.raises(StandInError, match=r"is a stand-in: given=\{'demo.triton_utils': \{'oth"):
        kernels.other()


def test_the_platform_is_known_where_the_gpu_is_emulated(tree: Path) -> None:
    (tree / "src/demo/platforms.py").touch()
    (tree / "src/demo/where.py").write_text(
        "from demo.platforms import current_platform as here\n"
        "MAX = 240 if here.is_rocm() and here.is_fp8_fnuz() and not here.is_xpu() else 448\n"
    )
    with pytest.raises(StandInError, match="decides by it"):
        import_file("src/demo/where.py")
    sys.modules.pop("demo.platforms")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CONTRIBBOT_DEVICE", "gfx942")
        where = import_file("src/demo/where.py")
        assert (where.MAX, where.here.fp8_dtype()) == (240, torch.float8_e4m3fnuz)
        with pytest.raises(StandInError, match="calls it"):
            where.here.has_device_capability(80)
        patch.setenv("CONTRIBBOT_DEVICE", "gfx1201")
        assert (where.here.fp8_dtype(), where.here.is_cuda()) == (torch.float8_e4m3fn, False)


def test_an_installed_package_is_imported_as_it_is(tree: Path) -> None:
    (tree / "torch/nn").mkdir(parents=True)
    (tree / "torch/nn/functional.py").touch()
    assert import_file("torch/nn/functional.py") is torch.nn.functional


def test_a_check_that_is_not_written_says_so() -> None:
    with pytest.raises(UnwrittenCheckError, match="write the check: now"):
        unwritten("now")


CHECK = """\
from contribbot.testing import import_file

area = import_file("src/toy/area.py")


def test_rectangle():
    assert area.rectangle(2, 3) == 6
"""
RECIPE = next(
    block
    for block in re.findall(
        r"```python\n(.*?)```",
        (Path(__file__).parent.parent / "docs/recipes.md").read_text(),
        re.DOTALL,
    )
    if "aiter" in block
)
AITER = """\
import torch


def rmsnorm2d_fwd(x, weight, epsilon):
    assert x.dim() == 2, f"aiter reads 2-D rows, not {tuple(x.shape)}"
    return torch.nn.functional.rms_norm(x, x.shape[-1:], weight, epsilon)
"""


def test_sglangs_rmsnorm(tree: Path, sglang_archive: Path) -> None:
    """What patches/rmsnorm/checks does in 178 lines, as docs/recipes.md has it."""
    unpack(sglang_archive, tree / "release")
    next((tree / "release").iterdir()).rename(tree / "python")
    sys.path.insert(0, str(tree / "python"))
    kernels: dict[str, object] = {"rmsnorm2d_fwd_with_add": None}
    exec(AITER, kernels)  # noqa: S102  what stands above
    try:
        names = {"import_file": import_file, "answers": answers, "kernels": kernels}
        exec(RECIPE, names)  # noqa: S102  what the page shows
    finally:
        sys.path.pop(0)
    norm = sys.modules["sglang.srt.layers.layernorm"].RMSNorm(64)
    rows = torch.randn(3, 64)
    torch.testing.assert_close(norm.forward(rows), norm.forward_native(rows))
    # The fault that the patch mends, on the release without it.
    with pytest.raises(AssertionError, match="aiter reads 2-D rows"):
        norm.forward(torch.randn(2, 3, 64))


@pytest.mark.parametrize(
    ("product", "verdict"),
    [
        pytest.param("width * height", "proved", marks=pytest.mark.slow),
        ("absent.times(2, 3)", "incomplete"),
    ],
)
def test_what_a_stand_in_refuses_is_no_answer(toy: Toy, product: str, verdict: str) -> None:
    base = f"import absent\n{AREA}"
    with_sources(toy, {PATH: base})
    fixed = base.replace("return width + height", f"return {product}")
    put(toy, CHECK, reason="^AssertionError: assert 5 == 6", change={PATH: fixed})
    ran = Program(toy.queue)("verify", "area", "--json")
    assert ran.report().verdict == verdict, ran.out
    if verdict == "incomplete":
        assert "StandInError: absent.times" in ran.stages()["reproduce red"].reason
