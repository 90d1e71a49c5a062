"""Commands, options and keys of files that this release dropped, each with its replacement."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

#: By the command's full name, such as `numerics floor`.
COMMANDS: Final[Mapping[str, str]] = {
    "numerics floor": "judge by the same precision's own error: a [[numerics]] (docs/numerics.md)",
}
#: By command and option, such as `verify --with`.
OPTIONS: Final[Mapping[str, str]] = {
    "doctor --import": "a torch that a program patches is not looked for any more",
}
#: By file and key without places, such as `patch.toml simulate`.
KEYS: Final[Mapping[str, str]] = {
    "upstreams hipify.cuda_only": "leave it out; a compile finds headers that ROCm lacks",
    "upstreams hipify.defined": "leave it out; a compile finds headers that ROCm lacks",
    "upstreams hipify.undefined": "leave it out; a compile finds headers that ROCm lacks",
}
