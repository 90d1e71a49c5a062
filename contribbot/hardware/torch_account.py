"""What torch says of the GPUs, asked in a child that stands for a user's program."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pydantic import Field, ValidationError

from contribbot import process
from contribbot.hardware.gpus import GpuFacts
from contribbot.model.base import Many, Model

_CHILD: Final = Path(__file__).with_name("torch_child.py")
#: Seconds: importing torch reads gigabytes, and a GPU's runtime may hang.
_SECONDS: Final = 120.0


class TorchAccount(Model):
    """What torch says of itself and of the GPUs."""

    version: str = ""
    hip: str = ""  # the release of HIP that it was built for
    cuda: str = ""
    kernels: Many[str] = ()  # the targets that its own kernels were compiled for
    devices: Many[GpuFacts] = ()
    #: What is not torch's own: a function, and where its code is from; a result, and its type.
    foreign: dict[str, str] = Field(default_factory=dict)
    error: str = ""

    @property
    def vendor(self) -> str:
        """Whose GPUs it can use; empty: none."""
        return "amd" if self.hip else "nvidia" if self.cuda else ""

    @property
    def build(self) -> str:
        """What it was built for, in words."""
        return f"HIP {self.hip}" if self.hip else f"CUDA {self.cuda}" if self.cuda else "CPU alone"


def ask_torch(
    environment: Mapping[str, str], *, first: str = "", seconds: float = _SECONDS
) -> TorchAccount:
    """Ask torch in an environment; `first` is `MODULE[:FUNCTION]` that a program begins with."""
    path = (environment.get("PYTHONPATH", ""), process.own_path())
    env = {**environment, "PYTHONPATH": os.pathsep.join(filter(None, path))}
    with tempfile.TemporaryDirectory(prefix="contribbot-") as folder:
        file = Path(folder) / "answer.json"
        # -P: modules beside the script must not stand before torch's.
        argv = [sys.executable, "-B", "-P", str(_CHILD), str(file), *([first] if first else [])]
        done = process.supervise(argv, cwd=Path.cwd(), env=env, timeout=seconds)
        try:
            return TorchAccount.model_validate_json(file.read_bytes())
        except (OSError, ValidationError):
            last = "".join(done.output.decode("utf-8", "replace").split("\n")[-2:]).strip()
            late = f"not finished after {seconds:g} s"
            died = f"killed by {process.signal_name(-done.returncode)}"
            how = died if done.returncode < 0 else f"exit status {done.returncode}: {last[:200]}"
            return TorchAccount(error=late if done.timed_out else how)
