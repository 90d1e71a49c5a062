"""What a machine is, as far as an outcome may depend on it."""

from __future__ import annotations

import hashlib
from typing import Annotated

from pydantic import Field

from contribbot.model.base import Model


class Gpu(Model):
    """One GPU.

    Attributes:
        vendor: `amd` or `nvidia`.
        target: The compile target: `gfx942`, or `sm_90`.
        name: What the driver calls it.
        driver: The driver's version, or empty where it does not say.
    """

    vendor: str
    target: str
    name: str
    driver: str


class Machine(Model):
    """What an outcome may depend on, beside its inputs.

    Attributes:
        system: Kernel's name and the processor's architecture, such as `Linux x86_64`.
        cpu: The processor's model.
        cores: Cores that this process may use.
        python: Implementation and version.
        git: git's version.
        packages: Versions of the libraries that matter, of those that are installed.
        rocm: ROCm's version, or empty.
        gpus: The GPUs, in the driver's order.
    """

    system: str
    cpu: str
    cores: int
    python: str
    git: str
    packages: dict[str, str]
    rocm: str
    gpus: Annotated[tuple[Gpu, ...], Field(strict=False)]

    @property
    def targets(self) -> frozenset[str]:
        """The hardware that checks can run on here: `cpu`, `cuda`, gfx targets."""
        found = {"any", "cpu"}
        for gpu in self.gpus:
            found.add("cuda" if gpu.vendor == "nvidia" else gpu.target)
        return frozenset(found)

    @property
    def fingerprint(self) -> str:
        """SHA-256 over all of it, in hexadecimal."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()

    @property
    def slug(self) -> str:
        """A short name for files, such as `x86_64-cpu-1a2b3c4d`. Says nothing of its owner."""
        kind = "-".join(dict.fromkeys(gpu.target for gpu in self.gpus)) or "cpu"
        return f"{self.system.split()[-1]}-{kind}-{self.fingerprint[:8]}"
