"""A block in which nothing may leave its device."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import pytest
import torch
from torch import Tensor

from contribbot.testing import expect_device
from tests.accelerator import DEVICE, register
from tests.conftest import Program
from tests.test_fallback import DEVICES
from tests.toy import Toy, one_check

#: What is done with a tensor of the device, and what is said of it; nothing: all is well.
CASES: Final[dict[str, tuple[Callable[[Tensor], object], str]]] = {
    "kept": (lambda x: (x * 2).view(2, 2).sum(), ""),
    "backward": (lambda x: torch.autograd.grad((x.requires_grad_() * 2).sum(), x), ""),
    "an operator": (lambda x: (x + 1, torch.ones(3) * 2), r"fallback aten::mul, 1 x: .*torch.ones"),
    "a number": (lambda x: (x + 1).sum().item(), r"download aten::_local_scalar_dense, 1 x"),
    "an upload": (lambda x: x + torch.ones(4).to(x.device), r"upload aten::_to_copy, 1 x"),
    "in backward": (
        lambda x: torch.autograd.grad(x.requires_grad_().cpu().exp().sum(), x),
        r"download aten::_to_copy, 1 x.*fallback aten::exp, 1 x.*upload aten::_to_copy in ToCopy",
    ),
    "after sparse work on the CPU": (
        lambda x: (
            x + 1,
            torch.sparse.mm(torch.eye(2).to_sparse(), torch.eye(2)),
            torch.eye(2) @ torch.eye(2),
        ),
        r"fallback aten::mm, 1 x",
    ),
    "nothing": (lambda _: None, "so nothing is shown"),
    "a view": (lambda x: x.view(2, 2), "so nothing is shown"),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("device", [*reversed(DEVICES), f"{DEVICE}:0"])
def test_a_block_fails_where_it_leaves_its_device(case: str, device: str) -> None:
    if device == "cuda" and "backward" in case and register.cache_info().currsize:
        pytest.skip("torch's backward takes one accelerator, and a test before registered another")
    work, said = CASES[case]
    x = torch.ones(4).to(register() if DEVICE in device else device)
    error: AssertionError | None = None
    try:
        with expect_device(device):
            work(x)
    except AssertionError as raised:
        error = raised
    assert bool(error) == bool(said), error
    if error and said:
        assert re.search(said, str(error), re.DOTALL)
        assert "fallback aten" not in said or __file__ in str(error)


def test_a_sparse_tensor_is_counted_where_it_leaves_the_cpu(tmp_path: Path) -> None:
    x, said = torch.ones(2, device="meta"), "upload aten::_to_copy, 1 x"
    with pytest.MonkeyPatch.context() as patch:
        # Where the variable is missing, torch sets the variable itself, and leaves it set.
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
        with pytest.raises(AssertionError, match=said), expect_device("meta"):
            (x + 1, torch.eye(2).to_sparse().to("meta"))


@pytest.mark.parametrize(
    "allow", [["aten::_local*"], ["*/test_expect_device.py:*"], ["no", "aten::_local_scalar_dense"]]
)
def test_what_is_allowed_may_happen(allow: Iterable[str]) -> None:
    x = torch.ones(4).to(register())
    with expect_device(DEVICE, allow=allow):
        (x + 1).sum().item()
    with pytest.raises(AssertionError, match="aten::_local_scalar_dense"), expect_device(DEVICE):
        (x + 1).sum().item()


def test_a_block_says_what_is_its_own() -> None:
    x = torch.ones(4).to(register())
    with pytest.raises(KeyError, match="mine"), expect_device(DEVICE):
        vars()[f"{x.sum().item() and 'mine'}"]
    with pytest.raises(ValueError, match="name an accelerator"), expect_device("cpu"):
        pass
    # It is over: nobody looks any more.
    assert str(x.sum().item()) == "4.0"
    assert str(x)
    with pytest.raises(AssertionError, match="no operator ran on meta"), expect_device("meta"):
        torch.ones(3, device="meta")


#: The base adds, which works on the CPU here; the patched tree multiplies, where the tensor is.
CHECK: Final = """\
import torch
from contribbot.testing import expect_device
from toy.area import rectangle


class Side(torch.Tensor):
    def __add__(self, other):
        return torch.ones(3).exp()


def test_red():
    side = torch.ones(3, device="meta").as_subclass(Side)
    with expect_device("meta"):
        rectangle(side, side)
"""


@pytest.mark.slow
def test_a_patch_can_state_that_its_path_falls_back_no_more(toy: Toy) -> None:
    reason = "^AssertionError: not all of it ran on meta:.*fallback aten::exp"
    toy.put_area(checks=one_check(reason=f"(?s){reason}"), check_files={"test_red.py": CHECK})
    ran = Program(toy.queue)("verify", "area", "--json")
    assert ran.code == 0, ran.out
    stage = ran.stages()["reproduce red"]
    assert stage.reason == (
        "red: 1 test: fail on the base as stated, pass on the patched tree; "
        "red again without the change"
    )
