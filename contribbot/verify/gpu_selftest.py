"""Run the known-good kernel: a program that gives a device work with a known result."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, NoReturn

from contribbot.process import guard_group

if TYPE_CHECKING:
    import torch


#: The number of integers that are written to the device and read back: 32 MiB.
_NUMBERS = 8 * 2**20
#: The number of rows and columns of the matrices. Their integers are smaller than 16, so that sums
#: (at most 512 * 225) are exact in any order of summation, and in TF32.
_SIDE = 512
_ENTRIES = 16
_VISIBLE = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")


def say(**facts: object) -> None:
    """Write some facts as one line of the report."""
    print(json.dumps(facts), flush=True)  # noqa: T201  contribbot reads the lines


def fail(kind: str, said: str) -> NoReturn:
    """Report a fault, and end the process."""
    say(fault=kind, said=said)
    sys.exit(1)


def chosen(target: str) -> tuple[torch.device, dict[str, object]]:
    """Return torch's first GPU, and its description; fail if the GPU is not of the target."""
    import torch  # noqa: PLC0415  the import takes seconds, and is reported first

    this = f"torch {torch.__version__}"
    if torch.version.cuda is None and torch.version.hip is None:
        fail("gpu-not-visible", f"{this} is a build for processors alone")
    if not torch.cuda.is_available():
        # torch.cuda.init raises the driver's reason, which is_available hides.
        try:
            torch.cuda.init()  # type: ignore[no-untyped-call]  # torch has no type for it
        except (RuntimeError, AssertionError) as error:
            sys.stderr.write(f"{error}\n")
        values = {name: os.environ.get(name, "0").strip() for name in _VISIBLE}
        hidden = (f": {name} is {value or 'empty'}" for name, value in values.items()
                  if value in {"", "-1"})  # fmt: skip
        fail("gpu-not-visible", f"{this} sees no GPU{next(hidden, '')}")
    properties = torch.cuda.get_device_properties(0)
    arch = str(getattr(properties, "gcnArchName", "")).partition(":")[0]
    if torch.version.hip is None:
        arch = f"sm_{properties.major}{properties.minor}"
    if target not in {"cuda", arch}:
        name = f"{'CUDA' if torch.version.hip is None else 'HIP'}_VISIBLE_DEVICES"
        fail("gpu-not-visible", f"{this} sees {arch} first, not {target}: {name} can name another")
    devices = torch.cuda.device_count()
    return torch.device("cuda", 0), {"device": properties.name, "arch": arch, "devices": devices}


def work(device: torch.device) -> None:
    """Copy memory, add and multiply on the device, and compare with the processor's results."""
    import torch  # noqa: PLC0415  as in chosen

    say(step="memory")
    numbers = torch.arange(_NUMBERS, dtype=torch.int32)
    copied = numbers.to(device)
    if not torch.equal(copied.clone().cpu(), numbers):
        fail("preflight-failed", "memory that was written to the device reads back otherwise")
    say(step="add")
    if not torch.equal((copied + copied).cpu(), numbers + numbers):
        fail("preflight-failed", "a sum on the device is not the processor's")
    say(step="multiply")
    generator = torch.Generator().manual_seed(1)
    left, right = (
        torch.randint(_ENTRIES, (_SIDE, _SIDE), generator=generator).float() for _ in range(2)
    )
    if not torch.equal((left.to(device) @ right.to(device)).cpu(), left @ right):
        fail("preflight-failed", "a product of matrices on the device is not the processor's")


def main(kind: str, target: str) -> None:
    """Run the steps of the self-test, and report each step before it begins."""
    guard_group(int(os.environ.pop("CONTRIBBOT_LIFELINE")))
    say(step="import")
    import torch  # noqa: PLC0415  after the report of the step

    runtime = f"HIP {torch.version.hip}" if torch.version.hip else f"CUDA {torch.version.cuda}"
    say(step="look", torch=torch.__version__, runtime=runtime if kind == "cuda" else "")
    device, facts = torch.device("cpu"), dict[str, object](device="cpu", arch="")
    if kind == "cuda":
        device, facts = chosen(target)
    say(**facts)
    work(device)
    if kind == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        say(memory_free=free, memory_total=total)
    say(step="end")


if __name__ == "__main__":
    main(*sys.argv[1:])
