"""Record the result of a computation with its inputs and settings in a safetensors file."""

from __future__ import annotations

import contextlib
import importlib
import operator
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Final, Literal

import torch
from pydantic import Field, ValidationError

from contribbot.errors import ContribbotError, MachineError, UsageError, install
from contribbot.files import write_atomically
from contribbot.model.base import Line, Many, Model
from contribbot.numerics.compare import CannotJudgeError, digest, dtype_name, require_plain

_KEY: Final = "contribbot"
_PACKAGES: Final = ("torch", "triton", "pytorch-triton-rocm", "torchao")
#: Settings in `torch.backends` that change results.
_SETTINGS: Final = (
    "cuda.matmul.allow_tf32",
    "cuda.matmul.allow_fp16_reduced_precision_reduction",
    "cuda.matmul.allow_bf16_reduced_precision_reduction",
    "cuda.matmul.allow_fp16_accumulation",
    "cudnn.allow_tf32",
)


class TensorFacts(Model):
    """A tensor's dtype, shape and digest, without its values."""

    dtype: Line
    shape: Many[int]
    digest: Line  # of dtype, shape and bits


class RecordingHeader(Model):
    """A recording's computation, parameters, digests of tensors, device, versions and settings."""

    format: Literal[1] = 1
    computation: Line
    parameters: dict[str, float] = Field(default_factory=dict)
    inputs: dict[str, TensorFacts]
    result: TensorFacts
    device: Line
    versions: dict[str, str]
    settings: dict[str, str]


@dataclass(frozen=True)
class Recording:
    """The result of a computation with the inputs, as tensors on the CPU.

    Attributes:
        header: Computation, parameters, device, versions and settings; digests of all tensors.
        result: The result: a real tensor of any shape.
        inputs: The inputs by name, of any shapes; empty if the file has only the digests of inputs.
    """

    header: RecordingHeader
    result: torch.Tensor
    inputs: Mapping[str, torch.Tensor]


def recording(
    computation: str,
    result: torch.Tensor,
    inputs: Mapping[str, torch.Tensor],
    **parameters: float,
) -> Recording:
    """Return a result with its inputs and the device, versions and settings of this machine.

    Args:
        computation: A name in `COMPUTATIONS`, such as `linear`, or the name of your computation.
        result: The computation's result: a dense, real tensor of any shape, on any device.
        inputs: The inputs by name: `linear` has `x` (…, K), `weight` (N, K) and perhaps `bias`.
        **parameters: The computation's numbers, such as `eps`.

    Raises:
        CannotJudgeError: The result or an input is no dense, real tensor.
    """
    own = {name: _on_cpu(f"the input {name}", tensor) for name, tensor in inputs.items()}
    own_result = _on_cpu("the result", result)
    versions = {"cuda": torch.version.cuda, "hip": torch.version.hip}
    for package in _PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[package] = metadata.version(package)
    settings = {"float32_matmul_precision": torch.get_float32_matmul_precision()}
    for name in _SETTINGS:
        # This torch may lack the setting, or the setting was set in contradictory ways.
        with contextlib.suppress(AttributeError, RuntimeError):
            settings[name] = str(operator.attrgetter(name)(torch.backends))
    header = RecordingHeader(
        computation=computation,
        parameters={name: float(value) for name, value in parameters.items()},
        inputs={name: _facts(tensor) for name, tensor in own.items()},
        result=_facts(own_result),
        device=_device(result.device),
        versions={name: version for name, version in versions.items() if version},
        settings=settings,
    )
    return Recording(header, own_result, own)


def record(
    path: Path | str,
    computation: str,
    result: torch.Tensor,
    inputs: Mapping[str, torch.Tensor],
    *,
    keep_inputs: bool = True,
    **parameters: float,
) -> Recording:
    """Write a result with its inputs to a file, and return the recording.

    Args:
        path: The file to write, for `contribbot numerics explain`, such as `h200.safetensors`.
        computation: The computation's name, as for `recording`.
        result: The result, as for `recording`.
        inputs: The inputs by name, as for `recording`.
        keep_inputs: Whether to write the inputs' values, not only their digests. One of the two
            recordings that `explain` compares must have the values.
        **parameters: The computation's numbers, as for `recording`.

    Raises:
        CannotJudgeError: The result or an input is no dense, real tensor.
        MachineError: `safetensors` is not installed.
    """
    made = recording(computation, result, inputs, **parameters)
    values = made.inputs if keep_inputs else {}
    tensors = {"result": made.result, **{f"input.{name}": values[name] for name in values}}
    save = _safetensors("safetensors.torch").save
    write_atomically(Path(path), save(tensors, {_KEY: made.header.model_dump_json()}))
    return made


def read(path: Path) -> Recording:
    """Return the recording in a file; raise UsageError for no recording, or a changed tensor."""
    library = _safetensors("safetensors")
    try:
        with library.safe_open(path, "pt") as file:
            header = RecordingHeader.model_validate_json((file.metadata() or {}).get(_KEY, ""))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  no mapping
    except ValidationError as error:
        raise _no_record(path, "safetensors of something else") from error
    except (library.SafetensorError, OSError, ValueError, RuntimeError, TypeError) as error:
        raise _no_record(path, str(error)) from error
    facts = {"result": header.result}
    facts |= {f"input.{name}": header.inputs[name] for name in header.inputs}
    for name, fact in facts.items():
        if name not in tensors and name != "result":
            continue  # the file has only the digest of this input
        if name not in tensors or _facts(tensors[name]) != fact:
            what = name.removeprefix("input.")
            raise _no_record(path, f"{what} is not the tensor that was recorded")
    kept = {name: tensors[f"input.{name}"] for name in header.inputs if f"input.{name}" in tensors}
    return Recording(header, tensors["result"], kept)


def _no_record(path: Path, why: str) -> ContribbotError:
    hint = "write one with contribbot.numerics.record (docs/explain.md)"
    return UsageError(f"{path}: no record of a computation: {why}", hint=hint)


def _safetensors(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MachineError(
            "records of computations are kept as safetensors, which is not installed",
            hint=install("explain"),
        ) from error


def _on_cpu(what: str, tensor: object) -> torch.Tensor:
    """Return a copy of a dense, real tensor on the CPU."""
    plain = require_plain(what, tensor)
    if plain.is_complex():
        raise CannotJudgeError(f"{what} is complex: record its parts")
    return plain.detach().cpu().contiguous().clone()


def _facts(tensor: torch.Tensor) -> TensorFacts:
    shape = tuple(tensor.shape)
    return TensorFacts(dtype=dtype_name(tensor.dtype), shape=shape, digest=digest(tensor))


def _device(device: torch.device) -> str:
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        return f"{properties.name} {properties.gcnArchName if torch.version.hip else ''}".strip()
    return "CPU" if device.type == "cpu" else str(device)
