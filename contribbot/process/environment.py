"""The environment of other programs: built, and never inherited by accident."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from typing import Final

#: Variables that programs need to run at all and to find an accelerator.
#: Everything else, tokens first of all, stays outside.
_ALLOWED: Final = frozenset(
    {
        "PATH", "LD_LIBRARY_PATH", "SSL_CERT_FILE", "SSL_CERT_DIR", "TZ",
        "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES",
    }
)  # fmt: skip
_ALLOWED_PREFIXES: Final = ("CUDA_", "HIP_", "HSA_", "ROCM_", "ROCR_", "PYTORCH_ROCM_")
_SECRET: Final = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL", re.IGNORECASE)


def clean_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return an environment with what programs need, and nothing personal."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if (name in _ALLOWED or name.startswith(_ALLOWED_PREFIXES)) and not _SECRET.search(name)
    }
    return {**kept, "LC_ALL": "C.UTF-8", **(extra or {})}


def accelerator_environment() -> dict[str, str]:
    """Return the variables that decide how programs see an accelerator."""
    return {
        name: value
        for name, value in sorted(clean_environment().items())
        if name.startswith((*_ALLOWED_PREFIXES, "NVIDIA_", "LD_LIBRARY_PATH"))
    }


def own_path() -> str:
    """Return where only this process looks for modules: contribbot may lie there.

    It was started from a folder (`PYTHONPATH`, `pip install --target`) or from a zip file; a
    child in an environment of its own has to be told.
    """
    installed = (sys.prefix, sys.base_prefix)
    ours = [one for one in sys.path if one and not one.startswith(installed)]
    return os.pathsep.join(ours)
