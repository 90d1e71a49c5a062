"""The library for checks: `from contribbot.testing import import_file`.

A check runs the tree's real code, which imports the rest of SGLang or vLLM, and packages that may
not be installed on your machine. `import_file` imports only the file that you name:

```python
from contribbot.testing import answers, import_file

area = import_file("python/sglang/srt/layers/layernorm.py")

layernorm = import_file(
    "python/sglang/srt/layers/layernorm.py",
    real=["sglang.srt.layers.utils"],
    given={
        "sglang.srt.utils": {
            **answers("is_cuda", "is_cpu", "is_npu", "is_xpu", answer=False),
            **answers("is_hip", answer=True),
        },
    },
)
```

All other modules of the tree, and all packages that are not installed, are *stand-ins*: whatever
the file imports from a stand-in exists, so that the import succeeds. As soon as the check would
depend on a stand-in (call it, decide or compute by it, use a subclass of it), the stand-in
raises `StandInError`, which names the module, the attribute and two remedies:

- `real`: modules of the tree to import for real, with their submodules;
- `given`: values for attributes of a module; its other attributes stay stand-ins.

`contribbot verify` counts a check with a `StandInError` as one that could not run (*unavailable*),
not as red. An import in a `try` that handles `ImportError` fails, as it does where
the package is not installed. PyTorch's files are imported unchanged, with the installed torch.

The library also has:

- `tree()`: returns the folder of the tree under test.
- `answers(…, answer=…)`: returns functions that always return one answer, for `given`.
- `expect_device("cuda")`: a `with` block in which nothing may run on the CPU, or be copied from
  or to the CPU.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from contribbot.importing import (
    StandInError,
    UnwrittenCheckError,
    answers,
    import_file,
    tree,
    unwritten,
)

if TYPE_CHECKING:
    from contribbot.fallback.audit import expect_device

__all__ = [
    "StandInError",
    "UnwrittenCheckError",
    "answers",
    "expect_device",
    "import_file",
    "tree",
    "unwritten",
]


def __getattr__(name: str) -> object:
    """Import `expect_device`, which needs torch, when it is first used."""
    if name != "expect_device":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from contribbot.fallback.audit import expect_device  # noqa: PLC0415  torch takes seconds

    return expect_device
