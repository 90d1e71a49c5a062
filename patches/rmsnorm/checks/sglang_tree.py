"""SGLang's real `layernorm.py` and `multi_platform.py`, imported without the rest of SGLang.

The package's own `__init__` and four modules that `layernorm.py` imports pull in the whole
serving stack, so they are replaced by the few names that are asked of them. The code under
test is the file of the exported tree, unchanged.
"""

from __future__ import annotations

import functools
import importlib
import importlib.machinery
import os
import sys
import types
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeAlias, cast

if TYPE_CHECKING:
    import torch

Norm: TypeAlias = "torch.Tensor | tuple[torch.Tensor, torch.Tensor]"


class RMSNorm(Protocol):
    """What the checks use of SGLang's RMSNorm."""

    weight: torch.nn.Parameter
    variance_epsilon: float

    def forward(
        self,
        x: torch.Tensor,
        residual: torch.Tensor | None = None,
        post_residual_addition: torch.Tensor | None = None,
    ) -> Norm:
        """Run the method that `MultiPlatformOp` chose."""
        ...

    def forward_native(self, x: torch.Tensor, residual: torch.Tensor | None = None) -> Norm:
        """Run the plain torch implementation."""
        ...


def tree() -> Path:
    """Return the root of the exported tree.

    Raises:
        RuntimeError: `CONTRIBBOT_TREE` does not name it.
    """
    root = Path(os.environ.get("CONTRIBBOT_TREE", ""))
    if not (root / "python" / "sglang").is_dir():
        raise RuntimeError(f"CONTRIBBOT_TREE={root}: no python/sglang in it")
    return root


def _no() -> bool:
    return False


def _yes() -> bool:
    return True


def _get_bool_env_var(name: str, default: str = "false") -> bool:
    return os.environ.get(name, default).lower() in {"true", "1"}


def _stand_in(name: str, **attributes: object) -> None:
    module = types.ModuleType(name)
    vars(module).update(attributes)
    sys.modules[name] = module


def open_package() -> None:
    """Make `sglang.*` importable from the tree without running `sglang/__init__.py`."""
    if "sglang" in sys.modules:
        return
    package = types.ModuleType("sglang")
    package.__path__ = [str(tree() / "python" / "sglang")]
    package.__spec__ = importlib.machinery.ModuleSpec("sglang", None, is_package=True)
    sys.modules["sglang"] = package


def _replace_neighbours() -> None:
    """Stand in for what `layernorm.py` and `multi_platform.py` import from SGLang.

    `is_hip` says yes: it is how SGLang chooses the aiter branch. Nothing else claims a
    GPU; the tensors stay where the check puts them.
    """
    platforms = ("cuda", "cpu", "npu", "xpu", "musa")
    _stand_in(
        "sglang.srt.utils",
        **{f"is_{platform}": _no for platform in platforms},
        is_hip=_yes,
        is_gfx1250_supported=_no,
        is_flashinfer_available=_no,
        cpu_has_amx_support=_no,
        get_bool_env_var=_get_bool_env_var,
    )
    _stand_in(
        "sglang.srt.batch_invariant_ops",
        is_batch_invariant_mode_enabled=_no,
        rms_norm_batch_invariant=None,
    )
    _stand_in("sglang.srt.environ", envs=None)
    _stand_in("sglang.srt.server_args", get_global_server_args=None)
    _stand_in("sglang.srt.runtime_context", get_exec=None, get_parallel=None)
    _stand_in(
        "sglang.srt.model_executor.cuda_graph_config",
        Backend=None,
        Phase=None,
        check_cuda_graph_backend=_no,
    )
    if (tree() / "python" / "sglang" / "kernels" / "fused_op.py").is_file():
        _stand_in("sglang.kernels.fused_op", BaseFusedOp=_fused_op())


def _fused_op() -> type:
    """Return what stands for the class that later releases have for `MultiPlatformOp`.

    The real one registers kernels with a library that nothing here needs. Of its dispatch
    a layer that names its method uses this much.
    """
    import torch  # noqa: PLC0415  a check that only reads the tree need not wait for it

    class BaseFusedOp(torch.nn.Module):
        def forward(self, *args: object, **kwargs: object) -> object:
            return self._forward_method(*args, **kwargs)

    return BaseFusedOp


def _say_that_tensors_are_on_a_gpu() -> None:
    """Let every tensor of this process say so: later releases ask it before they call aiter."""
    import torch  # noqa: PLC0415  a check that only reads the tree need not wait for it

    setattr(torch.Tensor, "is_cuda", property(lambda _tensor: True))  # noqa: B010  mypy knows it as read-only


@functools.cache
def load_layernorm(kernels: types.ModuleType | None) -> types.ModuleType:
    """Import the tree's `layernorm.py`; once for each process.

    Args:
        kernels: Takes the place of the module `aiter`. None: the installed one.

    Raises:
        RuntimeError: The tree is missing, or another file was imported.
    """
    open_package()
    _replace_neighbours()
    if kernels is not None:
        sys.modules["aiter"] = kernels
        _say_that_tensors_are_on_a_gpu()
    module = importlib.import_module("sglang.srt.layers.layernorm")
    expected = tree() / "python" / "sglang" / "srt" / "layers" / "layernorm.py"
    if not Path(str(module.__file__)).samefile(expected):
        raise RuntimeError(f"imported {module.__file__} instead of {expected}")
    return module


def make_norm(
    layernorm: types.ModuleType, width: int, dtype: torch.dtype, device: str = "cpu"
) -> RMSNorm:
    """Return an RMSNorm whose weights differ from column to column.

    Raises:
        RuntimeError: SGLang did not choose aiter.
    """
    norm = layernorm.RMSNorm(width).to(device=device, dtype=dtype)
    if norm._forward_method != norm.forward_aiter:  # noqa: SLF001  how SGLang notes its choice
        raise RuntimeError("RMSNorm does not use aiter: set SGLANG_USE_AITER=1")
    import torch  # noqa: PLC0415  a check that only reads the tree need not wait for it

    with torch.no_grad():
        norm.weight.copy_(torch.linspace(0.5, 1.5, width))
    return cast("RMSNorm", norm)
