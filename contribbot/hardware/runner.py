"""What a job of GitHub Actions tells its runner, and a GPU that should be there and is not."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from typing import Final, TypeVar

from pydantic import ValidationError

from contribbot.errors import MachineError
from contribbot.hardware.probe import listed_amd_gpus
from contribbot.model.base import Model
from contribbot.model.evidence import Container, RunOf

#: The job's id in the plan (`gfx942-rocm7.1-1`); it starts with the target.
JOB: Final = "CONTRIBBOT_JOB"
IMAGE: Final = "CONTRIBBOT_IMAGE"
FLAGS: Final = "CONTRIBBOT_CONTAINER_FLAGS"
#: The variables that give what a run is (GitHub's documentation, "Variables reference").
_RUN: Final = {
    "run_id": "GITHUB_RUN_ID",
    "attempt": "GITHUB_RUN_ATTEMPT",
    "job": JOB,
    "repository": "GITHUB_REPOSITORY",
    "commit": "GITHUB_SHA",
}
_CONTAINER: Final = {"image": IMAGE, "flags": FLAGS}

ModelT = TypeVar("ModelT", bound=Model)


def run_of(environment: Mapping[str, str] = os.environ) -> RunOf | None:
    """Return the run of GitHub Actions that this process is part of; None: of none."""
    if not environment.get("GITHUB_RUN_ID"):
        return None
    told = {field: environment.get(name, "") for field, name in _RUN.items()}
    told["job"] = told["job"] or environment.get("GITHUB_JOB", "")
    numbers = {
        field: int(told[field]) for field in ("run_id", "attempt") if told[field].isdecimal()
    }
    return _checked(RunOf, {**told, **numbers}, _RUN)


def container_of(environment: Mapping[str, str] = os.environ) -> Container | None:
    """Return the container that this process was started in; None: none was named."""
    image = environment.get(IMAGE, "")
    if not image:
        return None
    try:
        flags = shlex.split(environment.get(FLAGS, ""))
    except ValueError as error:
        raise MachineError(f"{FLAGS}: {error}", hint="write the options as for a shell") from error
    return _checked(Container, {"image": image, "flags": flags}, _CONTAINER)


def _checked(model: type[ModelT], told: dict[str, object], names: Mapping[str, str]) -> ModelT:
    try:
        return model.model_validate(told)
    except ValidationError as error:
        first = error.errors()[0]
        name = names[str(first["loc"][0])]
        raise MachineError(
            f"{name}: {first['msg']}: {first['input']!r}"[:300],
            hint=f"the record would name the wrong run: set {name} as the workflow does, or unset "
            f"{IMAGE if model is Container else 'GITHUB_RUN_ID'}",
        ) from error


def absent_gpu(target: str, environment: Mapping[str, str] = os.environ) -> str:
    """Say why a GPU is not there that this job was given to this runner for; or nothing.

    Elsewhere a machine without some GPU is an ordinary machine.
    """
    if not environment.get(JOB, "").startswith(f"{target}-"):
        return ""
    if target == "cuda":
        return "nvidia-smi finds no GPU: the driver or the container's access to it is missing"
    listed = ", ".join(dict.fromkeys(gpu.target for gpu in listed_amd_gpus()))
    if target in listed.split(", "):
        return (
            f"the driver lists {target}, and /dev/kfd cannot be opened: the container needs "
            "--device /dev/kfd --device /dev/dri and the group that owns them"
        )
    if listed:
        return f"this runner has {listed}, not {target}"
    return (
        "the amdgpu driver lists no GPU: it is not loaded, or the container was not given "
        "/dev/kfd and /dev/dri"
    )
