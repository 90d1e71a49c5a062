"""vLLM's real Python files, imported as on a ROCm machine, without a GPU and without a build.

Real, from the exported tree: `platforms/rocm.py`, which decides what this machine is, the
quantisation utilities, `SiluAndMul`, `QuantFP8`, and the pass that fuses them.
Standing in: `amdsmi`, which names the GPU; Triton's `jit`, whose kernels may be defined and
not launched; and the modules that pull in the rest of vLLM, of which only named parts exist.
The operators of `torch.ops._C` are those that the tree's C++ bindings define for ROCm.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import logging
import os
import re
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import torch
from rocm_sources import schemas, tree

#: The GPU that `amdsmi` names.
GPU = os.environ.get("CHECK_GPU", "gfx942")

#: Packages whose own `__init__` imports the rest of vLLM.
_OPENED = (
    "vllm",
    "vllm.platforms",
    "vllm.model_executor",
    "vllm.model_executor.layers",
    "vllm.model_executor.layers.quantization",
    "vllm.model_executor.layers.quantization.utils",
)


_LIBRARIES: list[torch.library.Library] = []


class TritonLaunchError(Exception):
    """A Triton kernel was to be launched, where vLLM's own kernel was wanted."""


class _Kernel:
    """What `triton.jit` makes here: defined, never launched."""

    def __init__(self, function: types.FunctionType) -> None:
        self._name = function.__name__

    def __getitem__(self, grid: object) -> NoReturn:
        raise TritonLaunchError(f"{self._name} was to be launched on {grid}")


class _Logger(logging.Logger):
    """vLLM's loggers say some things only once."""

    info_once = logging.Logger.info
    debug_once = logging.Logger.debug
    warning_once = logging.Logger.warning


def _stand_in(name: str, **attributes: object) -> None:
    module = types.ModuleType(name)
    vars(module).update(attributes)
    sys.modules[name] = module


def _open(name: str) -> None:
    package = types.ModuleType(name)
    package.__path__ = [str(tree().joinpath(*name.split(".")))]
    package.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)
    sys.modules[name] = package
    parent, _, child = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], child, package)


def _refused(name: str) -> Callable[..., NoReturn]:
    def refuse(*_args: object, **_kwargs: object) -> NoReturn:
        raise NotImplementedError(f"{name} is no part of this check")

    return refuse


def _refusing(module: str, *names: str) -> None:
    _stand_in(module, **{name: _refused(f"{module}.{name}") for name in names})


def _amdsmi() -> None:
    """Name one GPU, as the library of the driver does."""
    _refusing(
        "amdsmi",
        "amdsmi_get_gpu_device_uuid",
        "amdsmi_get_gpu_memory_total",
        "amdsmi_topo_get_link_type",
        "amdsmi_topo_get_numa_node_number",
    )
    vars(sys.modules["amdsmi"]).update(
        AmdSmiException=RuntimeError,
        AmdSmiMemoryType=object,
        amdsmi_init=lambda: None,
        amdsmi_shut_down=lambda: None,
        amdsmi_get_processor_handles=lambda: ["gpu"],
        amdsmi_get_gpu_asic_info=lambda _handle: {"target_graphics_version": GPU},
    )


def _next_power_of_2(number: int) -> int:
    return 1 << (number - 1).bit_length()


class _CustomOp(torch.nn.Module):
    """The part of vLLM's base class that the layers ask for; nothing is dispatched."""

    def __init__(self, *, compile_native: bool = False) -> None:
        super().__init__()
        self.compile_native = compile_native

    @staticmethod
    def register(_name: str) -> object:
        return lambda cls: cls

    @classmethod
    def enabled(cls) -> bool:
        return True


class _Aiter:
    """aiter is not used: vLLM's default."""

    is_linear_fp8_enabled = staticmethod(lambda: False)
    is_triton_rotary_embed_enabled = staticmethod(lambda: False)


def config() -> types.SimpleNamespace:
    """Return what the fusion pass reads of a VllmConfig."""
    return types.SimpleNamespace(
        compilation_config=types.SimpleNamespace(
            splitting_ops=None, use_inductor_graph_partition=False, pass_config=None
        ),
        model_config=types.SimpleNamespace(dtype=torch.bfloat16),
        device_config=types.SimpleNamespace(device="cpu"),
        compile_debug_dump_path=lambda: None,
    )


def _replace_neighbours() -> None:
    if importlib.util.find_spec("regex") is None:
        sys.modules["regex"] = re
    _amdsmi()
    # The built extensions: their operators come from the bindings.
    for name in ("_C", "_C_stable_libtorch", "_rocm_C"):
        _stand_in(f"vllm.{name}")
    layers = "vllm.model_executor.layers"
    _stand_in("vllm.logger", init_logger=_Logger, logger=_Logger("vllm"))
    _stand_in("vllm.config", VllmConfig=object, get_current_vllm_config=config)
    _refusing("vllm._custom_ops", "scaled_fp8_quant")
    # Where `from vllm import _custom_ops` looks.
    vars(sys.modules["vllm"])["_custom_ops"] = sys.modules["vllm._custom_ops"]
    _stand_in("vllm._aiter_ops", rocm_aiter_ops=_Aiter)
    _stand_in(
        "vllm.triton_utils",
        tl=types.SimpleNamespace(constexpr=object, int64=object),
        triton=types.SimpleNamespace(jit=_Kernel, next_power_of_2=_next_power_of_2),
    )
    _refusing("vllm.model_executor.utils", "set_weight_attrs")
    _refusing(f"{layers}.quantization.utils.w8a8_utils", "all_close_1d", "per_tensor_dequantize")
    _stand_in("vllm.distributed")
    _refusing("vllm.distributed.parallel_state", "get_ep_group", "get_tp_group")
    parameters = ("BlockQuantScaleParameter", "ChannelQuantScaleParameter")
    _refusing("vllm.model_executor.parameter", *parameters, "PerTensorScaleParameter")
    _stand_in("vllm.model_executor.custom_op", CustomOp=_CustomOp)
    _stand_in(f"{layers}.layernorm", RMSNormGated=_CustomOp)
    _open(f"{layers}.rotary_embedding")
    rotary = sys.modules[f"{layers}.rotary_embedding"]
    vars(rotary).update(RotaryEmbedding=_CustomOp)
    _stand_in(
        f"{layers}.rotary_embedding.deepseek_scaling_rope",
        DeepseekScalingRotaryEmbedding=_CustomOp,
    )


def library(namespace: str, kind: str) -> torch.library.Library:
    """Return a library that lives as long as this process; operators go with theirs.

    Args:
        namespace: Of the operators.
        kind: `FRAGMENT` to define, `IMPL` to implement.
    """
    made = torch.library.Library(namespace, kind)  # type: ignore[no-untyped-call]  # torch does not annotate it
    _LIBRARIES.append(made)
    return made


def _define_operators() -> None:
    defining = library("_C", "FRAGMENT")
    for schema in schemas().values():
        defining.define(schema)  # type: ignore[no-untyped-call]
    # The fusion pass names them when it is imported (0.33.0: `mrope` too).
    for name in ("flashinfer_rotary_embedding", "mrope"):
        schema = f"{name}(Tensor positions) -> ()"
        library("vllm", "FRAGMENT").define(schema)  # type: ignore[no-untyped-call]


def open_vllm() -> None:
    """Make `vllm.*` importable from the tree as on a machine with one AMD GPU; once."""
    if "vllm" in sys.modules:
        return
    for name in _OPENED:
        _open(name)
    _replace_neighbours()
    _define_operators()
    platform = importlib.import_module("vllm.platforms.rocm").RocmPlatform()
    interface = importlib.import_module("vllm.platforms.interface")
    vars(sys.modules["vllm.platforms"]).update(
        current_platform=platform,
        PlatformEnum=interface.PlatformEnum,
        CpuArchEnum=interface.CpuArchEnum,
    )


def load(name: str) -> types.ModuleType:
    """Import a module of the tree.

    Args:
        name: Its name below `vllm`.

    Raises:
        RuntimeError: Another file was imported.
    """
    open_vllm()
    module = importlib.import_module(f"vllm.{name}")
    if not Path(str(module.__file__)).is_relative_to(tree().resolve()):
        raise RuntimeError(f"imported {module.__file__}, which is not in {tree()}")
    return module
