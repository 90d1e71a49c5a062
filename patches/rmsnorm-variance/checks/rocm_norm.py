"""SGLang's real `layernorm.py` as on ROCm, with stand-ins for the kernels that it calls.

The modules that pull in the whole serving stack are replaced by the few names that are asked of
them. The kernels compute on a CPU what aiter's and vLLM's do: the mean square of a whole row.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import os
import sys
import types
from pathlib import Path

import torch

#: The kernels that were called since the list was cleared.
calls: list[str] = []


def tree() -> Path:
    """Return the root of the exported tree."""
    return Path(os.environ["CONTRIBBOT_TREE"])


def normalise(x: torch.Tensor, weight: torch.Tensor, epsilon: float) -> torch.Tensor:
    """Scale float32 rows by their root mean square and the weight."""
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + epsilon) * weight.float()


def _aiter(x: torch.Tensor, weight: torch.Tensor, epsilon: float) -> torch.Tensor:
    assert x.dim() == 2, "aiter reads 2-D rows"
    assert x.is_contiguous(), "aiter reads contiguous rows"
    calls.append("aiter")
    # It reads as many weights as the row has columns.
    return normalise(x.float(), weight[: x.shape[-1]], epsilon).to(x.dtype)


def _aiter_add(  # noqa: PLR0917  aiter's own signature
    out: torch.Tensor,
    x: torch.Tensor,
    residual_in: torch.Tensor,
    residual_out: torch.Tensor,
    weight: torch.Tensor,
    epsilon: float,
) -> None:
    calls.append("aiter with residual")
    total = x.float() + residual_in.float()
    residual_out.copy_(total)
    out.copy_(normalise(total, weight, epsilon))


#: What SGLang takes from aiter.
AITER = {"layernorm2d_fwd": None, "rmsnorm2d_fwd": _aiter, "rmsnorm2d_fwd_with_add": _aiter_add}


def _vllm(out: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, epsilon: float) -> None:
    calls.append("vllm")
    out.copy_(normalise(x.float(), weight, epsilon))


def _stand_in(name: str, **attributes: object) -> None:
    module = types.ModuleType(name)
    vars(module).update(attributes)
    sys.modules[name] = module


def _no(*_: object) -> bool:
    return False


def _yes() -> bool:
    return True


def _flag(name: str, default: str = "false") -> bool:
    return os.environ.get(name, default).lower() in {"true", "1"}


class BaseFusedOp(torch.nn.Module):
    """Of SGLang's dispatch: the method that a layer names, else that of the platform."""

    def __init__(self) -> None:
        super().__init__()
        self._forward_method = self.forward_hip

    def forward(self, *args: object) -> object:
        """Run the method that was chosen."""
        return self._forward_method(*args)


def load() -> types.ModuleType:
    """Import the tree's `layernorm.py`; once for each process.

    Raises:
        RuntimeError: Another file was imported.
    """
    package = types.ModuleType("sglang")
    package.__path__ = [str(tree() / "python" / "sglang")]
    package.__spec__ = importlib.machinery.ModuleSpec("sglang", None, is_package=True)
    sys.modules.setdefault("sglang", package)
    if "aiter" not in sys.modules:
        platforms = ("cuda", "cpu", "npu", "xpu", "musa", "gfx1250_supported")
        _stand_in(
            "sglang.srt.utils",
            **{f"is_{name}": _no for name in (*platforms, "flashinfer_available")},
            is_hip=_yes,
            cpu_has_amx_support=_no,
            get_bool_env_var=_flag,
        )
        batch = {"is_batch_invariant_mode_enabled": _no, "rms_norm_batch_invariant": None}
        _stand_in("sglang.srt.batch_invariant_ops", **batch)
        _stand_in("sglang.srt.environ", envs=None)
        _stand_in("sglang.srt.runtime_context", get_exec=None, get_parallel=None)
        graph = {"Backend": None, "Phase": None, "check_cuda_graph_backend": _no}
        _stand_in("sglang.srt.model_executor.cuda_graph_config", **graph)
        _stand_in("sglang.kernels.fused_op", BaseFusedOp=BaseFusedOp)
        _stand_in("aiter", **AITER)
        _stand_in("vllm")
        _stand_in("vllm._custom_ops", rms_norm=_vllm, fused_add_rms_norm=None)
        # SGLang asks it before it calls aiter.
        setattr(torch.Tensor, "is_cuda", property(lambda _: True))  # noqa: B010  mypy knows it as read-only
    module = importlib.import_module("sglang.srt.layers.layernorm")
    if not Path(str(module.__file__)).is_relative_to(tree().resolve()):
        raise RuntimeError(f"imported {module.__file__}, which is not in {tree()}")
    return module
